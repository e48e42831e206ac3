"""The command ``dpsvm-fast``: a demonstration, noise planned ahead, certificates checked.

Exit codes: 0 success; 1 a certificate that does not hold; 2 anything that could not be done, with
one sentence on standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import (
    InvalidParameterError,
    NotPrivateWarning,
    OutputPerturbationSVC,
    __version__,
    verify,
)
from dpsvm_fast import _validation as check
from dpsvm_fast.mechanisms.output import (
    OutputPerturbation,
    automatic_C,
    automatic_intercept_scaling,
)
from dpsvm_fast.plotting import PrivacyUtilityDisplay, private_scores

__all__ = ["main"]

HOLDS, DOES_NOT_HOLD, FAILED = 0, 1, 2
INTERRUPTED = 130

DEMO_EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# Below one over the number of training rows, 1347, as is usual.
DEMO_DELTA = 1e-5
DEMO_STATEMENT_EPSILON = 1.0
DEMO_PLOT = "dpsvm_demo.png"
PLOT_SUFFIXES = (".png", ".pdf", ".svg")
BAR_WIDTH = 40
WIDTH = 88

# The z with 95 % of a standard normal variable above -z.
Z_95 = 1.6448536269514722


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str or None, default=None
        Arguments after the program's name; None takes those of the process.

    Returns
    -------
    int
        The exit code.

    Raises
    ------
    SystemExit
        After ``--help``, ``--version`` or arguments that cannot be read.
    """
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has left; Python would complain once more when it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt:
        return _failed("interrupted", INTERRUPTED)
    except (InvalidParameterError, OSError) as error:
        return _failed(str(error))
    return code


class _Parser(argparse.ArgumentParser):
    """Parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(FAILED, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> _Parser:
    """The command line."""
    parser = _Parser(
        prog="dpsvm-fast", description="Differentially private support vector machines."
    )
    parser.add_argument("--version", action="version", version=f"dpsvm-fast {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = commands.add_parser("demo", help="train on real digits at five values of epsilon")
    demo.add_argument("--output", type=Path, default=Path(DEMO_PLOT), help="the plot's file")
    demo.add_argument("--certificate", type=Path, help="file for the certificate of one model")
    demo.add_argument("--repeats", type=_at_least_one, default=10, help="models per epsilon")
    demo.add_argument("--seed", type=int, help="repeatable noise, which is not private")
    demo.add_argument("--no-plot", action="store_true", help="print only")
    demo.set_defaults(run=_demo)

    checker = commands.add_parser("verify", help="recompute the epsilon and delta of a certificate")
    checker.add_argument("certificate", type=Path, help="JSON from model.privacy_.to_json()")
    checker.set_defaults(run=_verify)

    plan = commands.add_parser("plan", help="what noise to expect, before any data are touched")
    for name, kind, text in (
        ("epsilon", float, "privacy budget"),
        ("delta", float, "privacy budget, below 1 / number of rows"),
        ("features", int, "number of features"),
        ("classes", int, "number of classes"),
    ):
        plan.add_argument(f"--{name}", type=kind, required=True, help=text)
    plan.add_argument("--samples", type=int, help="number of training rows, if it is public")
    plan.add_argument("--C", type=float, help="factor of the losses; automatic when left out")
    plan.add_argument("--adjacency", default="add_remove", choices=check.ADJACENCIES)
    plan.add_argument("--data-norm", type=float, default=1.0, help="bound of the rows' L2 norm")
    plan.set_defaults(run=_plan)
    return parser


def _at_least_one(text: str) -> int:
    """A positive integer."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {value}, expected an integer >= 1")
    return value


def _failed(sentence: str, code: int = FAILED) -> int:
    """Says on standard error what went wrong."""
    sys.stderr.write(f"dpsvm-fast: {_printable(sentence)}\n")
    return code


