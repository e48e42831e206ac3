"""Figure 2 of PMSVM (NeurIPS 2025): what noise costs each method, against itself without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

from benches.papers import pmsvm_table2
from benches.papers.cells import cells, error, grid
from benches.papers.drawing import Panel, panels
from benches.papers.pmsvm_methods import BASELINES
from benches.papers.pmsvm_settings import EPSILONS, GRADIENT_METHODS, NAMES
from benches.papers.pmsvm_table2_page import MAIN, WEIGHTS
from benches.tables import Row, as_rows

TITLE = "PMSVM (NeurIPS 2025), Figures 2, 4 and 5: the gap to the same method without noise"
PROTOCOL: tuple[str, ...] = (
    "The paper plots, without numbers, accuracy at ε = ∞ minus accuracy: averaged over its data "
    "sets in Figure 2, by set in Figures 4 and 5. Smaller is better.",
    "Methods, rows and constants are chosen as in Table 2, on five of its splits.",
    "ε = 10000 stands for infinity. Our rules for C and for steps depend on ε and choose other "
    "values there.",
    "A small gap is not high accuracy: a method that is poor without noise has little to lose.",
)
GROUPS = (pmsvm_table2.OURS, pmsvm_table2.THEIRS)
DATA = tuple(f"{group}: {name}" for name in NAMES for group in GROUPS)
QUICK_DATA, QUICK_REPEATS = tuple(f"{group}: vehicle" for group in GROUPS), 1
SPLITS = 5
INFINITE = 1e4
ALONG = (*EPSILONS, INFINITE)
AVERAGE = "average"
WEIGHT, GRADIENT = "weight perturbation", "gradient perturbation"
OURS = {WEIGHTS: "ours, weights", MAIN: "ours, PrivateLinearSVC"}
# One-vs-rest methods, and those of all classes at once that the paper sets against them.
AGAINST = {
    WEIGHT: (("PrivateSVM", "OPERA"), ("PMSVM-WP",)),
    GRADIENT: (("GRPUA",), ("PMSVM-GP", "PMSVM-AGP")),
}
COLUMNS = ("data", "method", "epsilon", "split", "draw", "constants", "total", "holds", "accuracy")


def run(names: Sequence[str], splits: int | None) -> list[Row]:
    """One row a fit."""
    records: list[dict[str, object]] = []
    for label in names:
        group, name = label.split(": ")
        own = [{"data": label} | row for row in _of_group(group, name, splits or SPLITS)]
        records += own
        print(f"{label}: {len(own)} fits", flush=True)
    return as_rows({column: row.get(column) for column in COLUMNS} for row in records)


def _of_group(group: str, name: str, splits: int) -> Iterator[dict[str, object]]:
    """Our methods or the paper's on a data set, with and without noise."""
    data = pmsvm_table2.loaded(name)
    if data is None:
        return
    if group == pmsvm_table2.THEIRS:
        for method in BASELINES:
            yield from pmsvm_table2.of_baseline(method, name, data, ALONG, splits)
        return
    models = pmsvm_table2.ours(group, name) | pmsvm_table2.ours(pmsvm_table2.OURS_WEIGHTS, name)
    for row in pmsvm_table2.of_ours(
        {method: models[method] for method in OURS}, name, data, ALONG, splits
    ):
        yield row | {"method": OURS[str(row["method"])]}


def analyse(rows: Sequence[Row]) -> list[Row]:
    """The gap of every method on every data set, and its average over them."""
    named = [row | {"data": row["data"].split(": ")[1]} for row in rows]
    summary = [
        record
        for (name, method), members in cells(named, ("data", "method")).items()
        for record in _gaps(name, method, members)
    ]
    return as_rows([*summary, *_averages(summary)])


def _gaps(name: str, method: str, members: Sequence[Row]) -> Iterator[dict[str, object]]:
    """One method on one data set along epsilon."""
    found = {
        float(epsilon): {
            split: mean(float(row["accuracy"]) for row in own)
            for (split,), own in cells(at, ("split",)).items()
        }
        for (epsilon,), at in cells(members, ("epsilon",)).items()
    }
    free = found[INFINITE]
    for epsilon in EPSILONS:
        # Splits differ by more than methods: gaps are taken within them.
        gaps = [free[split] - accuracy for split, accuracy in found[epsilon].items()]
        yield {
            "data": name,
            "kind": kind_of(method),
            "method": method,
            "epsilon": epsilon,
            "splits": len(gaps),
            "noise_free": mean(free.values()),
            "gap": mean(gaps),
            "standard_error": error(gaps),
            "holds": all(row["holds"] != "False" for row in members),
        }


