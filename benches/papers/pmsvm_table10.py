"""PMSVM, table 10: the norm to which gradients are clipped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.papers import pmsvm_ablation as ablation
from benches.papers.pmsvm_settings import NAMES
from benches.tables import Row

TITLE = "PMSVM (NeurIPS 2025), table 10: the clip norm"
PROTOCOL: tuple[str, ...] = (
    *ablation.SHARED_PROTOCOL,
    "PMSVM-AGP clips gradients to R; all else is as for R = 1. Adam's steps do not depend on the "
    "scale of gradients, so a smaller R makes rows weigh alike, not steps shorter.",
)
DATA: tuple[str, ...] = NAMES
QUICK_DATA: tuple[str, ...] = ("dermatology", "vehicle")
QUICK_REPEATS = 2
SPLITS = 10

CLIPS = {"R = 0.01": 0.01, "R = 0.1": 0.1, "R = 1": 1.0, "R = 10": 10.0}
COLUMNS = tuple(CLIPS)
VARIANTS = tuple(
    ablation.Variant(column, "PMSVM-AGP", {"clip": clip}) for column, clip in CLIPS.items()
)
# Accuracy and deviation for each R.
PAPER = ablation.published(
    """
cornell 1 .677 .007 .681 .000 .693 .032 .347 .110
cornell 2 .679 .003 .687 .006 .707 .023 .560 .034
cornell 4 .683 .003 .745 .017 .752 .023 .653 .025
cornell 8 .747 .006 .765 .024 .765 .024 .657 .006
dermatology 1 .842 .028 .878 .070 .905 .017 .171 .110
dermatology 2 .950 .016 .955 .028 .951 .042 .230 .084
dermatology 4 .987 .000 .978 .016 .978 .012 .559 .034
dermatology 8 .982 .008 .978 .016 .976 .018 .743 .036
hhar 1 .922 .004 .929 .002 .929 .007 .885 .007
hhar 2 .943 .001 .947 .002 .946 .004 .913 .004
hhar 4 .948 .001 .951 .002 .956 .006 .931 .002
hhar 8 .953 .001 .953 .001 .959 .003 .938 .003
isolet 1 .431 .007 .458 .013 .501 .025 .057 .030
isolet 2 .661 .027 .662 .026 .687 .017 .076 .029
isolet 4 .732 .013 .746 .010 .804 .010 .119 .022
isolet 8 .825 .024 .849 .014 .840 .013 .110 .002
usps 1 .917 .003 .920 .001 .897 .006 .810 .004
usps 2 .922 .001 .927 .000 .907 .006 .856 .003
usps 4 .927 .002 .929 .003 .917 .002 .873 .002
usps 8 .928 .002 .931 .002 .924 .003 .891 .003
vehicle 1 .641 .026 .680 .050 .696 .060 .329 .010
vehicle 2 .684 .017 .716 .009 .753 .007 .484 .019
vehicle 4 .710 .015 .727 .014 .733 .023 .578 .071
vehicle 8 .722 .009 .741 .020 .766 .009 .673 .038
""",
    COLUMNS,
)


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit."""
    return ablation.measured(names, repeats or SPLITS, ablation.planned(VARIANTS))


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracies beside the paper's."""
    return ablation.summary(rows, PAPER)


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold."""
    return ablation.broken(table, "pmsvm_table10")


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along R, one panel a data set."""
    lines = (
        ("public rows", ablation.PUBLIC, "accuracy"),
        ("as published (not private)", ablation.PUBLISHED, "accuracy"),
        ("the paper", ablation.PUBLIC, "paper"),
    )
    ablation.along(table, path, lines, CLIPS, "clip norm R", ("1", "4"))


def page(table: Sequence[Row]) -> str:
    """Tables, and which R is best how often."""
    arms = {ablation.PUBLIC: "public rows", ablation.PUBLISHED: "as published (not private)"}
    best = ablation.best_counts(table, ablation.PUBLIC, COLUMNS)
    return "\n\n".join(
        [
            ablation.HEADING,
            ablation.beside(table, (ablation.PUBLIC, ablation.PUBLISHED), COLUMNS),
            ablation.averages(table, COLUMNS, arms),
            f"Most accurate with public rows: {best} cells.",
        ]
    )


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
