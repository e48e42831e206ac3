"""Recompute the promise of a certificate from its numbers alone.

Deliberately shares no numerical code with the calibrations that made the promise, and has its own
table of the losses.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpsvm_fast.accounting._descent import descent_sensitivity
from dpsvm_fast.accounting._event_verify import recomputed_events
from dpsvm_fast.accounting._federated_verify import check_federated
from dpsvm_fast.accounting._gaussian_check import gaussian_delta, gaussian_epsilon
from dpsvm_fast.accounting._model_verify import Comparison, model_document
from dpsvm_fast.accounting._objective_verify import (
    EXCESS,
    check_objective,
    follows,
    lipschitz_of,
    objective_event_matches,
    objective_share,
    scores_of,
)
from dpsvm_fast.accounting._parts_verify import (
    PARTS,
    check_parts,
    reserved_problems,
    weight_events,
)
from dpsvm_fast.accounting._selection_verify import check_selection
from dpsvm_fast.accounting._verification import (
    NO_ARITHMETIC,
    TOO_MUCH_WORK,
    UNDECIDED,
    Verification,
)
from dpsvm_fast.accounting._work_check import TooMuchWorkError, limited_work
from dpsvm_fast.accounting.certificates import Statement, read_loosely
from dpsvm_fast.accounting.events import GaussianEvent, PrivacyEvent, PureEvent
from dpsvm_fast.accounting.federated_statement import FederatedStatement
from dpsvm_fast.accounting.pipeline import PipelineStatement
from dpsvm_fast.accounting.selection import SelectionStatement
from dpsvm_fast.accounting.statement import (
    Descent,
    Noise,
    PrivacyStatement,
    Sensitivity,
)
from dpsvm_fast.accounting.words import stated

__all__ = ["Verification", "verify"]

RELATION_FACTOR = {"add_remove": 1, "replace_one": 2}

# The recomputation rounds to nearest and the promise rounded outward; both stay far within these.
DELTA_SLACK = 1e-9
EPSILON_SLACK = 1e-12
# Most releases of weights by one fit.
WEIGHT_RELEASES = 8
MECHANISMS = ("output_perturbation", "objective_perturbation", *PARTS)


def verify(
    certificate: Mapping[str, Any] | str | Statement,
    *,
    model: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    key: bytes | None = None,
) -> Verification:
    """Check that the promise of a certificate follows from the numbers in it.

    Parameters
    ----------
    certificate : PrivacyStatement, PipelineStatement, SelectionStatement, FederatedStatement, \
