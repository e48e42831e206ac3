"""``dpsvm-fast demo``, ``bench`` and ``audit``: commands that need no data."""

from __future__ import annotations

import math
import statistics
import textwrap
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._core import build_info
from dpsvm_fast.cli import screen as ui
from dpsvm_fast.cli.files import PLOT_SUFFIXES, checked_plot, draw, has_matplotlib, reserved
from dpsvm_fast.cli.plan import CLASSES, KERNEL, LINEAR, PLANNED, model_option, unfitted
from dpsvm_fast.cli.statement import print_statement
from dpsvm_fast.exceptions import InvalidParameterError, NotPrivateWarning
from dpsvm_fast.validation import check_n_threads, check_random_state

if TYPE_CHECKING:
    from dpsvm_fast.audit import AuditReport

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]

WIDTH = 79

threads_option = ui.option("--threads", ui.Integer(1), "Number of threads.  [default: all cores]")

# ``dpsvm-fast demo``: private models of scikit-learn's handwritten digits.


EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# Below one over the number of training rows, 1347, as is usual.
DELTA = 1e-5

STATEMENT_EPSILON = 1.0

BAR_WIDTH = 40

# Marks the noisy columns of the table.
TITLES = {
    LINEAR: "Linear SVM in a private pipeline: noisy centre, noisy gradients (PrivateLinearSVC)",
    "objective": "Smoothed Crammer-Singer SVM, noise inside its objective (objective perturbation)",
    "output": "Crammer-Singer SVM, noise on its trained weights (output perturbation)",
}
# The public range of a pixel.
PIXELS = (0.0, 16.0)


@click.command("demo", epilog=ui.example("dpsvm-fast demo --certificate certificate.json"))
@model_option(*TITLES)
@ui.option(
    "--output", ui.FILE, f"Plot file ({', '.join(PLOT_SUFFIXES)}).", default=Path("dpsvm_demo.png")
)
@ui.option("--certificate", ui.FILE, "Write the certificate of one model.")
@ui.option("--repeats", ui.Integer(1), "Number of models per epsilon.", default=10)
@ui.option("--seed", int, "Seed of the noise: NOT PRIVATE.")
@ui.option("--no-plot", "Draw nothing.", is_flag=True)
@ui.pass_screen
def demo_command(screen: ui.Screen, **options: Any) -> None:
    """Train on real digits at five values of epsilon, and without privacy.

    Prints accuracies and a privacy statement, and draws a plot.
    """
    from dpsvm_fast.plotting.displays import PrivacyUtilityDisplay, private_scores

    name, repeats = options["model"] or LINEAR, options["repeats"]
    seed, certificate = check_random_state("--seed", options["seed"]), options["certificate"]
    plot = options["output"] if has_matplotlib() and not options["no_plot"] else None
    checked_plot("--output", options["output"], needs_matplotlib=False)
    with reserved(plot, certificate, force=True) as drafts:
        (X, y), (X_test, y_test) = _digits(mapped=name != LINEAR)
        screen.say(f"scikit-learn's handwritten digits, privately\n{TITLES[name]}", style="bold")
        about = (
            f"{len(y)} training rows of {X.shape[1]} pixels, 10 classes; accuracy on {len(y_test)} "
            f"test rows; delta = {DELTA:g}. Each line is the result of {repeats} models. On "
            "private data each model would cost its own epsilon."
        )
        if seed is not None:
            about += " Seeded noise (--seed) is repeatable, so it is not private."
        screen.say(f"\n{textwrap.fill(about, WIDTH)}\n")
        bounds = PIXELS if name == LINEAR else None
        svc = unfitted(name, DELTA, classes=range(10), random_state=seed, bounds=bounds)
        with screen.progress("training", None), warnings.catch_warnings():
            # Said once, in the heading.
            warnings.simplefilter("ignore", NotPrivateWarning)
            test: dict[str, Any] = {"X_test": X_test, "y_test": y_test}
            scores = private_scores(svc, X, y, **test, epsilons=EPSILONS, n_repeats=repeats)
            statement = svc.set_params(epsilon=STATEMENT_EPSILON).fit(X, y).privacy_
            ceiling, majority = _ceiling(), float(np.bincount(y_test).max() / y_test.size)
        rows = [
            (f"{epsilon:g}", _mean(row), _bar(row.mean()))
            for epsilon, row in zip(EPSILONS, scores, strict=True)
        ]
        for reference, accuracy in (("without privacy", ceiling), ("majority class", majority)):
            rows.append((reference, f"{accuracy:.3f}", _bar(accuracy)))
        screen.table(("epsilon", "accuracy", f"0 %{'100 %':>{BAR_WIDTH - 3}}"), rows, left=3)
        screen.say(
            f"\nPrivacy statement of one more such model, at epsilon = {STATEMENT_EPSILON:g}:\n"
        )
        print_statement(screen, statement)
        display = PrivacyUtilityDisplay(
            epsilons=EPSILONS,
            scores=scores,
            non_private_score=ceiling,
            majority_score=majority,
            delta=DELTA,
        )
        for draft in drafts:
            if draft.path == plot:
                draw(draft, display.plot)
            else:
                draft.write(statement.to_json() + "\n")
    if certificate is not None:
        screen.say(f"\nCertificate: {certificate} (dpsvm-fast verify checks it)")
    if plot is not None:
        screen.say(f"\nPlot: {plot}")
    elif not options["no_plot"]:
        screen.say('\nPlot: not drawn; it needs pip install "dpsvm-fast[plot]"')
    screen.result(
        {
            "model": name,
            "delta": DELTA,
            "n_train": len(y),
            "n_test": len(y_test),
            "accuracies": [
                {"epsilon": epsilon, "mean": row.mean(), "standard_error": _error(row), "runs": row}
                for epsilon, row in zip(EPSILONS, scores, strict=True)
            ],
            "accuracy_not_private": ceiling,
            "accuracy_majority": majority,
            "statement": statement.to_dict(),
            "plot": plot,
            "certificate": certificate,
        }
    )


