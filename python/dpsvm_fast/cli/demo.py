"""``dpsvm-fast demo``: private models of scikit-learn's handwritten digits."""

from __future__ import annotations

import math
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import validation as check
from dpsvm_fast.cli.files import PLOT_SUFFIXES, Draft, draw, has_matplotlib, reserved
from dpsvm_fast.cli.plan import LINEAR, estimator_class, model_option
from dpsvm_fast.cli.screen import FILE, Screen, Whole, example, pass_screen
from dpsvm_fast.cli.statement import tell
from dpsvm_fast.exceptions import InvalidParameterError, NotPrivateWarning
from dpsvm_fast.plotting.displays import PrivacyUtilityDisplay, private_scores

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# Below one over the number of training rows, 1347, as is usual.
DELTA = 1e-5

STATEMENT_EPSILON = 1.0

DEMO_PLOT = "dpsvm_demo.png"

BAR_WIDTH = 40

WIDTH = 88

# What is noisy, for whoever reads the table.
TITLES = {
    LINEAR: "Linear SVM in a private pipeline: noisy centre, noisy gradients (PrivateLinearSVC)",
    "objective": "Smoothed Crammer-Singer SVM, noise inside its objective (objective perturbation)",
    "output": "Crammer-Singer SVM, noise on its trained weights (output perturbation)",
}

OTHER = {
    LINEAR: "One noise instead of a pipeline, less accurate: --model objective or output.",
    "objective": "The whole private pipeline instead, more accurate: --model linear.",
    "output": "The whole private pipeline instead, more accurate: --model linear.",
}
# The public range of a pixel.
PIXELS = (0.0, 16.0)

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


class Shown(NamedTuple):
    """Results of the models."""

    scores: NDArray[np.float64]
    ceiling: float
    statement: Any


@click.command("demo", epilog=example("dpsvm-fast demo --certificate certificate.json"))
@model_option(*TITLES)
@click.option(
    "--output",
    type=FILE,
    default=Path(DEMO_PLOT),
    show_default=True,
    help=f"The plot ({', '.join(PLOT_SUFFIXES)}).",
)
@click.option("--certificate", type=FILE, help="Write the certificate of one model.")
@click.option(
    "--repeats", type=Whole(1), default=10, show_default=True, help="Models for each epsilon."
)
@click.option("--seed", type=int, help="Repeatable noise, which is not private.")
@click.option("--no-plot", is_flag=True, help="Draw nothing.")
@pass_screen
def demo_command(
    screen: Screen,
    *,
    model: str | None,
    output: Path,
    certificate: Path | None,
    repeats: int,
    seed: int | None,
    no_plot: bool,
) -> None:
    """Train on real digits at five values of epsilon, beside a model without privacy.

    Prints accuracies and one privacy statement, and draws them.
    """
    name = model or LINEAR
    seed = check.check_random_state(seed, "--seed")
    if output.suffix.lower() not in PLOT_SUFFIXES:
        accepted = f"a file name ending in {', '.join(PLOT_SUFFIXES)}"
        raise InvalidParameterError.of("--output", got=output.name, accepted=accepted)
    plot = None if no_plot or not has_matplotlib() else output
    with reserved(plot, certificate, force=True) as drafts:
        train, test = _digits(mapped=name != LINEAR)
        screen.say(_title(name), style="bold")
        screen.say(_head(name, train, test, repeats, seed))
        with screen.progress("training", None):
            shown = _shown(_model(name, seed), train, test, repeats)
        _tell(screen, shown)
        _write(drafts, plot, certificate, shown)
    if certificate is not None:
        screen.say(f"\nCertificate: {certificate} (dpsvm-fast verify checks it)")
    if plot is not None:
        screen.say(f"\nPlot: {plot}")
    elif not no_plot:
        screen.say('\nPlot: not drawn; pip install "dpsvm-fast[plot]" installs matplotlib')
    files = {"plot": plot, "certificate": certificate}
    paths = {kind: None if path is None else str(path) for kind, path in files.items()}
    screen.result(_record(name, shown, train, test) | paths)


def _shown(model: Any, train: Rows, test: Rows, repeats: int) -> Shown:
    """Train every model."""
    with warnings.catch_warnings():
        # Said in the heading instead, once.
        warnings.simplefilter("ignore", NotPrivateWarning)
        scores = private_scores(
            model,
            *train,
            X_test=test[0],
            y_test=test[1],
            epsilons=EPSILONS,
            n_repeats=repeats,
        )
        model.set_params(epsilon=STATEMENT_EPSILON).fit(*train)
    return Shown(scores, _non_private_score(*_digits(mapped=True)), model.privacy_)