dict or str
        A statement, its ``to_dict()`` or its ``to_json()``; or what
        :func:`dpsvm_fast.io.save_certificate` wrote.
    model : path, mapping or None, default=None
        File that ``save_model`` wrote, or what it holds: certificate and model are compared,
        release by release. ``matches`` of the result says what is the same.
    key : bytes or None, default=None
        Secret that a certificate with the digest of a model was signed with.

    Returns
    -------
    Verification
        False for anything that cannot be read: another version, unknown fields, not private. Also
        false where the check does not compose so much (``undecided``): more than eight losses that
        are known as curves, such as those of noise in objectives, or work of more than about half a
        minute, far beyond what fits write.

    Raises
    ------
    TypeError
        An argument of another type.
    InvalidParameterError
        ``model`` is no file that ``save_model`` wrote, or was changed after that.
    OSError
        It cannot be read.

    Notes
    -----
    Guarantees: a certificate that passes states an epsilon and a delta which follow, by the
    theorems it names, from its own sensitivity and noise. Every word in it follows from its
    numbers or is in ``stated``, which nobody checked. What no recomputation can show is said at the
    end of ``str(verify(...))``.

    Examples
    --------
    >>> from dpsvm_fast.accounting import verify
    >>> print(verify("{}"))
    The certificate does NOT hold.
      - format: got None, expected 'dpsvm_fast.certificate'
    """
    if not isinstance(certificate, (str, Mapping, Statement)):
        raise TypeError(
            f"certificate: got {type(certificate).__name__}, expected a PrivacyStatement, a dict "
            "or a JSON string"
        )
    document = None if model is None else model_document(model)
    try:
        statement, record, bound = read_loosely(certificate)
        words = statement.word_problems(record)
    except (TypeError, ValueError) as error:
        return Verification(ok=False, problems=(str(error),), epsilon=None, delta=None)
    try:
        with limited_work(), np.errstate(all="ignore"):
            if isinstance(statement, PipelineStatement):
                found = _verify_pipeline(statement)
            else:
                found = _verify_step(statement)
    except TooMuchWorkError:
        problems = (TOO_MUCH_WORK,)
        found = Verification(ok=False, problems=problems, epsilon=None, delta=None, undecided=True)
    except (ArithmeticError, IndexError, ValueError):
        # Of numbers that no fit writes: what they overflow, or leave empty, cannot be listed.
        return Verification(ok=False, problems=(NO_ARITHMETIC,), epsilon=None, delta=None)
    compared = Comparison()
    compared.seal(bound, document, key)
    if document is not None:
        compared.model(statement, record, document["model"])
    found = replace(
        found,
        matches=tuple(compared.matches),
        stated=(*(f"not compared: {text}" for text in compared.unchecked), *found.stated),
    )
    wrong = (*words, *compared.problems)
    if not wrong:
        return found
    known = () if found.undecided else found.problems
    return replace(found, ok=False, undecided=False, problems=(*wrong, *known))


def _verify_statement(statement: PrivacyStatement) -> Verification:
    """One release."""
    problems = [*_standing(statement), *_loss_problems(statement), *check_parts(statement)]
    s, noise = statement.sensitivity, statement.noise
    if s is not None and noise is not None:
        problems += _sensitivity_problems(statement, s, noise)
        problems += check_objective(statement, s, noise)
        problems += _event_problems(statement, s, noise)
        problems += reserved_problems(statement)
    elif len(statement.events) > len(statement.parts):
        problems.append("there are more events than noisy sums")
    return _outcome(statement, problems, *_recomputed(statement))


def _verify_pipeline(whole: PipelineStatement) -> Verification:
    """Several releases: each by itself, and what they add up to."""
    problems = [f"not private: {reason}" for reason in whole.not_private_reasons]
    for step in whole.steps:
        if step.statement is not None:
            found = _verify_step(step.statement)
            # What cannot be told of one of them cannot be told of all together either.
            own = () if found.undecided else found.problems
            problems += [f"{step.title}: {problem}" for problem in own]
    # Each statement's events say what its numbers say; together they are the whole.
    recomputed = recomputed_events(whole.events, whole.epsilon, whole.delta)
    return _outcome(whole, problems, *recomputed)


def _verify_step(
    statement: PrivacyStatement | SelectionStatement | FederatedStatement,
) -> Verification:
    """One of several releases."""
    if isinstance(statement, SelectionStatement):
        return _verify_selection(statement)
    if isinstance(statement, FederatedStatement):
        return _verify_federated(statement)
    return _verify_statement(statement)


def _verify_selection(search: SelectionStatement) -> Verification:
    """A search: its choice by itself, and all its events together."""
    recomputed = recomputed_events(search.events, search.epsilon, search.delta)
    return _outcome(search, check_selection(search), *recomputed)


def _verify_federated(trained: FederatedStatement) -> Verification:
    """Training across parties: its sums by themselves, and all its events together."""
    recomputed = recomputed_events(trained.events, trained.epsilon, trained.delta)
    return _outcome(trained, check_federated(trained), *recomputed)


def _outcome(
    claim: Statement,
    problems: list[str],
    epsilon: float,
    delta: float,
    holds: bool | None,  # noqa: FBT001 - the last of three recomputed values
) -> Verification:
    """All problems, that of the claim last."""
    if holds is None and not problems:
        return Verification(
            ok=False, problems=(UNDECIDED,), epsilon=None, delta=None, undecided=True
        )
    if holds is not None and not holds:
        problems = [
            *problems,
            f"the noise does not give epsilon = {claim.epsilon!r} with delta = {claim.delta!r}",
        ]
    return Verification(
        ok=not problems,
        problems=tuple(problems),
        epsilon=epsilon,
        delta=delta,
        stated=stated(claim),
    )


def _standing(statement: PrivacyStatement) -> list[str]:
    """Reasons for which the numbers do not matter."""
    problems = [f"not private: {reason}" for reason in statement.not_private_reasons]
    if statement.random_source != "operating_system":
        problems.append("the noise does not come from the operating system's entropy")
    if statement.mechanism not in MECHANISMS:
        problems.append(f"unknown mechanism {statement.mechanism!r}")
    elif statement.mechanism == "gaussian_margin":
        # Noisy sums are there where a class has several ellipsoids.
        if statement.objective is None:
            problems.append("gaussian_margin has no noise in the objective")
    elif statement.mechanism in ("private_linear", "private_kernel"):
        # Trained by noisy sums, or by one of the two mechanisms that have noise on the weights.
        if (statement.noise is None) != any(part.name == "training" for part in statement.parts):
            problems.append("expected either noisy sums for training or noise on the weights")
    elif (statement.mechanism == "objective_perturbation") != (statement.objective is not None):
        problems.append("noise in the objective belongs to objective_perturbation alone")
    elif (statement.mechanism in PARTS) != (statement.noise is None):
        problems.append(f"noise on the weights does not belong to {statement.mechanism}")
    return problems


def _loss_problems(statement: PrivacyStatement) -> list[str]:
    """Whether there is a loss where something was trained, and none where nothing was."""
    trained = statement.noise is not None or any(p.name == "training" for p in statement.parts)
    known = statement.loss == "none" or lipschitz_of(statement.loss, 2) is not None
    if known and trained == (statement.loss != "none"):
        return []
    return [f"loss {statement.loss!r} of what was {'' if trained else 'not '}trained"]


def _sensitivity_problems(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> list[str]:
    """Numbers of the sensitivity that do not follow from the ones before them."""
    lipschitz = lipschitz_of(statement.loss, scores_of(statement, noise.shape[0]))
    if lipschitz is None:
        return [f"unknown loss {statement.loss!r}"]
    problems = []
    if s.relation_factor != RELATION_FACTOR[statement.adjacency]:
        problems.append(f"relation_factor is not that of {statement.adjacency}")
    # Each from the certificate's own earlier numbers, so one lie is reported once.
    problems += follows("lipschitz", s.lipschitz, lipschitz)
    problems += follows("row_norm", s.row_norm, math.hypot(s.data_norm, s.intercept_scaling))
    if statement.descent is not None:
        problems += _descent_problems(statement, statement.descent, s, noise)
    elif statement.objective is None:
        exact = s.relation_factor * s.C * s.lipschitz * s.row_norm
        problems += follows("exact", s.exact, exact)
    elif s.exact != 0.0:
        problems.append("exact is not 0, the distance of minimisers that coincide")
    problems += follows("rounding", s.rounding, _rounding(noise))
    problems += follows("total", s.total, s.exact + 2.0 * s.solver_radius + s.rounding)
    if noise.grid is not None and math.frexp(noise.grid)[0] != 0.5:
        problems.append("grid is not a power of two")
    return problems


def _descent_problems(
    statement: PrivacyStatement, descent: Descent, s: Sensitivity, noise: Noise
) -> list[str]:
    """Whether projected SGD was within the reach of its theorem, and moves no further."""
    problems = follows("exact", s.exact, descent_sensitivity(s, descent, noise.shape[0]))
    if statement.adjacency != "replace_one":
        problems.append("projected SGD is private for replace_one only")
    if statement.loss == "crammer_singer":
        problems.append("projected SGD needs a smooth loss")
    if statement.objective is not None:
        problems.append("projected SGD does not minimise an objective with noise inside")
    return problems


def _rounding(noise: Noise) -> float:
    """How far rounding to the grid can move two sets of weights apart, before the noise."""
    if noise.sampler != "exact_grid" or noise.grid is None:
        return 0.0
    return noise.grid * math.sqrt(noise.n_weights)


def _event_problems(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> list[str]:
    """Compare: the events must say what the noises say: they are what ledgers were charged."""
    events, objective = weight_events(statement), statement.objective
    # Behind noisy sums weights may be released several times, always with the same noise.
    most = WEIGHT_RELEASES if statement.parts and objective is None else 1
    if not 1 <= len(events) <= most:
        return [f"{len(events)} events for the weights, expected 1 to {most}"]
    if any(event.adjacency != statement.adjacency for event in statement.events):
        return ["an event is of another neighbouring relation"]
    matches = all(_event_matches(statement, s, noise, event) for event in events)
    if objective is not None:
        inside = statement.events[len(statement.parts)]
        matches = matches and objective_event_matches(statement, objective, inside)
    return [] if matches else ["the events do not describe the noise"]


def _event_matches(
    statement: PrivacyStatement, s: Sensitivity, noise: Noise, event: PrivacyEvent
) -> bool:
    """Whether an event says what the noise added to the weights says."""
    if noise.distribution == "gaussian":
        return (
            isinstance(event, GaussianEvent)
            and event.sigma == noise.sigma
            and event.sensitivity == s.total
        )
    return (
        isinstance(event, PureEvent)
        and _pure_epsilon(s, noise) <= event.epsilon * (1.0 + EPSILON_SLACK)
        and event.epsilon <= _pure_epsilon(s, noise) * (1.0 + EXCESS)
        and event.epsilon <= statement.epsilon
    )


def _recomputed(statement: PrivacyStatement) -> tuple[float, float, bool | None]:
    """Epsilon at the claimed delta, delta at the claimed epsilon, and whether the claim holds."""
    objective = statement.objective
    share, holds = ((0.0, 0.0), True)
    if objective is not None:
        share, holds = objective_share(statement, objective)
    s, noise = statement.sensitivity, statement.noise
    if statement.parts or s is None or noise is None:
        epsilon, delta, both = recomputed_events(
            statement.events, statement.epsilon, statement.delta
        )
        return epsilon, delta, both if holds else False
    return _of_weights(statement, s, noise, share, holds=holds)


def _of_weights(
    statement: PrivacyStatement,
    s: Sensitivity,
    noise: Noise,
    first: tuple[float, float],
    *,
    holds: bool,
) -> tuple[float, float, bool]:
    """The same without noisy sums.

    With noise in the objective, epsilon and delta are the sums over the two noises, each at its own
    share of the budget: what the noise in the objective does not claim is left to the other one.
    """
    epsilon, delta, objective = statement.epsilon, statement.delta, statement.objective
    if objective is not None:
        epsilon, delta = epsilon - objective.epsilon, delta - objective.delta
    if noise.sigma is None:
        second = _pure_epsilon(s, noise)
        holds = holds and second <= epsilon + EPSILON_SLACK * statement.epsilon
        return first[0] + second, first[1] + (0.0 if holds else 1.0), holds
    if not (epsilon > 0.0 and delta > 0.0):
        return math.inf, 1.0, False
    mu = s.total / noise.sigma
    second_delta = gaussian_delta(epsilon, mu)
    holds = holds and second_delta <= delta * (1.0 + DELTA_SLACK)
    return first[0] + gaussian_epsilon(delta, mu), min(1.0, first[1] + second_delta), holds


def _pure_epsilon(s: Sensitivity, noise: Noise) -> float:
    """Epsilon of noise with density ~ exp(-beta ||b||)."""
    return math.inf if noise.beta is None else noise.beta * s.total
