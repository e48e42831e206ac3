"""Draw the figures of docs/plots.md by running the code of that page.

    python docs/images/make_display_gallery.py [--grey FOLDER]

A block that makes a ``display`` is saved as the picture that follows it. Noise is fresh in every
run. With --grey the pictures are written to a folder without colours too, to be looked at.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "plots.md"
# A block of code, and the picture after it if there is one before the next block.
BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n!\[[^\]]*\]\((?P<file>[^)]+)\))?", re.M | re.S
)
LARGEST = 100_000


def drawn(page: str) -> dict[str, Any]:
    """Figures by the names of their files."""
    names: dict[str, Any] = {}
    figures = {}
    for block in BLOCK.finditer(page):
        exec(block["code"], names)
        if block["file"]:
            figures[block["file"]] = names["display"].figure_
    return figures


def save(figure: Any, file: Path) -> None:
    """A small picture: two hundred and fifty-six colours are enough for lines and flat grounds."""
    figure.savefig(file, dpi=150)
    with Image.open(file) as picture:
        small = picture.convert("RGB").quantize(256)
    small.save(file, optimize=True)
    if file.stat().st_size > LARGEST:
        raise SystemExit(f"{file}: larger than {LARGEST} bytes")


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grey", type=Path)
    options = parser.parse_args(arguments)
    matplotlib.use("Agg")
    for name, figure in drawn(PAGE.read_text(encoding="utf-8")).items():
        file = DOCS / name
        save(figure, file)
        sys.stdout.write(f"{name}: {file.stat().st_size} bytes\n")
        if options.grey is not None:
            options.grey.mkdir(parents=True, exist_ok=True)
            with Image.open(file) as picture:
                picture.convert("L").save(options.grey / file.name)


if __name__ == "__main__":
    main()
