"""Verification: true certificates pass, and what it recomputes follows from their numbers alone.

Every change of one number or word: `test_tampering`.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from mpmath import mp

from dpsvm_fast import NotPrivateWarning
from dpsvm_fast.accounting import gaussian_delta
from dpsvm_fast.certificates import (
    GaussianEvent,
    PrivacyEvent,
    PrivacyStatement,
    PureEvent,
    ReleasePart,
    SubsampledGaussianEvent,
)
from dpsvm_fast.certificates.words import SEED_REASON
from dpsvm_fast.rounding import div_down, mul_up, sqrt_up
from dpsvm_fast.verification import verify
from dpsvm_fast.verification.losses import gaussian_delta as delta_of
from oracles.statements import ESTIMATORS, MAKERS, fitted, statement_of
from oracles.tampering import replaced, with_events

Kind = tuple[str, str]
Document = dict[str, Any]
OF_FITS = [kind for kind in MAKERS if kind[0] in ESTIMATORS]
# Who release noisy sums over the rows.
OF_SUMS = [
    kind
    for kind in OF_FITS
    if kind[0].startswith(("gradient", "linear", "kernel", "centre", "whiten", "comp", "scaler"))
]


def document_of(name: str, adjacency: str = "add_remove") -> Document:
    return dict(json.loads(statement_of(name, adjacency).to_json()))


@pytest.mark.parametrize("kind", OF_FITS, ids=" ".join)
def test_true_certificates_hold_in_every_form(kind: Kind) -> None:
    made = statement_of(*kind)
    for form in (made, made.to_dict(), made.to_json(indent=None)):
        outcome = verify(form)
        assert outcome, str(outcome)
        assert outcome.problems == ()
        assert outcome.epsilon == pytest.approx(made.epsilon, rel=5e-3)
        # Laws on grids are recomputed to nearest; the promise rounds each step of them up.
        assert outcome.delta == pytest.approx(made.delta, rel=0.1)


def moved(part: ReleasePart) -> float:
    """How far the sums of neighbours are apart, over all steps."""
    last = part.last_iterate
    steps = float(part.n_steps) if last is None else last.effective_steps
    return mul_up(sqrt_up(steps), mul_up(part.relation_factor, part.contribution))


def event_of(part: ReleasePart, adjacency: str) -> PrivacyEvent:
    """The event that a ledger is charged, by formulas written out here."""
    if part.beta is not None:
        return PureEvent(mul_up(part.beta, moved(part)), adjacency)
    assert part.sigma is not None
    if part.sampling_rate < 1.0:
        multiplier = div_down(part.sigma, part.contribution)
        return SubsampledGaussianEvent(multiplier, part.sampling_rate, part.n_steps, adjacency)
    return GaussianEvent(part.sigma, moved(part), adjacency)


@pytest.mark.parametrize("kind", OF_SUMS, ids=" ".join)
def test_events_follow_from_the_sums(kind: Kind) -> None:
    statement = statement_of(*kind)
    expected = tuple(event_of(part, kind[1]) for part in statement.parts)
    assert statement.events[: len(expected)] == expected


@pytest.mark.parametrize(
    "kind",
    [kind for kind in OF_SUMS if not kind[0].endswith((" objective", " fixed", " output", " pure"))]
    + [("linear pure", "add_remove"), ("centre pure", "replace_one")],
    ids=" ".join,
)
def test_one_percent_less_noise_everywhere_is_refused(kind: Kind) -> None:
    """Every scale changed alike, and the events with it, so that nothing but the sum is wrong."""
    document = document_of(*kind)
    for part in document["parts"]:
        if part["beta"] is None:
            part["sigma"] *= 0.99
        else:
            part["beta"] *= 1.01
            part["epsilon"] *= 1.01
    outcome = verify(with_events(document))
    assert not outcome
    assert len(outcome.problems) == 1


def cheaper(event: PrivacyEvent, share: float) -> PrivacyEvent:
    """An event that costs a share of what it did."""
    if isinstance(event, PureEvent):
        return replace(event, epsilon=event.epsilon * share)
    name = "noise_multiplier" if isinstance(event, SubsampledGaussianEvent) else "sigma"
    return replace(event, **{name: getattr(event, name) / share})


@pytest.mark.parametrize(
    "kind",
    [kind for kind in OF_SUMS if kind[0] in ("linear", "linear pure", "linear output")]
    + [kind for kind in OF_SUMS if kind[0].startswith("gradient")],
    ids=" ".join,
)
@pytest.mark.parametrize("share", [0.5, 1.0 - 1e-11])
def test_events_that_do_not_follow_from_the_noise_are_refused(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, share: float
) -> None:
    """verify does not rely on the code that derives events: it writes their numbers out again."""
    statement = statement_of(*kind)
    own = statement.events[: len(statement.parts)]
    events = tuple(cheaper(event, share) for event in own) + statement.events[len(own) :]
    monkeypatch.setattr(PrivacyStatement, "events", property(lambda _: events))
    found = verify(statement)
    assert not found.ok
    assert any("event" in problem for problem in found.problems)


def test_what_was_reserved_can_have_been_reserved() -> None:
    """One whitening at most, where none was released and the objective has noise."""
    document = document_of("linear objective")
    (whitening,) = document["reserved"]

    def holds(document: Document, **changes: Any) -> bool:
        return bool(verify(with_events(document | changes)))

    assert holds(document)
    more = document | {"epsilon": 6.0}
    assert holds(more)
    assert holds({name: value for name, value in more.items() if name != "reserved"})
    assert not holds(more, reserved=[whitening] * 2)
    assert not holds(more, reserved=document["parts"])
    for name in ("sigma", "clip_norm", "contribution"):
        assert not holds(more, reserved=[whitening | {name: 1e-3 * whitening[name]}])
    for kind in ("linear", "linear output", "gradient"):
        other = document_of(kind) | {"epsilon": 6.0}
        assert verify(other)
        assert not holds(other, reserved=[whitening])


def test_the_last_iterate_within_the_reach_of_its_theorem_only() -> None:
    """A step beyond 2 / (m + M), told truthfully: the factor is right and the theorem is not."""
    document = document_of("gradient last")
    part = document["parts"][0]
    last = part["last_iterate"]
    assert last["effective_steps"] < part["n_steps"]
    m, M = last["regularization"], last["smoothness"]
    eta = 2.001 / (m + M)
    c = max(abs(1.0 - eta * m), abs(1.0 - eta * M)) * (1.0 + 1e-15)
    n = part["n_steps"]
    counted = (1.0 - c**n) / (1.0 + c**n) * (1.0 + c) / (1.0 - c) * (1.0 + 1e-12)
    part["last_iterate"] |= {"learning_rate": eta, "contraction": c, "effective_steps": counted}
    outcome = verify(with_events(document))
    assert any("learning_rate" in problem for problem in outcome.problems)
    # No smoothness, no theorem.
    assert not verify(document_of("gradient last") | {"loss": "crammer_singer"})


@pytest.mark.proof("joint_bound")
def test_changing_one_number_of_the_joint_law() -> None:
    """By a tenth, which is more than the slack of its recomputation."""
    document = document_of("objective")
    for name, value in document["objective"].items():
        if isinstance(value, float) and value and name not in ("margin", "extra_regularization"):
            assert not verify(replaced(document, ("objective", name), 0.9 * value)), name
    assert not verify(document | {"epsilon": 0.9 * document["epsilon"]})


@pytest.mark.proof("objective_perturbation", "Events, both noises, the approximate minimum")
def test_two_noises_changed_together_still_have_to_give_the_promise() -> None:
    document = document_of("objective two")
    document["objective"]["sigma"] /= 1.05
    outcome = verify(with_events(document))
    assert not outcome
    assert outcome.epsilon is not None
    assert 2.05 < outcome.epsilon < 2.3
    document["objective"]["epsilon"] = document["epsilon"]
    assert not verify(with_events(document))


@pytest.mark.proof("objective_perturbation", "Events, both noises, the approximate minimum")
def test_parts_of_the_two_noises_are_not_interchanged() -> None:
    document = document_of("objective two")
    assert not verify(document | {"events": document["events"][::-1]})
    assert not verify(document | {"events": document["events"][1:]})
    # One-score law claimed for a release over more scores.
    wide = copy.deepcopy(document)
    wide["objective"]["shape"] = wide["noise"]["shape"] = [3, 3]
    wide["noise"]["n_weights"] = 9
    assert not verify(with_events(wide))


def test_a_seeded_release_does_not_verify_though_its_numbers_do() -> None:
    with pytest.warns(NotPrivateWarning):
        made = fitted("output", "add_remove", random_state=0).privacy_
    outcome = verify(made)
    assert not outcome
    assert outcome.epsilon == pytest.approx(2.0, rel=1e-9)
    assert any(SEED_REASON in problem for problem in outcome.problems)


def test_a_statement_altered_behind_its_back_is_checked_again() -> None:
    made = fitted("output", "add_remove").privacy_
    object.__setattr__(made, "random_source", "seed")
    assert not verify(made)


@pytest.mark.parametrize("text", ["", "null", "{}", "[1]", '{"format": "dpsvm_fast.certificate"}'])
def test_other_texts_are_refused(text: str) -> None:
    outcome = verify(text)
    assert not outcome
    assert outcome.epsilon is None


def test_other_types_are_errors() -> None:
    with pytest.raises(TypeError, match="certificate"):
        verify(3.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.1, 0.999, 1.0, 3.0, 30.0, 150.0])
@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 20.0, 1e4])
def test_the_independent_formula_against_many_digits(mu: float, epsilon: float) -> None:
    with mp.workdps(80):
        m, e = mp.mpf(mu), mp.mpf(epsilon)
        exact = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
        # Beyond these the exponent of the density alone costs many digits of a double.
        if exact > mp.mpf("1e-300"):
            assert abs(mp.mpf(delta_of(epsilon, mu)) / exact - 1) < 1e-10


@pytest.mark.proof("analytic_gaussian")
@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 30.0), (1.0, 4.0), (8.0, 0.7), (100.0, 0.2)])
def test_two_independent_implementations_agree(epsilon: float, sigma: float) -> None:
    assert delta_of(epsilon, 1 / sigma) == pytest.approx(gaussian_delta(epsilon, sigma), rel=1e-11)
