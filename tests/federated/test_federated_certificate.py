"""What training across parties promises: read, written, verified, refused; forgeries are found out.

Certificates here are made from formulas of the tests' own (oracles/federated_statements.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from dpsvm_fast import total_privacy
from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.certificates import (
    DistanceEvent,
    FederatedStatement,
    GaussianEvent,
    ObjectiveEvent,
    PipelineStatement,
    PipelineStep,
    SecureRound,
    ZCDPEvent,
)
from dpsvm_fast.certificates.words import summed_over_parties
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated import simulate
from dpsvm_fast.federated.classifier import statement_of
from dpsvm_fast.verification import verify
from dpsvm_fast.verification.losses import zcdp_delta
from oracles.federated_statements import FEDERATED, document, federated_statement
from oracles.parties import helmet
from oracles.tampering import places, replaced

QUICK = [kind for kind in FEDERATED if not kind.startswith("dpdr objective")]

every_kind = pytest.mark.parametrize("kind", FEDERATED)


@every_kind
def test_a_true_certificate_holds_and_is_read_as_it_was_written(kind: str) -> None:
    statement = federated_statement(kind)
    assert FederatedStatement.from_json(statement.to_json()) == statement
    outcome = verify(statement)
    assert outcome, outcome
    assert outcome.epsilon == pytest.approx(1.5, rel=1e-3)
    for name in ("epsilon", "delta"):
        assert not verify(document(kind) | {name: 0.98 * getattr(statement, name)})
    # The promise is that of the events, and not a round number above it.
    assert composed_delta(statement.events, 1.5) <= statement.delta < 1.001 * outcome.delta


@every_kind
def test_events_are_those_of_the_sums_and_of_the_parties(kind: str) -> None:
    statement = federated_statement(kind)
    rounds = statement.rounds
    kinds = [type(event) for event in statement.events]
    assert kinds[: 2 * len(rounds)] == [GaussianEvent, DistanceEvent] * len(rounds)
    assert statement.events[2 * len(rounds) :] == statement.local_events
    for part, event in zip(rounds, statement.sent_events, strict=False):
        assert isinstance(event, ZCDPEvent)
        ratio = part.total / (part.grid * part.sigma_steps)
        assert event.rho == pytest.approx(0.5 * ratio**2)
        exact = sum(map(Fraction, (part.discreteness, part.overflow, part.computational)))
        assert exact <= Fraction(part.distance) <= exact * (1 + Fraction(1, 2**50))


def test_caveats_belong_to_the_kind_of_trust() -> None:
    secure, trusted = (federated_statement(kind) for kind in ("helmet", "helmet curator"))
    assert {"passive_server", "computational"} <= set(secure.uncovered)
    assert "trusted_curator" in trusted.uncovered
    assert not {"passive_server", "computational"} & set(trusted.uncovered)
    for made in (secure, trusted):
        assert ("sizes_of_parties" in made.uncovered) == (made.weighting == "records")


# --- what is refused when it is made --------------------------------------------------------------

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("helmet", {"threshold": None}, "threshold"),
    ("helmet curator", {"threshold": 12}, "threshold"),
    ("helmet", {"delta": 0.0}, "delta"),
    ("helmet", {"epsilon": math.inf}, "epsilon"),
    ("helmet", {"adjacency": "add_remove"}, "adjacency"),
    ("helmet", {"rounds": ()}, "rounds|sensitivity|local_epsilon"),
    ("helmet", {"sensitivity": None}, "sensitivity"),
    ("helmet", {"n_scores": None}, "n_scores"),
    ("helmet", {"n_users": 2**18 + 1}, "n_users"),
    ("helmet", {"honest_fraction": 0.0}, "honest_fraction"),
    ("helmet", {"max_dropout": 1.0}, "max_dropout"),
    ("helmet", {"local_epsilon": 201.0}, "local_epsilon"),
    ("dpdr own noise", {"local_epsilon": 1.0}, "local_epsilon"),
    ("dpdr own noise", {"local_events": ()}, "rounds"),
    ("dpdr own noise", {"local_events": (GaussianEvent(8.0, 1.0, "add_remove"),)}, "relation"),
]


@pytest.mark.parametrize(("kind", "changes", "match"), WRONG)
def test_a_statement_that_contradicts_itself_is_refused(
    kind: str, changes: dict[str, Any], match: str
) -> None:
    with pytest.raises(InvalidParameterError, match=match):
        replace(federated_statement(kind), **changes)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"name": "sum"}, "name"),
        ({"clip_norm": 1.0}, "clip_norm"),
        ({"sigma_steps": 2**25}, "sigma_steps"),
        ({"smoothing": 0.5}, "smoothing"),
        ({"smoothing": 2.0**16}, "smoothing"),
        ({"discreteness": 0.5, "overflow": 0.5}, "distances"),
        ({"discreteness": 0.0, "overflow": 0.0, "computational": 0.0}, "distances"),
        ({"range_steps": 2**29 + 1}, "range_steps"),
        ({"honest_survivors": 0}, "honest_survivors"),
        ({"grid": math.nan}, "grid"),
    ],
)
def test_a_sum_that_contradicts_itself_is_refused(changes: dict[str, Any], match: str) -> None:
    part = federated_statement("helmet").rounds[0]
    with pytest.raises(InvalidParameterError, match=match):
        replace(part, **changes)


# --- forgeries ------------------------------------------------------------------------------------


def restated(statement: FederatedStatement, **changes: Any) -> FederatedStatement:
    """A statement with changes, whose totals are made to fit again."""
    found = replace(statement, **changes)
    found = replace(found, delta=composed_delta(found.events, found.epsilon) * (1.0 + 1e-12))
    if found.rounds:
        own = composed_epsilon(found.sent_events, found.delta)
        found = replace(found, local_epsilon=own if own <= 200.0 else None)
    return found


def with_round(statement: FederatedStatement, **changes: Any) -> FederatedStatement:
    """The first sum changed; totals made to fit again."""
    part = replace(statement.rounds[0], **changes)
    return restated(statement, rounds=(part, *statement.rounds[1:]))


def noise_of(part: SecureRound, h: int) -> float:
    """Standard deviation that h noises would give."""
    square = h * part.sigma_steps**2 - part.smoothing**2
    return part.grid * math.sqrt(square) * (1.0 - 1e-15)


def all_survive(s: FederatedStatement) -> FederatedStatement:
    """Noise of all parties counted, drop-outs and colluders forgotten."""
    part = s.rounds[0]
    changes = {"honest_survivors": s.n_users, "sigma": noise_of(part, s.n_users)}
    return restated(s, honest_survivors=s.n_users, rounds=(replace(part, **changes), *s.rounds[1:]))


def drop_outs_forgotten(s: FederatedStatement) -> FederatedStatement:
    """t U noises counted although some of these parties may drop out."""
    honest = math.ceil(s.honest_fraction * s.n_users)
    part = s.rounds[0]
    changes = {"honest_survivors": honest, "sigma": noise_of(part, honest)}
    return restated(s, honest_survivors=honest, rounds=(replace(part, **changes), *s.rounds[1:]))


def a_record_for_a_user(s: FederatedStatement) -> FederatedStatement:
    """The sensitivity of one row under a promise for all rows of a party."""
    return restated(s, unit="party")


def a_person_like_a_row(s: FederatedStatement) -> FederatedStatement:
    """The matrix of one row, which is not rounded, under a promise for a person."""
    return restated(s, unit="person")


def weights_forgotten(s: FederatedStatement) -> FederatedStatement:
    """Models weighted by records, sensitivity of unweighted ones."""
    what = summed_over_parties("model", "records")
    return restated(s, weighting="records", rounds=(replace(s.rounds[0], what=what),))


def no_sqrt_two(s: FederatedStatement) -> FederatedStatement:
    """A matrix of products: sqrt 2 forgotten."""
    part = s.rounds[0]
    exact = part.exact / math.sqrt(2.0)
    return with_round(s, exact=exact, total=math.nextafter(exact + part.rounding, math.inf))


def no_smoothing(s: FederatedStatement) -> FederatedStatement:
    """Discrete noise taken for Gaussian noise of its own variance, 16 steps of one party."""
    part = s.rounds[0]
    sigma = part.grid * part.sigma_steps * math.sqrt(part.honest_survivors)
    return with_round(s, sigma=sigma)


def no_distance(s: FederatedStatement) -> FederatedStatement:
    """Discreteness that is not that of a smoothing of one step."""
    part = s.rounds[0]
    square = part.honest_survivors * part.sigma_steps**2 - 1.0
    return with_round(s, smoothing=1.0, sigma=part.grid * math.sqrt(square) * (1.0 - 1e-15))


def a_range_too_small(s: FederatedStatement) -> FederatedStatement:
    """Contributions that need not fit, whose size nobody counted."""
    return with_round(s, range_steps=1)


def noise_beyond_the_range(s: FederatedStatement) -> FederatedStatement:
    """Contributions that leave no room for noise."""
    return with_round(s, range_steps=2**29 - 2**16)


def unbreakable(s: FederatedStatement) -> FederatedStatement:
    """Cryptography that nobody can break."""
    return with_round(s, computational=0.0)


def a_low_threshold(s: FederatedStatement) -> FederatedStatement:
    """As many shares as dishonest parties have."""
    return restated(s, threshold=s.n_users - 15)


def half_opens(s: FederatedStatement) -> FederatedStatement:
    """Two halves of the parties could each open another sum."""
    return restated(s, threshold=s.n_users // 2)


def nobody_opens(s: FederatedStatement) -> FederatedStatement:
    """More shares than there are parties left."""
    return restated(s, threshold=s.min_survivors + 1)


def fewer_rows_than_there_may_be(s: FederatedStatement) -> FederatedStatement:
    """The largest party forgotten."""
    return restated(s, max_records=2 * s.max_records)


def a_smaller_lambda(s: FederatedStatement) -> FederatedStatement:
    """Another regularization than the sensitivity is made of."""
    return restated(s, regularization=0.5 * s.regularization)


def noise_within_an_objective_for_a_user(s: FederatedStatement) -> FederatedStatement:
    """Objective perturbation is about one row or person."""
    event = ObjectiveEvent("huber", 1, 8.0, 0.01, None, "replace_one")
    return restated(s, local_events=(event,))


def the_curvature_of_a_row(s: FederatedStatement) -> FederatedStatement:
    """Of a person, whose rows may lie in many directions."""
    event = ObjectiveEvent("huber", 1, 8.0, 0.01, None, "replace_one")
    return restated(s, local_events=(event, *s.local_events[1:]))


def a_second_sum_forgotten(s: FederatedStatement) -> FederatedStatement:
    """FedDPDR with its first sum only."""
    return restated(s, rounds=s.rounds[:1], sensitivity=None, n_scores=None)


def own_noise_overstated(s: FederatedStatement) -> FederatedStatement:
    """What single parties' noise gives, told too small."""
    return replace(s, local_epsilon=0.99 * s.local_epsilon)


