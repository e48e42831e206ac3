"""Draw ``several_rows.png``: what noise for one row is worth for a person with several.

python docs/images/several_rows.py
"""

from __future__ import annotations

import sys
from pathlib import Path

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
        ax.loglog(ROWS, found, marker=marker, markersize=4, label=f"fit with epsilon = {epsilon:g}")
    ax.set(xlabel="rows of one person", ylabel="epsilon of that person")
    ax.set_xticks(ROWS, [str(m) for m in ROWS], minor=False)
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    save(figure, Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
