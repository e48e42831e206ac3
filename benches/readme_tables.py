"""Tables of the documentation beside those of ``report``: functions of stored summaries alone.

``pages`` says on which page each of them stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benches.papers import budgets as papers_budgets
from benches.papers import kernel as papers_kernel
from benches.papers import maps as papers_maps
from benches.papers import scores
from benches.papers.cells import cells, grid, shown
from benches.tables import Row

# Of FedDPDR's tasks and dimensions those that are shown.
REDUCTION_TASKS, REDUCTION_DIMENSION = ("even or odd", "ten digits"), "20"
REDUCTION_METHODS = {
    "PrivatePCA, PrivateLinearSVC": "`PrivatePCA`, `PrivateLinearSVC`, one ledger",
    "DPDR-DPML": "halves of ε, pure objective perturbation, as in the paper",
    "DPML": "the same second step with all of ε, no reduction",
    "PrivateLinearSVC": "`PrivateLinearSVC`, no reduction",
}
# Methods on the nested balls, by what they are called, and numbers of points that are shown.
BALLS = {
    "PrivateKernelSVC, δ = 0": "`PrivateKernelSVC`, δ = 0",
    "PrivateKernelSVC, δ = 0, the paper's gamma": "the same with the paper's `gamma`",
    "PrivateKernelSVC, δ = 1e-5": "`PrivateKernelSVC`, δ = 1e-5",
    "PrivateLinearSVC, δ = 0": "`PrivateLinearSVC`, δ = 0",
    "not private": "not private, features of the same kernel",
    "Algorithm 2": "the paper's private kernel machine, noise corrected",
}
BALLS_SIZES = ("60000", "240000")
TASKS = {
    "features": "`RandomFourierFeatures`, 2000 features",
    "components": "`PrivatePCA`, at most 20 components, calibration and noise included",
    "scales": "`PrivateStandardScaler`, the same",
}

# Models and how they came about, of those in the summary of searches, by what they are called.
SEARCHES = {
    ("linear", "default"): "`PrivateLinearSVC`, defaults",
    ("linear", "partition, refit 0.8"): "searched over mechanism and margin, partition",
    ("linear", "poisson"): "the same, random stopping",
    ("kernel", "default"): "`PrivateKernelSVC`, defaults",
    ("kernel", "partition, refit 0.5"): "searched over kernel and gamma, partition",
    ("output", "C = 1"): "`OutputPerturbationSVC`, `C=1`",
    ("output", "default"): '`OutputPerturbationSVC`, `C="auto"`',
    ("output", "partition, refit 0.8"): "searched over C, partition",
    ("output", "poisson"): "the same, random stopping",
}

# Of the settings of many users those that are shown: setting, users, epsilon, and their heading.
AVERAGED = {
    ("points", "10", "1"): "10 users, ε = 1",
    ("points", "100", "0.5885"): "100 users, ε = 0.5885",
    ("points", "1000", "0.1"): "1,000 users, ε = 0.1",
    ("points", "1000", "0.5885"): "1,000 users, ε = 0.5885",
    ("points", "1000", "2"): "1,000 users, ε = 2",
    ("spread", "10", "0.5885"): "10 users with 5,000, ε = 0.5885",
    ("one class", "1000", "1.172"): "1,000 users of one class each, ε = 1.172",
}
ONE_CLASS = next(reversed(AVERAGED))
AVERAGED_DATA, ONE_OWNER = "mnist", "PrivateLinearSVC, one curator"
LEARNERS = {
    "SVM_SGD": '`local="svm_sgd"`, as in the paper',
    "Softmax_SLP_SGD": '`local="softmax_slp_sgd"`, as in the paper',
    "exact softmax": '`local="exact"`',
    "DP-FL": "federated gradient descent, with the paper's constants",
    ONE_OWNER: "`PrivateLinearSVC` on all rows, one trusted owner",
}
# Uneven parties: the task that is shown, and its methods.
UNEVEN_TASK = "3 or 8"
UNEVEN = {
    "FedDPDR-DPML": "five parties, two rounds, second moments in the first",
    "FedDPDR-DPML, projectors": "projectors instead",
    "FedDPDR-DPML, eigenvectors": "eigenvectors instead",
    "FedDPDR-DPML, blind averaging": "one noise for all models",
    "DPDR-DPML, mean of parties": "the same two steps by each party alone, mean",
    "DPDR-DPML, largest party": "by the largest party alone",
    "PrivateLinearSVC, largest party": "`PrivateLinearSVC`, largest party alone",
    "PrivateLinearSVC, one curator": "`PrivateLinearSVC`, one owner of all rows",
    "Non-Priv": "not private, all rows",
}

Summaries = Mapping[str, Sequence[Row]]


def kernel(found: Summaries) -> str:
    """Measures by data set and epsilon, and what kernels gain where the rule takes one."""
    table = [row for row in found["papers_kernel"] if row["model"] != papers_kernel.LINEAR]
    gains = [float(row["gain"]) for row in table if row["kernel"] not in ("", "linear")]
    private = sum(bool(row["epsilon"]) for row in table)
    note = (
        f"{scores.counted(table)} Bold: the rule chose a kernel ({len(gains)} of {private} "
        "cells); in parentheses its gain over `PrivateLinearSVC` on the same splits, "
        f"{min(gains):+.3f} to {max(gains):+.3f}. "
        "[How it was measured](benches/README.md#accuracy-papers)."
    )
    told = scores.by_epsilon(table, papers_kernel.cell, head="accuracy")
    timed = [row for row in found["papers_kernel_timing"] if row["model"] == "kernel"]
    parts = [told, note, scores.compact(table)]
    return "\n\n".join([*parts, *(["\n".join(_kernel_times(timed))] if timed else [])])


def _kernel_times(timed: Sequence[Row]) -> list[str]:
    """Whole fits of MNIST."""
    lines = grid(
        ("MNIST, 60,000 rows, ε = 1, 2 threads", "", "memory beyond X", "test accuracy"),
        (
            (
                f"{row['storage']}, `low_memory={_value(row['low_memory'])}`",
                f"{float(row['seconds']):.1f} s",
                f"{float(row['peak_beyond_x_mb']):.0f} MB",
                f"{float(row['accuracy']):.3f}",
            )
            for row in timed
        ),
    )
    features = float(timed[0]["features_mb"])
    return [lines, "", f"The features of all rows take {features:.0f} MB."]


def _value(text: str) -> str:
    """A parameter as it is typed."""
    return text if text in ("True", "False") else f'"{text}"'


def balls(found: Summaries) -> str:
    """Errors on the nested balls."""
    table = [
        row
        for row in found["papers_scm_figure1"]
        if (row["data"], row["curve"]) == ("balls", "rows") and row["n"] in BALLS_SIZES
    ]
    errors = {(row["method"], row["n"]): f"{float(row['error']):.4f}" for row in table}
    rows = [
        (label, *(errors.get((method, n), "") for n in BALLS_SIZES))
        for method, label in BALLS.items()
    ]
    printed = {row["n"]: row["paper"] for row in table if row["method"] == "Algorithm 2"}
    rows.append(("the same as printed", *(printed.get(n, "") for n in BALLS_SIZES)))
    best = f"{float(table[0]['bayes']):.4f}"
    rows.append(("Bayes error", *(best for _ in BALLS_SIZES)))
    return grid(("error", *(f"{int(n):,} points" for n in BALLS_SIZES)), rows)


def reduction(found: Summaries) -> str:
    """Accuracy behind private components, by epsilon."""
    table = found["papers_feddpdr_figure3"]
    epsilons = sorted({row["epsilon"] for row in table if row["epsilon"]}, key=float)
    rows = []
    for task in REDUCTION_TASKS:
        own = [row for row in table if row["data"] == task]
        for method, label in REDUCTION_METHODS.items():
            shown = {
                row["epsilon"]: f"{float(row['accuracy']):.3f}"
                for row in own
                if row["method"] == method
            }
            rows.append((f"{task}: {label}", *(shown.get(epsilon, "") for epsilon in epsilons)))
    lines = grid(("", *(f"ε = {epsilon}" for epsilon in epsilons)), rows)
    exact = {row["data"]: float(row["accuracy"]) for row in table if row["method"] == "Non-Priv"}
    reached = ", ".join(f"{task} {exact[task]:.3f}" for task in REDUCTION_TASKS)
    note = f"Not private, with {REDUCTION_DIMENSION} components: {reached}."
    timed = [row for row in found["papers_feddpdr_table3"] if row["method"] in REDUCTION_METHODS]
    if timed:
        slowest = max(float(row["slowest"]) for row in timed)
        paper = next(row["paper_seconds"] for row in timed if row["method"] == "DPDR-DPML")
        note += (
            f" The slowest of these fits took {slowest:.2f} s; the paper's, with reduction, "
            f"{float(paper):.0f} s on another machine."
        )
    return "\n".join([lines, "", note])


def ellipsoids(found: Summaries) -> str:
    """Ellipsoids beside the linear model, bold where they help."""
    table = found["papers_lmgc"]
    epsilons = sorted({row["epsilon"] for row in table}, key=float)
    cells = {(row["data"], row["epsilon"]): _ellipsoid_cell(row) for row in table}
    rows = []
    for data in dict.fromkeys(row["data"] for row in table):
        first = next(row for row in table if row["data"] == data)
        limits = " / ".join(
            f"{float(first[name]):.3f}" for name in ("not_private", "not_private_linear")
        )
        rows.append((data, *(cells.get((data, epsilon), "") for epsilon in epsilons), limits))
    lines = grid(("", *(f"ε = {epsilon}" for epsilon in epsilons), "not private"), rows)
    helped = sum(row["helps"] == "yes" for row in table)
    harmed = sum(row["helps"] == "no" for row in table)
    other = [float(row["ellipsoids_huber_ww"]) - float(row["ellipsoids"]) for row in table]
    return "\n".join(
        [
            lines,
            "",
            "Ellipsoids / `PrivateLinearSVC`, same budget and splits. Bold: ellipsoids are better "
            f"by more than two standard errors ({helped} of {len(table)} cells; worse by as much "
            f"in {harmed}). "
            f'With `loss="huber_ww"`: {min(other):+.3f} to {max(other):+.3f}. '
            "[How it was measured](benches/README.md#accuracy-papers).",
        ]
    )


def _ellipsoid_cell(row: Row) -> str:
    """Both accuracies."""
    own, linear = (f"{float(row[name]):.3f}" for name in ("ellipsoids", "linear"))
    return f"**{own}** / {linear}" if row["helps"] == "yes" else f"{own} / {linear}"


def maps(found: Summaries) -> str:
    """Public maps of rows beside the rows, and what all of MNIST costs."""
    table = found["papers_maps"]

    def label(row: Row) -> str:
        return f"{row['data']}, {row['model']}"

    told = scores.by_epsilon(table, scores.gained, label, "accuracy")
    note = (
        f"{scores.counted(table)} In parentheses: gain over rows on the same splits. "
        "[How it was measured](benches/README.md#accuracy-papers)."
    )
    reached = [
        f"`{row['model']}` {scores.one(row, digits=4)}"
        for row in table
        if (row["data"], row["epsilon"]) == ("mnist", "3") and row["model"] != papers_maps.ROWS
    ]
    best = (
        f"MNIST at ε = 3: {', '.join(reached)}. The best published without public data is 0.987 "
        "(ScatterNet and a linear model, Tramèr and Boneh, ICLR 2021)."
    )
    timed = [
        f"Training on MNIST's 60,000 rows ({row['storage']}, ε = 1, two threads), map included, "
        f"takes {float(row['seconds']):.1f} s ({float(row['cpu_seconds']):.1f} s of CPU time) and "
        f"{float(row['peak_beyond_x_mb']):.0f} MB beyond X. Test accuracy: "
        f"{float(row['accuracy']):.3f}."
        for row in found["papers_kernel_timing"]
        if row["model"] == "images"
    ]
    return "\n\n".join(
        [told, note, *([best] if reached else []), scores.compact(table, label), *timed]
    )


def transformers(found: Summaries) -> str:
    """Times beside scikit-learn's."""
    shapes: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in found["transformers"]:
        place = tuple(row[name] for name in ("task", "n_samples", "n_features", "dtype"))
        ours = row["library"] == "dpsvm_fast"
        shapes.setdefault(place, {})[row["n_threads"] if ours else "theirs"] = row
    return grid(
        ("", "rows", "1 thread", "2 threads", "scikit-learn, 1 thread"),
        (
            (
                TASKS[task],
                f"{int(n):,} x {d}, {dtype}",
                *(_timed(own[threads]) for threads in ("1", "2")),
                f"{float(own['theirs']['ms']):.3g} ms",
            )
            for (task, n, d, dtype), own in sorted(
                shapes.items(),
                key=lambda item: (list(TASKS).index(item[0][0]), int(item[0][2]), item[0][3]),
            )
        ),
    )