def sequence_of_sums_swapped(s: FederatedStatement) -> FederatedStatement:
    """Models before matrices."""
    return restated(s, rounds=s.rounds[::-1])


FORGERIES: list[tuple[str, Callable[[FederatedStatement], FederatedStatement], str]] = [
    ("helmet", all_survive, "honest_survivors is not"),
    ("helmet", drop_outs_forgotten, "honest_survivors is not"),
    ("helmet", a_record_for_a_user, "exact"),
    ("dpdr output", a_person_like_a_row, "exact"),
    ("dpdr objective person", the_curvature_of_a_row, "objective protects one row"),
    ("helmet users", weights_forgotten, "C"),
    ("dpdr output", no_sqrt_two, "exact"),
    ("helmet", no_smoothing, "sigma is not"),
    ("helmet", no_distance, "discreteness is below"),
    ("helmet", a_range_too_small, "range_steps is below"),
    ("helmet", noise_beyond_the_range, "overflow is below"),
    ("helmet", unbreakable, "no cryptography is unbreakable"),
    ("helmet", a_low_threshold, "threshold lets colluding"),
    ("helmet", half_opens, "threshold lets half"),
    ("helmet", nobody_opens, "threshold is above"),
    ("dpdr output user", a_smaller_lambda, "C"),
    ("helmet user", fewer_rows_than_there_may_be, "exact"),
    ("dpdr output user", noise_within_an_objective_for_a_user, "protects no party"),
    ("dpdr output", a_second_sum_forgotten, "each of its two rounds"),
    ("helmet", own_noise_overstated, "local_epsilon is below"),
    ("dpdr output", sequence_of_sums_swapped, "matrices, then models"),
]