def _tell(screen: Screen, shown: Shown) -> None:
    """Print the table and the statement."""
    screen.say(_table(shown.scores, shown.ceiling))
    screen.say(f"\nWhat one more such model promises, at epsilon = {STATEMENT_EPSILON:g}:\n")
    tell(screen, shown.statement)


def _write(drafts: list[Draft], plot: Path | None, certificate: Path | None, shown: Shown) -> None:
    """Write the files that were asked for."""
    for draft in drafts:
        if draft.path == plot:
            draw(draft, lambda ax: _plot(shown, ax))
        elif draft.path == certificate:
            draft.draft.write_text(shown.statement.to_json() + "\n", encoding="utf-8")
            draft.publish()


def _plot(shown: Shown, ax: Any) -> None:
    """Draw accuracies against epsilon."""
    display = PrivacyUtilityDisplay(
        epsilons=EPSILONS, scores=shown.scores, non_private_score=shown.ceiling, delta=DELTA
    )
    display.plot(ax=ax)
    ax.set(title="Private SVM on handwritten digits", ylim=(0.0, 1.02))


def _record(name: str, shown: Shown, train: Rows, test: Rows) -> dict[str, Any]:
    """The JSON object."""
    return {
        "model": name,
        "delta": DELTA,
        "n_train": train[0].shape[0],
        "n_test": test[0].shape[0],
        "accuracies": [
            {"epsilon": epsilon, "mean": row.mean(), "standard_error": _error(row), "runs": row}
            for epsilon, row in zip(EPSILONS, shown.scores, strict=True)
        ],
        "accuracy_not_private": shown.ceiling,
        "statement": shown.statement.to_dict(),
    }


def _model(name: str, seed: int | None) -> Any:
    """The estimator to be shown."""
    shared: dict[str, Any] = {"delta": DELTA, "classes": range(10), "random_state": seed}
    if name == LINEAR:
        shared["bounds"] = PIXELS
    return estimator_class(name)(**shared)


def _digits(*, mapped: bool) -> tuple[Rows, Rows]:
    """Training and test rows: raw ones, or of norm 1 by maps that know the range of a pixel."""
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


def _non_private_score(train: Rows, test: Rows) -> float:
    """Test accuracy of the same kind of classifier without privacy."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    # The seed only orders the solver's coordinates.
    peer = LinearSVC(multi_class="crammer_singer", max_iter=10_000, random_state=0)
    with warnings.catch_warnings():
        # Older scikit-learn warns here whatever the number of iterations.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(peer.fit(*train).score(*test))


def _title(name: str) -> str:
    """What the table shows."""
    return f"scikit-learn's handwritten digits, privately\n{TITLES[name]}"


def _head(name: str, train: Rows, test: Rows, repeats: int, seed: int | None) -> str:
    """How the table came about."""
    text = (
        f"{train[0].shape[0]} training rows of {train[0].shape[1]} pixels, 10 classes; accuracy "
        f"on {test[0].shape[0]} test rows; delta = {DELTA:g}. Each line: "
        f"{_models(repeats)}, a demonstration and not one budget: on private data "
        "every model would cost its own epsilon."
    )
    if seed is not None:
        text += " Seeded noise (--seed) is repeatable and therefore not private."
    return f"\n{textwrap.fill(f'{text} {OTHER[name]}', WIDTH)}\n"


def _models(repeats: int) -> str:
    """What one line of the table summarises."""
    if repeats == 1:
        return "one model"
    return f"mean and standard error of {repeats} models trained anew"


def _error(row: NDArray[np.float64]) -> float:
    """Standard error of the mean; NaN of one run."""
    return float(row.std(ddof=1)) / math.sqrt(row.size) if row.size > 1 else math.nan


def _table(scores: NDArray[np.float64], ceiling: float) -> str:
    """One line for every epsilon and one for the model without privacy."""
    rich = _can_print("±█")
    plus_minus, block = ("±", "█") if rich else ("+-", "#")
    several = scores.shape[1] > 1
    lines = [f"{'epsilon':>11}   {'accuracy':<{14 if rich else 15}}  0 %{'100 %':>{BAR_WIDTH - 3}}"]
    for epsilon, row in zip(EPSILONS, scores, strict=True):
        shown = f"{row.mean():.3f} {plus_minus} {_error(row):.3f}" if several else f"{row[0]:.3f}"
        lines.append(f"{epsilon:>11g}   {shown:<14}  {_bar(row.mean(), block)}")
    lines.append(f"{'not private':>11}   {ceiling:<14.3f}  {_bar(ceiling, block)}")
    return "\n".join(lines)


def _bar(accuracy: float, block: str) -> str:
    """A bar of text."""
    return block * round(accuracy * BAR_WIDTH)


def _can_print(text: str) -> bool:
    """Whether standard output can encode ``text``."""
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