def _timed(row: Row) -> str:
    """How many times as fast, and the time."""
    return f"**{float(row['faster']):.1f}\u00d7** ({float(row['ms']):.3g} ms)"


def tuning(found: Summaries) -> str:
    """Accuracy of searches beside models that were not searched for, at the same total epsilon."""
    table = [row for row in found["papers_tuning"] if row["epsilon"]]
    cells = {(r["data"], r["model"], r["how"], r["epsilon"]): r["accuracy"] for r in table}
    names = list(dict.fromkeys(row["data"] for row in table))
    epsilons = sorted({row["epsilon"] for row in table}, key=float)
    lines = grid(
        ("", *(f"{name}, ε = {epsilon}" for name in names for epsilon in epsilons)),
        (
            (
                label,
                *(
                    f"{float(cells[name, model, how, epsilon]):.3f}"
                    for name in names
                    for epsilon in epsilons
                ),
            )
            for (model, how), label in SEARCHES.items()
        ),
    )
    searched = [row for row in table if row["how"] not in ("default", "C = 1")]
    better = sum(float(row["gain"]) > 2.0 * float(row["gain_error"]) for row in searched)
    worse = sum(float(row["gain"]) < -2.0 * float(row["gain_error"]) for row in searched)
    return "\n".join(
        [
            lines,
            "",
            f"Of {len(searched)} search results, {better} are above the defaults and {worse} below "
            "by more than two standard errors of the paired difference "
            "([all results](results.md#private-searches-compared-with-the-defaults)).",
        ]
    )


