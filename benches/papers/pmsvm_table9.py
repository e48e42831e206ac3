"""PMSVM, table 9 (with table 3): does a learning rate that decays help PMSVM-GP and -AGP?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benches.papers import pmsvm_ablation as ablation
from benches.papers.drawing import Panel, panels
from benches.papers.pmsvm_settings import NAMES
from benches.tables import Row

TITLE = "PMSVM (NeurIPS 2025), tables 3 and 9: learning rates that decay"
PROTOCOL: tuple[str, ...] = (
    *ablation.SHARED_PROTOCOL,
    "PMSVM-GP (SGD) and PMSVM-AGP (Adam) have a constant learning rate, or one that decays "
    "linearly to 0: after every step here, after every epoch in the paper.",
)
DATA: tuple[str, ...] = NAMES
QUICK_DATA: tuple[str, ...] = ("dermatology", "vehicle")
QUICK_REPEATS = 2
SPLITS = 10

COLUMNS = ("GP", "GP, decay", "AGP", "AGP, decay")
DECAY = {"schedule": "linear"}
VARIANTS = (
    ablation.Variant("GP", "PMSVM-GP"),
    ablation.Variant("GP, decay", "PMSVM-GP", changes=DECAY),
    ablation.Variant("AGP", "PMSVM-AGP"),
    ablation.Variant("AGP, decay", "PMSVM-AGP", changes=DECAY),
)
# Accuracy and deviation without and with decay of GP, then of AGP.
PAPER = ablation.published(
    """
cornell 1 .663 .010 .673 .033 .692 .025 .692 .022
cornell 2 .719 .023 .743 .009 .728 .018 .706 .021
cornell 4 .771 .014 .752 .010 .772 .019 .748 .013
cornell 8 .770 .012 .765 .015 .769 .029 .774 .014
dermatology 1 .895 .038 .908 .029 .900 .031 .824 .065
dermatology 2 .949 .022 .938 .043 .941 .024 .930 .040
dermatology 4 .973 .017 .938 .021 .984 .006 .973 .010
dermatology 8 .976 .015 .957 .026 .984 .006 .984 .006
hhar 1 .938 .008 .942 .003 .945 .002 .941 .001
hhar 2 .953 .004 .953 .002 .956 .001 .949 .003
hhar 4 .960 .003 .956 .002 .959 .004 .956 .003
hhar 8 .962 .002 .956 .002 .959 .003 .959 .003
isolet 1 .336 .027 .312 .023 .339 .033 .246 .021
isolet 2 .542 .054 .496 .031 .572 .022 .497 .043
isolet 4 .717 .047 .645 .047 .714 .045 .667 .038
isolet 8 .789 .017 .687 .022 .814 .023 .789 .021
usps 1 .896 .007 .908 .004 .908 .005 .912 .005
usps 2 .917 .005 .922 .001 .919 .004 .921 .001
usps 4 .927 .004 .924 .003 .926 .003 .926 .003
usps 8 .930 .002 .927 .002 .927 .004 .929 .003
vehicle 1 .604 .083 .666 .030 .671 .029 .662 .021
vehicle 2 .678 .033 .709 .027 .724 .016 .707 .025
vehicle 4 .727 .030 .729 .020 .753 .013 .739 .011
vehicle 8 .741 .028 .749 .016 .768 .015 .760 .011
""",
    COLUMNS,
)
# Differences below this are within what splits and noise do.
NOTABLE = 0.02


def run(names: Sequence[str], repeats: int | None) -> list[Row]:
    """One row a fit."""
    return ablation.measured(names, repeats or SPLITS, ablation.planned(VARIANTS))


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracies beside the paper's."""
    return ablation.summary(rows, PAPER)


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold."""
    return ablation.broken(table, "pmsvm_table9")


def plot(table: Sequence[Row], path: Path) -> None:
    """Accuracy along epsilon, one panel a data set, with public rows."""
    drawn = []
    for name in dict.fromkeys(row["data"] for row in table):
        own = [row for row in table if (row["data"], row["arm"]) == (name, ablation.PUBLIC)]
        lines = {
            column: [
                (float(row["epsilon"]), float(row["accuracy"]), float(row["standard_error"] or 0))
                for row in own
                if row["column"] == column
            ]
            for column in COLUMNS
        }
        drawn.append(Panel(name, lines))
    panels(path, drawn, x_label="ε", columns=min(3, len(drawn)), legend_columns=4)


def page(table: Sequence[Row]) -> str:
    """Tables, and how often decay helped."""
    arms = {
        ablation.PUBLIC: "public rows",
        ablation.PUBLISHED: "as published (not private)",
    }
    helped = [
        f"{said.capitalize()}: decay gains at least {NOTABLE:g} in {_counted(table, arm, 1)} and "
        f"loses as much in {_counted(table, arm, -1)} of {_counted(table, arm, 0)} cells."
        for arm, said in arms.items()
    ]
    return "\n\n".join(
        [
            ablation.HEADING,
            ablation.beside(table, (ablation.PUBLIC, ablation.PUBLISHED), COLUMNS),
            ablation.averages(table, COLUMNS, arms),
            " ".join(helped),
        ]
    )


def _counted(table: Sequence[Row], arm: str, sign: int) -> int:
    """Cells of an arm where decay helps (1), harms (-1), or any (0)."""
    found = {
        (row["data"], row["epsilon"], row["column"]): float(row["accuracy"])
        for row in table
        if row["arm"] == arm
    }
    differences = [
        found[name, epsilon, f"{column}, decay"] - value
        for (name, epsilon, column), value in found.items()
        if (name, epsilon, f"{column}, decay") in found
    ]
    least = NOTABLE if sign else 0.0
    return sum(sign * difference >= least for difference in differences)


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