def _digits(*, mapped: bool) -> tuple[Rows, Rows]:
    """Return training and test rows, raw or scaled to norm 1 by the public pixel range."""
    # Slow to import, and no help text needs them.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import Normalizer

    X, y = load_digits(return_X_y=True)
    if mapped:
        # To -1..1, then every row by itself to norm 1. Neither costs budget.
        X = Normalizer().transform(2.0 * X / PIXELS[1] - 1.0)
    X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
    return (X_train, y_train), (X_test, y_test)


def _ceiling() -> float:
    """Return the test accuracy of the same kind of classifier without privacy."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    train, test = _digits(mapped=True)
    # The seed only orders the solver's coordinates.
    peer = LinearSVC(multi_class="crammer_singer", max_iter=10_000, random_state=0)
    with warnings.catch_warnings():
        # Older scikit-learn warns here whatever the number of iterations.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(peer.fit(*train).score(*test))


def _error(row: NDArray[np.float64]) -> float:
    """Return the standard error of the mean; NaN for one run."""
    return float(row.std(ddof=1)) / math.sqrt(row.size) if row.size > 1 else math.nan


def _mean(row: NDArray[np.float64]) -> str:
    """Return the mean of several runs with its standard error, as text."""
    return f"{row.mean():.3f}" + (f" +- {_error(row):.3f}" if row.size > 1 else "")


def _bar(accuracy: float) -> str:
    """Return a bar of text."""
    return "#" * round(accuracy * BAR_WIDTH)


# ``dpsvm-fast bench``: times on this machine, against scikit-learn without privacy.


DEFAULT_MODELS = ("linear", "objective", "output")
# Standard deviation of a class around its centre: some errors remain.
SPREAD = 4.0
# Seed of the rows only: the noise comes from the operating system's entropy.
SEED = 0


@click.command("bench", epilog=ui.example("dpsvm-fast bench --samples 50000 --features 100"))
@ui.option("--samples", ui.Integer(10), "Rows.", default=20_000)
@ui.option("--features", ui.Integer(1), "Features.", default=50)
@ui.option("--classes", ui.Integer(2), "Classes.", default=5)
@ui.option(
    "--model",
    "models",
    ui.OneOf(PLANNED),
    "Private estimator; may be repeated.  [default: linear, objective, output]",
    multiple=True,
    default=DEFAULT_MODELS,
    show_default=False,
)
@ui.option("--epsilon", ui.Real(0.0), "Budget.", default=1.0)
@ui.option("--delta", ui.Real(0.0), "Delta, above 0.", default=1e-6)
@ui.option("--repeats", ui.Integer(1), "Runs of each.", default=5)
@threads_option
@ui.pass_screen
def bench_command(screen: ui.Screen, **options: Any) -> None:
    """Time private training against scikit-learn's models without privacy, on this machine.

    The rows are synthetic. Fits alternate between estimators; the table shows medians.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    sizes = {name: options[name] for name in ("samples", "features", "classes")}
    budget, repeats = {name: options[name] for name in ("epsilon", "delta")}, options["repeats"]
    n_threads = check_n_threads("--threads", options["threads"])
    if sizes["classes"] > sizes["samples"]:
        raise ui.CommandError(
            f"--classes: got {sizes['classes']}, expected at most --samples, {sizes['samples']}"
        )
    train, test = blobs(**sizes)
    shared = {"classes": range(sizes["classes"]), "n_threads": n_threads, **budget}
    makers: dict[str, Callable[[], Any]] = {}
    for name in options["models"]:
        bounds = (-1.0, 1.0) if name in (LINEAR, KERNEL) else None
        makers[CLASSES[name]] = partial(unfitted, name, bounds=bounds, **shared)
    makers |= {f"{kind.__name__} (sklearn)": kind for kind in (LinearSVC, LogisticRegression)}
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in makers}
    with screen.progress("timing", repeats + 1) as advance:
        for run in range(repeats + 1):
            for name, make in makers.items():
                timed = _timed(make(), train, test, n_threads)
                # The first run warms up.
                found[name] += [timed] if run else []
            advance(run + 1)
    columns = {name: list(zip(*runs, strict=True)) for name, runs in found.items()}
    build = build_info()
    screen.result(
        {
            "threads": n_threads,
            "build": build,
            "data": sizes,
            "budget": budget,
            "repeats": repeats,
            "results": [
                {"name": name, "fit_seconds": fit, "predict_seconds": predict, "accuracy": shares}
                for name, (fit, predict, shares) in columns.items()
            ],
        }
    )
    screen.say(", ".join(f"{size} {name}" for name, size in sizes.items()), style="bold")
    built = f"dpsvm_fast {build['version']} ({build['profile']}, {build['simd']})"
    screen.say(f"{built}, {n_threads} threads\n")
    screen.table(
        ("times in ms", "fit", "min to max", "predict", "accuracy"),
        [
            (
                name,
                _ms(statistics.median(fit)),
                f"{_ms(min(fit))} to {_ms(max(fit))}",
                _ms(statistics.median(predict)),
                f"{statistics.fmean(shares):.3f}",
            )
            for name, (fit, predict, shares) in columns.items()
        ],
    )
    notes = (
        f"Median of {repeats} runs. Models of scikit-learn are not private; the others have "
        f"epsilon = {budget['epsilon']:g}, delta = {budget['delta']:g}. The problems differ: "
        "private training adds noise, and its stopping rule is not scikit-learn's default. "
        "Accuracy on synthetic rows says little about your data."
    )
    screen.say("\n" + textwrap.fill(notes, WIDTH))