def averaged(found: Summaries) -> str:
    """Accuracy of blind averages by number of users and epsilon."""
    rows = [
        (row["method"], row["setting"], row["users"], row["epsilon"], row["accuracy"])
        for row in found["papers_helmet_figure3"]
        if row["data"].startswith(AVERAGED_DATA)
    ]
    # Who has all rows in one place has them for any number of users: measured for one.
    rows += [
        (method, setting, users, epsilon, accuracy)
        for method, setting, one, epsilon, accuracy in rows
        for _, users, _ in AVERAGED
        if (method, setting, one) == (ONE_OWNER, "spread", "1")
    ]
    rows += [
        (row["method"], *ONE_CLASS, row["accuracy"])
        for row in found["papers_helmet_table2"]
        if row["data"] == AVERAGED_DATA and row["multiplier"] == "1"
    ]
    cells = {tuple(place): f"{float(accuracy):.3f}" for *place, accuracy in rows}
    measured = {method for method, *_ in cells}
    lines = [
        (label, *(cells.get((method, *place), "") for place in AVERAGED))
        for method, label in LEARNERS.items()
        if method in measured
    ]
    return grid(("", *AVERAGED.values()), lines)


def uneven(found: Summaries) -> str:
    """Accuracy of two rounds over uneven parties, beside parties alone."""
    table = [row for row in found["papers_feddpdr_figure5"] if row["data"] == UNEVEN_TASK]
    places = list(dict.fromkeys((row["sizes"], row["epsilon"]) for row in table))
    cells = {
        (row["method"], row["sizes"], row["epsilon"]): f"{float(row['accuracy']):.3f}"
        for row in table
    }
    measured = {row["method"] for row in table}
    rows = [
        (label, *(cells.get((method, *place), "") for place in places))
        for method, label in UNEVEN.items()
        if method in measured
    ]
    heads = (f"{sizes}, ε = {epsilon}" for sizes, epsilon in places)
    return grid(("", *heads), rows)


