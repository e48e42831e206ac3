"""The command ``dpsvm-fast``: a demonstration, noise planned ahead, certificates, audits.

Exit codes: 0 success; 1 a certificate that does not hold or a claim that an audit refutes; 2
anything that could not be done, with one sentence on standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from dpsvm_fast import InvalidParameterError, __version__, verify
from dpsvm_fast import _validation as check
from dpsvm_fast._demo import DEMO_PLOT, MECHANISMS, PIPELINE, demonstrate
from dpsvm_fast._linear_plan import describe_pipeline, largest_lead, planned_pipeline
from dpsvm_fast.audit import _command as audit_command
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms._projected_sgd import loss_at_zero
from dpsvm_fast.mechanisms._weight_noise import WeightNoise
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import OutputPerturbation

__all__ = ["main"]

KERNELS = ("auto", "rbf", "laplacian", "linear")
HOLDS, DOES_NOT_HOLD, FAILED = 0, 1, 2
INTERRUPTED = 130

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
    _add_mechanism(demo)
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
    _add_mechanism(plan)
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
    plan.add_argument(
        "--kernel",
        nargs="?",
        const="auto",
        choices=KERNELS,
        help="plan PrivateKernelSVC; alone: what its rule would choose",
    )
    plan.add_argument("--data-norm", type=float, default=1.0, help="bound of the rows' L2 norm")
    plan.set_defaults(run=_plan)

    auditor = commands.add_parser("audit", help="try to refute what every mechanism claims")
    audit_command.add_arguments(auditor)
    return parser


def _add_mechanism(command: argparse.ArgumentParser) -> None:
    """Where the noise goes."""
    command.add_argument(
        "--mechanism",
        default=PIPELINE,
        choices=(PIPELINE, *MECHANISMS),
        help="the whole private pipeline (default, most accurate), or an estimator with noise "
        "inside its objective or on its trained weights",
    )


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
        record = json.loads(text)
    except OSError as error:
        return _failed(f"{path} cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        return _failed(f"{path} cannot be read: {_not_json(error)}")
    result = verify(text)
    print(_printable(str(result)))
    if not result.ok:
        print(_advice(record, unread=result.epsilon is None))
        return DOES_NOT_HOLD
    print(
        f"It promises epsilon = {record['epsilon']:g}, delta = {record['delta']:g} "
        f"({record['adjacency']}) for {_subject(record)}.\n"
        "What no recomputation can tell: that the model was made this way, and that what the\n"
        "certificate assumes public was public."
    )
    return HOLDS


def _not_json(error: Exception) -> str:
    """Why a file is no JSON text, and what to do."""
    ended = isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip())
    if ended and error.doc.strip():  # type: ignore[attr-defined]
        return "its JSON text ends too early; copy or download the whole file again"
    return "it is not JSON text; expected a file with what model.privacy_.to_json() returns"


def _advice(record: Any, *, unread: bool) -> str:
    """What to do about a certificate that does not hold."""
    name = record.get("format") if isinstance(record, dict) else None
    if not (isinstance(name, str) and name.startswith("dpsvm_fast.")):
        return (
            "This is no certificate of dpsvm_fast: expected what model.privacy_.to_json() returns."
        )
    if unread:
        return (
            "It could not be read. Ask whoever made the model for the certificate as it was\n"
            "written, or install the release of dpsvm_fast that wrote it, and verify again."
        )
    return (
        "Do not rely on it. Ask whoever made the model for the certificate as it was written;\n"
        "a release that is not private says so in not_private_reasons."
    )


def _subject(record: dict[str, Any]) -> str:
    """What a certificate is about."""
    if "steps" in record:
        return f"a pipeline of {len(record['steps'])} steps"
    if "candidates" in record:
        return f"a search over {len(record['candidates'])} candidates"
    if "rounds" in record:
        return f"{record['algorithm']} across {record['n_users']} parties"
    return f"{record['mechanism']} with loss {record['loss']}"


# --- plan -----------------------------------------------------------------------------------------


def _plan(arguments: argparse.Namespace) -> int:
    """Prints the noise that a fit with these settings will add."""
    if arguments.mechanism == PIPELINE:
        return _plan_pipeline(arguments)
    if arguments.kernel is not None:
        raise InvalidParameterError.of(
            "kernel", got=arguments.kernel, accepted=f"none but with --mechanism {PIPELINE}"
        )
    mechanism = _planned(arguments)
    inside = isinstance(mechanism, ObjectivePerturbation)
    loss = mechanism.score_loss
    print(
        f"{'Objective' if inside else 'Output'} perturbation, loss {loss.name}, "
        f"epsilon = {mechanism.epsilon:g}, delta = {mechanism.delta:g} ({mechanism.adjacency})\n"
        f"  weights        {loss.n_scores} score{'s'[: loss.n_scores - 1]} x "
        f"({mechanism.n_features} features + 1)"
        f" = {mechanism.n_weights}"
    )
    print("\n".join(_facts(mechanism, "automatic" if arguments.C is None else "given")))
    deviation = _weight_deviation(mechanism) * mechanism.row_norm
    lead = _print_decisions(loss, deviation, mechanism.data_norm, bound=inside)
    if arguments.samples is not None:
        n_samples = check.check_integer("samples", arguments.samples, 1)
        _print_largest(_largest_lead(mechanism, n_samples), lead, n_samples)
    return HOLDS


def _plan_pipeline(arguments: argparse.Namespace) -> int:
    """Prints what the whole private pipeline would choose."""
    n_samples = arguments.samples
    if n_samples is not None:
        n_samples = check.check_integer("samples", n_samples, 1)
    mechanism = planned_pipeline(arguments)
    print("\n".join(describe_pipeline(mechanism, n_samples)))
    if n_samples is None:
        return HOLDS
    training = mechanism.training(float(n_samples))
    if training.rule is not None:
        # Rows have norm 1, the constant feature included.
        lead = _print_decisions(mechanism.loss, training.rule.deviation, 1.0, bound=True)
        _print_largest(largest_lead(training.rule, n_samples), lead, n_samples)
    elif training.solver is not None:
        solver = training.solver
        print("\n".join(_facts(solver, "automatic")))
        deviation = _weight_deviation(solver) * solver.row_norm
        lead = _print_decisions(solver.score_loss, deviation, solver.data_norm, bound=True)
        _print_largest(_largest_lead(solver, n_samples), lead, n_samples)
    return HOLDS


def _print_decisions(loss: Loss, score: float, data_norm: float, *, bound: bool) -> float:
    """Prints what noise of this size in a score means; returns the lead that survives it."""
    # Scores of two classes have independent noise; one score for both is itself the lead.
    lead = Z_95 * score * (math.sqrt(2.0) if loss.n_scores > 1 else 1.0)
    asked = (
        f"the loss asks for a margin of {loss.margin:g}"
        if loss.margin
        else f"the loss has temperature {loss.temperature:g}, no margin"
    )
    print(
        f"  one score      standard deviation {'at most ' if bound else ''}{score:.4g} for a row "
        f"of norm {data_norm:g}; {asked}\n"
        f"  a decision     a lead of {lead:.4g} of one class over another survives the noise\n"
        f"                 with probability {'at least ' if bound else ''}95 %"
    )
    return lead


def _print_largest(largest: float, lead: float, n_samples: int) -> None:
    """Prints what rows can do against the noise."""
    print(f"  the most       that {n_samples} rows can lead by: {largest:.4g}")
    if largest < lead:
        print("With so few rows the noise drowns every decision: a larger epsilon is needed.")


def _planned(arguments: argparse.Namespace) -> ObjectivePerturbation | OutputPerturbation:
    """The mechanism that the estimator builds from the same settings."""
    n_classes = check.check_integer("classes", arguments.classes, 2)
    n_features = check.check_integer("features", arguments.features, 1)
    estimator = MECHANISMS[arguments.mechanism](
        epsilon=arguments.epsilon,
        delta=arguments.delta,
        adjacency=arguments.adjacency,
        data_norm=arguments.data_norm,
        C="auto" if arguments.C is None else arguments.C,
        classes=range(n_classes),
    )
    mechanism: ObjectivePerturbation | OutputPerturbation = estimator._mechanism(
        estimator._checked_parameters(), n_classes, n_features
    )
    return mechanism


def _facts(mechanism: ObjectivePerturbation | OutputPerturbation, origin_of_C: str) -> list[str]:
    """What determines the noise."""
    if isinstance(mechanism, ObjectivePerturbation):
        return _inside(mechanism)
    return [
        f"  C              {mechanism.C:.6g} ({origin_of_C})",
        f"  sensitivity    {mechanism.sensitivity:.6g}",
        f"  noise          standard deviation {mechanism.scale:.6g} on every weight",
    ]


def _inside(mechanism: ObjectivePerturbation) -> list[str]:
    """What determines the noise in the objective."""
    origin = "automatic" if mechanism.C is None else "1 / C"
    if mechanism.C is not None and mechanism.inside.record.extra_regularization > 0.0:
        origin = f"1 / C = {1.0 / mechanism.C:.6g}, the rest for the sake of privacy"
    inside, released = mechanism.inside.deviation, _released_deviation(mechanism.output)
    return [
        f"  lambda         {mechanism.regularization:.6g} ({origin})",
        f"  noise          standard deviation {inside:.6g} on every component of the linear term",
        f"                 and {released:.3g} on every weight for the solver's tolerance",
        f"  one weight     standard deviation at most {_weight_deviation(mechanism):.6g};"
        " usually less the more rows there are",
    ]


def _weight_deviation(mechanism: ObjectivePerturbation | OutputPerturbation) -> float:
    r"""Standard deviation of a released weight over the noise, or a bound of it.

    With noise B in the objective the minimiser W(B) moves by at most :math:`\|dB\|/\lambda`: any
    coordinate of it is a function of Gaussians with that Lipschitz constant, of which neither the
    standard deviation nor the tails beyond the median are larger than those of a linear one.
    """
    if isinstance(mechanism, OutputPerturbation):
        return mechanism.scale
    inside = mechanism.inside.deviation / mechanism.regularization
    return math.hypot(inside, _released_deviation(mechanism.output))


def _released_deviation(noise: WeightNoise) -> float:
    """Standard deviation of Gaussian noise, or the root mean square of Gamma noise in a weight."""
    return noise.scale if noise.noise == "gaussian" else noise.deviation


def _largest_lead(mechanism: ObjectivePerturbation | OutputPerturbation, n_samples: int) -> float:
    r"""Bound of the lead of one class over another, over all data sets, before the noise.

    At the minimiser :math:`\tfrac{\lambda}{2} \|W\|^2 \le n \phi(0)`, the objective at W = 0, and
    :math:`\lambda W` is the sum of n gradients of norm at most :math:`L \kappa_t` each; a
    difference of two rows of W has at most :math:`\sqrt2 \|W\|`.
    """
    loss, norm, n = mechanism.score_loss, mechanism.row_norm, n_samples
    at_zero = 1.0 if loss.name == "crammer_singer" else loss_at_zero(loss)
    lam = mechanism.regularization
    weights = min(math.sqrt(2.0 * n * at_zero / lam), n * loss.lipschitz * norm / lam)
    return (math.sqrt(2.0) if loss.n_scores > 1 else 1.0) * weights * norm


# --- demo -----------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> int:
    """Trains private models of real digits and shows what came out."""
    demonstrate(arguments)
    return HOLDS