@pytest.mark.parametrize(
    ("kind", "forge", "problem"), FORGERIES, ids=[forge.__name__ for _, forge, _ in FORGERIES]
)
def test_forgeries_that_fit_together_otherwise(
    kind: str, forge: Callable[[FederatedStatement], FederatedStatement], problem: str
) -> None:
    """Everything else follows and the total is right: only the one lie can be found out."""
    forged = forge(federated_statement(kind))
    outcome = verify(forged.to_json())
    assert not outcome
    assert any(problem in each for each in outcome.problems), outcome
    assert not any("the noise does not give" in each for each in outcome.problems)


@pytest.mark.parametrize("kind", QUICK)
def test_a_total_without_what_distances_cost_is_refused(kind: str) -> None:
    """Delta of the Gaussian noise alone, or with distances once instead of (1 + e^eps) times."""
    statement = federated_statement(kind)
    if not statement.rounds:
        return
    noise = tuple(e for e in statement.events if not isinstance(e, DistanceEvent))
    distances = sum(part.distance for part in statement.rounds)
    alone = composed_delta(noise, statement.epsilon)
    if distances < 1e-3 * alone:
        return
    for delta in (alone, alone + distances):
        assert not verify(document(kind) | {"delta": delta})


def test_a_few_sums_are_about_distances() -> None:
    """The test above is not empty."""
    statement = federated_statement("helmet")
    assert statement.rounds[0].distance > 1e-4 * statement.delta


