"""The demonstration of the command line: private models of scikit-learn's handwritten digits."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _validation as check
from dpsvm_fast.estimators import (
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.exceptions import InvalidParameterError, NotPrivateWarning
from dpsvm_fast.plotting import PrivacyUtilityDisplay, private_scores

__all__ = ["BAR_WIDTH", "DEMO_PLOT", "MECHANISMS", "PIPELINE", "demonstrate"]

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# Below one over the number of training rows, 1347, as is usual.
DELTA = 1e-5
STATEMENT_EPSILON = 1.0
DEMO_PLOT = "dpsvm_demo.png"
PLOT_SUFFIXES = (".png", ".pdf", ".svg")
BAR_WIDTH = 40
WIDTH = 88

# The whole private pipeline, and estimators that are told how to treat rows.
PIPELINE = "auto"
MECHANISMS = {"objective": ObjectivePerturbationSVC, "output": OutputPerturbationSVC}
# What is noisy, for whoever reads the table.
TITLES = {
    "auto": "Linear SVM in a private pipeline: noisy centre, noisy gradients (PrivateLinearSVC)",
    "objective": "Smoothed Crammer-Singer SVM, noise inside its objective (objective perturbation)",
    "output": "Crammer-Singer SVM, noise on its trained weights (output perturbation)",
}
OTHER = {
    "auto": "One noise instead of a pipeline, less accurate: --mechanism objective or output.",
    "objective": "The whole private pipeline instead, more accurate: --mechanism auto.",
    "output": "The whole private pipeline instead, more accurate: --mechanism auto.",
}
# The public range of a pixel.
PIXELS = (0.0, 16.0)


def demonstrate(arguments: argparse.Namespace) -> None:
    """Print the accuracy of private models and one statement, and draw one plot.

    Parameters
    ----------
    arguments : Namespace
        ``mechanism``, ``output``, ``certificate``, ``repeats``, ``seed`` and ``no_plot``.

    Raises
    ------
    InvalidParameterError
        A file that cannot be written or a seed out of range, before any model is trained.
    OSError
        Writing failed.
    """
    output = _checked_file("--output", arguments.output, PLOT_SUFFIXES)
    certificate = _checked_file("--certificate", arguments.certificate)
    seed = check.check_random_state(arguments.seed, "--seed")
    train, test = _digits(mapped=arguments.mechanism != PIPELINE)
    model = _model(arguments.mechanism, seed)
    print(_demo_head(train, test, arguments))
    with warnings.catch_warnings():
        # Said in the heading instead, once.
        warnings.simplefilter("ignore", NotPrivateWarning)
        scores = private_scores(
            model,
            *train,
            X_test=test[0],
            y_test=test[1],
            epsilons=EPSILONS,
            n_repeats=arguments.repeats,
        )
        model.set_params(epsilon=STATEMENT_EPSILON).fit(*train)
    ceiling = _non_private_score(*_digits(mapped=True))
    print(_table(scores, ceiling))
    print(f"\nWhat one more such model promises, at epsilon = {STATEMENT_EPSILON:g}:\n")
    print(model.privacy_)
    if certificate is not None:
        certificate.write_text(model.privacy_.to_json() + "\n", encoding="utf-8")
        print(f"\nCertificate: {certificate} (dpsvm-fast verify checks it)")
    if output is not None and not arguments.no_plot:
        display = PrivacyUtilityDisplay(
            epsilons=EPSILONS, scores=scores, non_private_score=ceiling, delta=DELTA
        )
        print(f"\nPlot: {_saved(display, output)}")


def _checked_file(name: str, path: Path | None, suffixes: tuple[str, ...] = ()) -> Path | None:
    """An absolute path that can be written to, as far as can be told before the work is done."""
    if path is None:
        return None
    path = path.absolute()
    if not path.parent.is_dir():
        raise InvalidParameterError(f"{name}: the folder {path.parent} does not exist")
    if suffixes and path.suffix.lower() not in suffixes:
        raise InvalidParameterError.of(
            name, got=path.name, accepted=f"a file name ending in {', '.join(suffixes)}"
        )
    return path


def _model(mechanism: str, seed: int | None) -> Any:
    """The estimator to be shown."""
    shared: dict[str, Any] = {"delta": DELTA, "classes": range(10), "random_state": seed}
    if mechanism == PIPELINE:
        return PrivateLinearSVC(bounds=PIXELS, **shared)
    return MECHANISMS[mechanism](**shared)


Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def _digits(*, mapped: bool) -> tuple[Rows, Rows]:
    """Training and test rows: raw ones, or of norm 1 by maps that know the range of a pixel."""
    # Slow to import, and no other command needs them.
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


def _demo_head(train: Rows, test: Rows, arguments: argparse.Namespace) -> str:
    """What the table shows."""
    text = (
        f"{train[0].shape[0]} training rows of {train[0].shape[1]} pixels, 10 classes; accuracy "
        f"on {test[0].shape[0]} test rows; delta = {DELTA:g}. Each line: "
        f"{_models(arguments.repeats)}, a demonstration and not one budget: on private data "
        "every model would cost its own epsilon."
    )
    if arguments.seed is not None:
        text += " Seeded noise (--seed) is repeatable and therefore not private."
    title = f"scikit-learn's handwritten digits, privately\n{TITLES[arguments.mechanism]}"
    return f"{title}\n\n{textwrap.fill(f'{text} {OTHER[arguments.mechanism]}', WIDTH)}\n"


def _models(repeats: int) -> str:
    """What one line of the table summarises."""
    if repeats == 1:
        return "one model"
    return f"mean and standard error of {repeats} models trained anew"


def _table(scores: NDArray[np.float64], ceiling: float) -> str:
    """One line for every epsilon and one for the model without privacy."""
    rich = _can_print("±█")
    plus_minus, block = ("±", "█") if rich else ("+-", "#")
    n_repeats = scores.shape[1]
    lines = [f"{'epsilon':>11}   {'accuracy':<{14 if rich else 15}}  0 %{'100 %':>{BAR_WIDTH - 3}}"]
    for epsilon, row in zip(EPSILONS, scores, strict=True):
        error = row.std(ddof=1) / math.sqrt(n_repeats) if n_repeats > 1 else math.nan
        shown = f"{row.mean():.3f} {plus_minus} {error:.3f}" if n_repeats > 1 else f"{row[0]:.3f}"
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


def _saved(display: PrivacyUtilityDisplay, output: Path) -> str:
    """Path of the drawn plot, or how to get one."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "not drawn; pip install dpsvm-fast[plot] installs matplotlib"
    # Not through pyplot: nothing may open a window.
    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    display.plot(ax=figure.subplots())
    display.ax_.set(title="Private SVM on handwritten digits", ylim=(0.0, 1.02))
    figure.savefig(output, dpi=150)
    return str(output)