def _printable(text: str) -> str:
    """``text`` without control characters: a file must not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


# --- verify ---------------------------------------------------------------------------------------


def _verify(arguments: argparse.Namespace) -> int:
    """Checks a certificate's arithmetic."""
    path = arguments.certificate
    try:
        text = path.read_text(encoding="utf-8")
        json.loads(text)
    except OSError as error:
        return _failed(f"{path} cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError):
        return _failed(f"{path} cannot be read: it is not JSON text")
    result = verify(text)
    print(_printable(str(result)))
    if not result.ok:
        return DOES_NOT_HOLD
    record = json.loads(text)
    print(
        f"It promises epsilon = {record['epsilon']:g}, delta = {record['delta']:g} "
        f"({record['adjacency']}) for {record['mechanism']} with loss {record['loss']}.\n"
        "What no recomputation can tell: that the model was made this way, and that what the\n"
        "certificate assumes public was public."
    )
    return HOLDS


# --- plan -----------------------------------------------------------------------------------------


def _plan(arguments: argparse.Namespace) -> int:
    """Prints the noise that a fit with these settings will add."""
    mechanism = _planned(arguments)
    score = mechanism.scale * mechanism.row_norm
    lead = Z_95 * math.sqrt(2.0) * score
    origin = "automatic" if arguments.C is None else "given"
    print(
        f"Output perturbation, loss {mechanism.loss}, epsilon = {mechanism.epsilon:g}, "
        f"delta = {mechanism.delta:g} ({mechanism.adjacency})\n"
        f"  weights        {mechanism.n_classes} classes x ({mechanism.n_features} features + 1)"
        f" = {mechanism.n_weights}\n"
        f"  C              {mechanism.C:.6g} ({origin})\n"
        f"  sensitivity    {mechanism.sensitivity:.6g}\n"
        f"  noise          standard deviation {mechanism.scale:.6g} on every weight\n"
        f"  one score      standard deviation {score:.4g} for a row of norm "
        f"{mechanism.data_norm:g}; the loss asks for a margin of 1\n"
        f"  a decision     a lead of {lead:.4g} of one class over another survives the noise\n"
        f"                 with probability 95 %"
    )
    if arguments.samples is not None:
        largest = _largest_lead(mechanism, check.check_integer("samples", arguments.samples, 1))
        print(f"  the most       that {arguments.samples} rows can lead by: {largest:.4g}")
        if largest < lead:
            print("With so few rows the noise drowns every decision: a larger epsilon is needed.")
    return HOLDS


def _planned(arguments: argparse.Namespace) -> OutputPerturbation:
    """The mechanism that ``OutputPerturbationSVC`` builds from the same settings."""
    delta, data_norm = arguments.delta, check.check_positive("data_norm", arguments.data_norm)
    n_classes = check.check_integer("classes", arguments.classes, 2)
    n_features = check.check_integer("features", arguments.features, 1)
    shared: dict[str, Any] = {
        "epsilon": check.check_epsilon(arguments.epsilon),
        "delta": check.check_delta(delta),
        "adjacency": arguments.adjacency,
        "noise": "gaussian",
        "loss": "crammer_singer",
    }
    intercept = automatic_intercept_scaling(data_norm)
    if arguments.C is None:
        C = automatic_C(
            **shared,
            n_weights=n_classes * (n_features + 1),
            row_norm=math.hypot(data_norm, intercept),
        )
    else:
        C = check.check_positive("C", arguments.C)
    return OutputPerturbation(
        **shared,
        noise_grid="exact",
        n_classes=n_classes,
        n_features=n_features,
        data_norm=data_norm,
        intercept_scaling=intercept,
        C=C,
        tol=OutputPerturbationSVC().tol,
    )


def _largest_lead(mechanism: OutputPerturbation, n_samples: int) -> float:
    r"""Bound of ``<w_k - w_l, x>`` over all data sets of ``n_samples`` rows, before the noise.

    At the minimiser :math:`\tfrac12\|W\|^2 \le C n`, the objective at W = 0, and W is the sum of n
    gradients of norm at most :math:`C \sqrt2 \kappa_t` each; a difference of two rows of W has
    at most :math:`\sqrt2 \|W\|`.
    """
    C, norm = mechanism.C, mechanism.row_norm
    weights = min(math.sqrt(2.0 * C * n_samples), math.sqrt(2.0) * C * norm * n_samples)
    return math.sqrt(2.0) * weights * norm


# --- demo -----------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> int:
    """Accuracy of private models of scikit-learn's digits, one statement, one plot."""
    output = _checked_file("--output", arguments.output, PLOT_SUFFIXES)
    certificate = _checked_file("--certificate", arguments.certificate)
    seed = check.check_random_state(arguments.seed, "--seed")
    train, test = _digits()
    model = OutputPerturbationSVC(delta=DEMO_DELTA, classes=range(10), random_state=seed)
    print(_demo_head(train, test, arguments))
    with warnings.catch_warnings():
        # Said in the heading instead, once.
        warnings.simplefilter("ignore", NotPrivateWarning)
        scores = private_scores(
            model,
            *train,
            X_test=test[0],
            y_test=test[1],
            epsilons=DEMO_EPSILONS,
            n_repeats=arguments.repeats,
        )
        model.set_params(epsilon=DEMO_STATEMENT_EPSILON).fit(*train)
    ceiling = _non_private_score(train, test)
    print(_table(scores, ceiling))
    print(f"\nWhat one more such model promises, at epsilon = {DEMO_STATEMENT_EPSILON:g}:\n")
    print(model.privacy_)
    if certificate is not None:
        certificate.write_text(model.privacy_.to_json() + "\n", encoding="utf-8")
        print(f"\nCertificate: {certificate} (dpsvm-fast verify checks it)")
    if output is not None and not arguments.no_plot:
        display = PrivacyUtilityDisplay(
            epsilons=DEMO_EPSILONS, scores=scores, non_private_score=ceiling, delta=DEMO_DELTA
        )
        print(f"\nPlot: {_saved(display, output)}")
    return HOLDS


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


Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


def _digits() -> tuple[Rows, Rows]:
    """Training and test rows of norm 1, by maps that know only the public range of a pixel."""
    # Slow to import, and no other command needs them.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.preprocessing import Normalizer

    X, y = load_digits(return_X_y=True)
    # Pixels are 0..16: to -1..1, then every row by itself to norm 1. Neither costs budget.
    X = Normalizer().transform(X / 8.0 - 1.0)
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
        f"on {test[0].shape[0]} test rows; delta = {DEMO_DELTA:g}. Each line: "
        f"{_models(arguments.repeats)}, a demonstration and not one budget: on private data "
        "every model would cost its own epsilon."
    )
    if arguments.seed is not None:
        text += " Seeded noise (--seed) is repeatable and therefore not private."
    title = "Differentially private Crammer-Singer SVM on scikit-learn's handwritten digits"
    return f"{title}\n\n{textwrap.fill(text, WIDTH)}\n"


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
    for epsilon, row in zip(DEMO_EPSILONS, scores, strict=True):
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