# --- numbers of parties ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fraction", "users", "honest"),
    [
        *((0.07, 100, 7), (0.29, 100, 29), (5 / 6, 6, 5), (2 / 3, 3, 2), (0.1, 10, 1)),
        *((1.0, 9, 9), (0.5, 7, 4), (0.501, 1000, 501), (1e-9, 5, 1)),
    ],
)
def test_shares_of_parties_are_the_decimal_numbers_that_were_written(
    fraction: float, users: int, honest: int
) -> None:
    """With no drop-outs: h is the number of honest parties, and not one more."""
    statement = replace(
        federated_statement("helmet curator"),
        n_users=users,
        honest_fraction=fraction,
        max_dropout=0.0,
        min_survivors=users,
    )
    for h in (honest, honest + 1):
        problems = verify(replace(statement, honest_survivors=h)).problems
        wrong = any("honest_survivors is not min_survivors" in each for each in problems)
        assert wrong == (h != honest)


# --- a single party's noise -----------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1e-4, 0.1, 3.0, 400.0])
@pytest.mark.parametrize("delta", [1e-4, 1e-12, 1e-30])
def test_the_check_of_concentrated_noise(rho: float, delta: float) -> None:
    """Against the accountant, and against Gaussian noise, of which more is known."""
    epsilon = composed_epsilon([ZCDPEvent(rho, "replace_one")], delta)
    assert zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-6)
    assert zcdp_delta(rho, 0.999 * epsilon) > delta


