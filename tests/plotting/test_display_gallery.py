"""docs/plots.md: every display has a block that makes it and a small picture."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from dpsvm_fast import plotting
from oracles.scripts import module_of

pytestmark = pytest.mark.usefixtures("closed_figures")

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "plots.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    """The script that draws the pictures."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("PIL")
    return module_of("docs/images/make_display_gallery.py")


def test_every_display_is_in_the_gallery() -> None:
    displays = [name for name in plotting.__all__ if name.endswith("Display")]
    assert displays
    assert [name for name in displays if f"plotting.{name}.from_" not in PAGE] == []


def test_every_picture_is_drawn_by_the_block_before_it(gallery: ModuleType) -> None:
    files = {found["file"]: found["code"] for found in gallery.BLOCK.finditer(PAGE)}
    files.pop(None)
    assert all("display = plotting." in code for code in files.values())
    assert len(files) == PAGE.count("](images/")
    for name in files:
        content = (ROOT / "docs" / name).read_bytes()
        assert content.startswith(b"\x89PNG")
        assert len(content) <= gallery.LARGEST


def test_figures_are_drawn_and_saved_small(gallery: ModuleType, tmp_path: Path) -> None:
    gallery.matplotlib.use("Agg")
    page = (
        "```python\n"
        "from dpsvm_fast.plotting import PrivacyUtilityDisplay\n"
        "display = PrivacyUtilityDisplay(epsilons=[1], scores=[[0.5]]).plot()\n"
        "```\n\n![A point](images/point.png)\n"
    )
    ((name, figure),) = gallery.drawn(page).items()
    assert name == "images/point.png"
    gallery.save(figure, tmp_path / "point.png")
    assert 0 < (tmp_path / "point.png").stat().st_size <= gallery.LARGEST