def blobs(samples: int, features: int, classes: int) -> tuple[Rows, Rows]:
    """Return training and test rows: Gaussian clusters, scaled to norm 1."""
    from sklearn.datasets import make_blobs
    from sklearn.preprocessing import normalize

    sizes = {"n_features": features, "centers": classes, "cluster_std": SPREAD}
    X, y = make_blobs(2 * samples, random_state=SEED, **sizes)
    X = normalize(X)
    return (X[:samples], y[:samples]), (X[samples:], y[samples:])


def _timed(model: Any, train: Rows, test: Rows, n_threads: int) -> tuple[float, float, float]:
    """Return the seconds of a fit and of predictions, and the accuracy."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(n_threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin = time.perf_counter()
        model.fit(*train)
        fitted = time.perf_counter()
        model.predict(train[0])
        ended = time.perf_counter()
    return fitted - begin, ended - fitted, float(model.score(*test))


def _ms(seconds: float) -> str:
    """Return milliseconds with three digits."""
    return f"{1e3 * seconds:.3g}" if seconds < 0.9995 else f"{1e3 * seconds:,.0f}"


# ``dpsvm-fast audit``: certified lower bounds of epsilon against what every mechanism claims.


COLUMNS = ("mechanism", "relation", "claim", "certified", "method", "trials", "seconds")
# A line of the table: it is shown as soon as an audit is done.
LINE = "{:<30} {:<12} {:>7} {:>9}  {:<15} {:>8} {:>7}"


@click.command("audit", epilog=ui.example("dpsvm-fast audit --mechanism output --seconds 2"))
@ui.option("--seconds", ui.Real(0.0), "Time per audit.", default=10.0)
@ui.option("--trials", ui.Integer(1), "Counted runs for each data set, instead of --seconds.")
@ui.option(
    "--epsilon",
    ui.Reals(0.0),
    "Claimed epsilon; comma-separated or repeated.  [default: 1,4]",
    multiple=True,
    default=((1.0, 4.0),),
    show_default=False,
)
@ui.option("--mechanism", "Only mechanisms whose name contains WORD.", metavar="WORD")
@threads_option
@ui.pass_screen
def audit_command(screen: ui.Screen, **options: Any) -> int:
    """Try to refute the claim of every mechanism.

    Runs each mechanism on neighbouring data sets and certifies a lower bound on epsilon. A bound
    above the claim refutes it: exit code 1.
    """
    from dpsvm_fast.audit.pair_audit import audited, selected

    mechanism, trials = options["mechanism"], options["trials"]
    rows = selected(mechanism)
    if not rows:
        raise InvalidParameterError.of(
            "mechanism", got=mechanism, accepted="part of a name in the table"
        )
    epsilons = tuple(each for several in options["epsilon"] for each in several)
    how: dict[str, Any] = {"n_trials": trials} if trials else {"seconds": options["seconds"]}
    how["n_threads"] = options["threads"]
    n_audits = sum(len(row.relations) for row in rows.values()) * len(epsilons)
    found: list[tuple[str, AuditReport]] = []
    screen.say(LINE.format(*COLUMNS), style="bold")
    with screen.progress("auditing", n_audits) as advance:
        for name, report in audited(rows, epsilons, **how):
            found.append((name, report))
            ends = (f"{report.epsilon:.3f}", f"{report.certified:.3f}", report.method)
            length = (report.n_trials, f"{report.seconds:.1f}")
            line = LINE.format(name, report.adjacency, *ends, *length)
            screen.say(line + ("  REFUTED" if report.exceeds_claim else ""))
            advance(len(found))
    refuted = list(dict.fromkeys(name for name, report in found if report.exceeds_claim))
    records = [report.to_dict() | {"mechanism": name} for name, report in found]
    screen.result({"audits": records, "refuted": refuted})
    if refuted:
        screen.say(f"\nRefuted: {', '.join(refuted)}.")
        return ui.DOES_NOT_HOLD
    first = found[0][1]
    screen.say(
        f"\nNo claim is refuted, each at confidence 1 - {1.0 - first.confidence:.2g} and delta "
        f"{first.delta:g} (0 for Gamma noise).\nA lower bound does not prove privacy; the proofs "
        "do."
    )
    return ui.DONE