def kind_of(method: str) -> str:
    """Where the noise is put."""
    return GRADIENT if method in (*GRADIENT_METHODS, OURS[MAIN]) else WEIGHT


def _averages(summary: Sequence[Mapping[str, object]]) -> Iterator[dict[str, object]]:
    """Means over data sets."""
    for (kind, method, epsilon), own in cells(
        as_rows(summary), ("kind", "method", "epsilon")
    ).items():
        gaps = [float(row["gap"]) for row in own]
        yield {
            "data": AVERAGE,
            "kind": kind,
            "method": method,
            "epsilon": float(epsilon),
            "splits": None,
            "noise_free": mean(float(row["noise_free"]) for row in own),
            "gap": mean(gaps),
            "standard_error": error(gaps),
            "holds": all(row["holds"] == "True" for row in own),
        }


def failures(table: Sequence[Row]) -> list[str]:
    """Certificates that do not hold: the paper has no figure to reach."""
    return [
        f"pmsvm_figure2: {row['data']}, {row['method']} at {row['epsilon']}: no certificate"
        for row in table
        if row["holds"] != "True"
    ]


def plot(table: Sequence[Row], path: Path) -> None:
    """Gaps along epsilon: averages, then a panel for each data set."""
    names = sorted(dict.fromkeys(row["data"] for row in table), key=lambda name: name != AVERAGE)
    drawn = [_panel(name, kind, table) for kind in (WEIGHT, GRADIENT) for name in names]
    panels(path, drawn, x_label="ε", y_label="accuracy lost to noise", columns=3)


def _panel(name: str, kind: str, table: Sequence[Row]) -> Panel:
    """One data set and one kind of perturbation."""
    own = [row for row in table if (row["data"], row["kind"]) == (name, kind)]
    lines = {
        method: [(float(row["epsilon"]), float(row["gap"]), 0.0) for row in members]
        for (method,), members in cells(own, ("method",)).items()
    }
    return Panel(f"{name}, {kind.split()[0]}", lines)


def page(table: Sequence[Row]) -> str:
    """Averages by method and epsilon, and what the paper says about them."""
    averages = [row for row in table if row["data"] == AVERAGE]
    if not averages:
        return ""
    lines = [
        (method, *(_shown(at.get(f"{epsilon:g}")) for epsilon in EPSILONS), _free(own))
        for (method,), own in cells(averages, ("method",)).items()
        for at in [{row["epsilon"]: row for row in own}]
    ]
    heads = ("average gap", *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "without noise")
    said = "".join(f"- {sentence}\n" for sentence in _sentences(averages))
    means = "Means over data sets, with standard errors over them."
    return f"{grid(heads, lines)}\n\n{means}\n\n{said}"


def _shown(row: Row | None) -> str:
    """A gap with its standard error."""
    if row is None:
        return ""
    spread = f" ± {float(row['standard_error']):.3f}" if row["standard_error"] else ""
    return f"{float(row['gap']):.3f}{spread}"


def _free(own: Sequence[Row]) -> str:
    """Accuracy without noise."""
    return f"{float(own[0]['noise_free']):.3f}"


def _sentences(averages: Sequence[Row]) -> Iterator[str]:
    """The paper's statements about the averages, and how often they are true here."""
    gaps = {(row["method"], row["epsilon"]): float(row["gap"]) for row in averages}
    epsilons = list(dict.fromkeys(row["epsilon"] for row in averages))
    counts = []
    for kind, (separate, joint) in AGAINST.items():
        pairs = [
            gaps[one, epsilon] < gaps[other, epsilon]
            for one in joint
            for other in separate
            for epsilon in epsilons
            if (one, epsilon) in gaps and (other, epsilon) in gaps
        ]
        if pairs:
            counts.append(
                f"in {sum(pairs)} of {len(pairs)} comparisons with {kind} "
                f"({' and '.join(joint)} against {' and '.join(separate)})"
            )
    if counts:
        yield (
            "The paper says that models of all classes at once lose less than one-vs-rest. Here "
            f"they do {' and '.join(counts)}."
        )
    for method in OURS.values():
        own = [
            (epsilon, gaps[method, epsilon]) for epsilon in epsilons if (method, epsilon) in gaps
        ]
        best = [
            gap
            <= min(
                gaps[other, epsilon]
                for other, at in gaps
                if at == epsilon and kind_of(other) == kind_of(method)
            )
            for epsilon, gap in own
        ]
        if own:
            yield (
                f"{method[0].upper()}{method[1:]}: the smallest average gap of {kind_of(method)} "
                f"at {sum(best)} of {len(best)} values of ε."
            )


if __name__ == "__main__":
    from benches.papers.command import script

    raise SystemExit(script(__file__))