def persons(found: Summaries) -> str:
    """Accuracy on rows of other persons, by how the rows are dealt to persons and method."""
    rows = [row for row in found["persons"] if row["epsilon"] == "1"]
    more = [row for row in found["persons"] if row["epsilon"] != "1"]
    lines = by_method(rows, ("data", "kind", "persons"), ("data", "rows per person", "persons"))
    others = ", ".join(f"{shown(row)} at ε = {row['epsilon']}" for row in more)
    told = f'With more budget, "as they are" reaches {others}. ' if more else ""
    return (
        f"{lines}\n\n{told}Means of {rows[0]['fits']} runs with their standard errors, by "
        "`python -m benches.persons`, which also fills these tables."
    )


def linear_budgets(found: Summaries) -> str:
    """The linear model along nine budgets."""
    return papers_budgets.along(found["papers_budgets"], papers_budgets.LINEAR)


def kernel_budgets(found: Summaries) -> str:
    """The kernel model at large budgets."""
    return papers_budgets.along(found["papers_budgets"], papers_budgets.KERNEL)


def class_weights(found: Summaries) -> str:
    """Mean accuracy of the classes, with weights of classes and without."""
    heads = ("data", "share of the rarest class")
    rows = [row | {"rarest": f"{float(row['rarest']):.1%}"} for row in found["class_weights"]]
    return by_method(rows, ("data", "rarest"), heads)


def rare_classes(found: Summaries) -> str:
    """Four measures of a class with few rows against the others."""
    lines = [
        (
            row["data"],
            f"{row['method']}, ε = {row['epsilon']}" if row["epsilon"] else row["method"],
            shown(row),
            *(
                shown({"accuracy": row[one], "standard_error": row[f"{one}_error"]})
                for one in ("balanced_accuracy", "auroc", "log_loss")
            ),
        )
        for row in found["rare_classes"]
    ]
    heads = ("data", "model", "accuracy", "balanced accuracy", "AUROC", "log-loss")
    return grid(heads, lines)


def by_method(rows: Sequence[Row], names: Sequence[str], heads: Sequence[str]) -> str:
    """A line for each place, a column for each method."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    lines = (
        (*place, *(shown(row) for row in members)) for place, members in cells(rows, names).items()
    )
    return grid((*heads, *(f"`{m}`" if m.endswith("=") else m for m in methods)), lines)
