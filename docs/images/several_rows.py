"""Draw ``several_rows.png``: what noise for one row is worth for a person with several.

python docs/images/several_rows.py
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from dpsvm_fast.accounting import composed_epsilon, gaussian_sigma
from dpsvm_fast.certificates import GaussianEvent

sys.path.insert(0, str(Path(__file__).parent))

from make_display_gallery import save

DELTA, ROWS = 1e-5, (1, 2, 3, 5, 7, 10, 15, 20, 30, 50)


def main() -> None:
    """Draw it."""
    figure, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    for epsilon, marker in ((1.0, "o"), (0.5, "s"), (0.1, "^")):
        event = GaussianEvent(gaussian_sigma(epsilon, DELTA), 1.0, "add_remove")
        found = [composed_epsilon([event], DELTA, group_size=m) for m in ROWS]
        (line,) = ax.loglog(ROWS, found, marker=marker, markersize=5, linewidth=2)
        end: dict[str, Any] = {"textcoords": "offset points", "xytext": (24, -4)}
        end |= {"color": line.get_color(), "annotation_clip": False}
        ax.annotate(rf"fit with $\epsilon$ = {epsilon:g}", (ROWS[-1], found[-1]), **end)
    ax.axhspan(10.0, 200.0, color="#000000", alpha=0.07, linewidth=0)
    ax.text(1.0, 120.0, r"$\epsilon$ above 10: little protection", va="top")
    ax.set(xlabel="rows of one person", ylabel=r"$\epsilon$ of that person", ylim=(0.08, 200.0))
    ax.set_xticks(ROWS, [str(m) for m in ROWS], minor=False)
    ax.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    save(figure, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