def test_one_discrete_gaussian_is_as_private_as_stated() -> None:
    """delta of the discrete Gaussian itself, at shifts by whole numbers, summed up."""
    part = federated_statement("helmet").rounds[0]
    small = replace(part, sigma_steps=16, grid=part.total / 40.0, smoothing=3.0)
    statement_rho = small.local_event.rho
    shift, sigma = 40, 16
    mpmath.mp.dps = 40
    masses = {k: mpmath.exp(mpmath.mpf(-k * k) / (2 * sigma**2)) for k in range(-400, 441)}
    whole = mpmath.fsum(masses.values())
    for epsilon in (3.0, 8.0, 15.0):
        exact = mpmath.fsum(
            max(masses[k] - mpmath.exp(epsilon) * masses[k + shift], 0) for k in range(-400, 400)
        )
        stated = zcdp_delta(statement_rho, epsilon)
        assert float(exact / whole) <= stated <= 40.0 * float(exact / whole)


# --- among other releases -------------------------------------------------------------------------


def test_in_a_pipeline_it_counts_like_any_other() -> None:
    statement = federated_statement("dpdr output")
    step = PipelineStep(name="model", estimator="FederatedLinearSVC", statement=statement)
    events = (*statement.events, *statement.events)
    whole = PipelineStatement(
        epsilon=composed_epsilon(events, 1e-6),
        delta=1e-6,
        adjacency="replace_one",
        steps=(step, replace(step, name="again")),
        library_version="0",
    )
    assert whole.events == events
    assert PipelineStatement.from_json(whole.to_json()) == whole
    assert verify(whole)
    assert not verify(replace(whole, epsilon=0.9 * whole.epsilon))
    assert "one row of the training data" in " ".join(str(whole).split())
    for kind in ("dpdr output user", "dpdr output person"):
        other = replace(step, statement=federated_statement(kind))
        with pytest.raises(InvalidParameterError, match="unit"):
            replace(whole, steps=(step, other))


@pytest.mark.parametrize("unit", ["row", "person", "party"])
def test_the_certificate_of_a_real_training_holds_and_adds_up(unit: str) -> None:
    rng = np.random.default_rng(3)
    spec = helmet(
        n_users=8,
        n_features=4,
        classes=[0, 1, 2],
        min_records=10,
        max_records=40,
        honest_fraction=0.75,
        max_dropout=0.125,
        unit=unit,
    )
    parties: list[Any] = [(rng.normal(size=(20, 4)) / 4.0, np.arange(20) % 3) for _ in range(8)]
    if unit == "person":
        parties = [(X, y, np.arange(20) // 2) for X, y in parties]
    model = simulate(spec, parties)
    for trust in ("trusted_curator", "secure_sum"):
        statement = statement_of(spec, trust, "operating_system")
        outcome = verify(statement)
        assert outcome, outcome
        assert outcome.epsilon == pytest.approx(1.0, rel=1e-6)
        read = json.loads(statement.to_json())
        for name in ("epsilon", "delta"):
            assert not verify(read | {name: 0.9999 * read[name]})
    total = total_privacy([model, model])
    assert verify(total)
    assert 1.2 < total.epsilon < 2.0
    assert total.private


ODD: list[Any] = [
    *(None, True, 0, -1, 1, 2**18, 2**63, 10**400, 0.0, -0.0, 1e308, 5e-324, 1e-320, 0.5, 1.0),
    *(math.inf, -math.inf, math.nan, "", "1", [], {}, [[]]),
]


@pytest.mark.parametrize("kind", ["dpdr output user", "dpdr own noise"])
def test_odd_values_anywhere_are_an_answer_and_no_crash(kind: str) -> None:
    whole = document(kind)
    for path, _ in places(whole):
        for value in ODD:
            outcome = verify(replaced(whole, path, value))
            assert outcome.ok in (True, False)
