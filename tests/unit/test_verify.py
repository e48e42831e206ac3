"""Verification: true certificates pass, and no number can be changed in one's own favour."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from mpmath import mp
from test_statement import KINDS, OBJECTIVE_KINDS, made_of, objective_statement, statement

from dpsvm_fast.accounting import gaussian_delta
from dpsvm_fast.certificates import PrivacyStatement
from dpsvm_fast.certificates.words import SEED_REASON
from dpsvm_fast.verification import verify
from dpsvm_fast.verification.losses import gaussian_delta as delta_of


@pytest.mark.parametrize("kind", [*KINDS, *OBJECTIVE_KINDS], ids=str)
def test_true_certificates_hold_in_every_form(kind: tuple[Any, ...]) -> None:
    made = made_of(kind)
    for form in (made, made.to_dict(), made.to_json(), made.to_json(indent=None)):
        outcome = verify(form)
        assert outcome, str(outcome)
        assert outcome.problems == ()
        assert outcome.epsilon == pytest.approx(made.epsilon, rel=1e-9)
        # The joint law is recomputed to nearest; the promise rounds each step of it up.
        joint = kind[:3] == ("softmax_margin", 3, "gaussian")
        assert outcome.delta == pytest.approx(made.delta, rel=0.1 if joint else 1e-3)
        assert "holds" in str(outcome)


def numbers(record: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all numbers of a JSON document."""
    if isinstance(record, bool):
        return
    if isinstance(record, (int, float)):
        yield path
    pairs = record.items() if isinstance(record, dict) else ()
    for key, value in enumerate(record) if isinstance(record, list) else pairs:
        yield from numbers(value, (*path, key))


def changed(document: dict[str, Any], path: tuple[Any, ...], factor: float) -> dict[str, Any]:
    """A copy with one number multiplied; whole numbers stay whole where they can."""
    result = copy.deepcopy(document)
    place: Any = result
    for key in path[:-1]:
        place = place[key]
    value = place[path[-1]] * factor
    whole = isinstance(place[path[-1]], int) and float(value).is_integer()
    place[path[-1]] = int(value) if whole else value
    return result


TAMPERINGS = [
    (kind, path, factor)
    for kind in KINDS
    for path in numbers(statement(*kind).to_dict())
    for factor in (0.5, 2.0, 1 - 1e-4, 1 + 1e-4)
]

# No proof uses these: the guarantee is for any margin, for any reason to regularise, and for any
# grid to which noise drawn in floating point is rounded afterwards.
WITHOUT_WEIGHT = {("objective", "margin"), ("objective", "extra_regularization")}
FREE_GRID = ("noise", "grid")


@pytest.mark.parametrize(("kind", "path", "factor"), TAMPERINGS, ids=str)
def test_changing_one_number_never_strengthens_the_promise(
    kind: tuple[str, str, str], path: tuple[Any, ...], factor: float
) -> None:
    check_tampering(kind, path, factor)


# Of noise in the objective, those kinds whose law has a formula: hundreds of recomputations. Sums
# over pairs of classes have none where records are exchanged; their recomputation has a slack.
PAIRS_EXCHANGED = ("huber_ww", 2, "gaussian", "replace_one")
FORMULAS = [
    kind
    for kind in OBJECTIVE_KINDS
    if kind[2] == "gamma" or (kind[1] == 2 and kind != PAIRS_EXCHANGED)
]


@pytest.mark.proof("objective_perturbation", "Events, both noises, the approximate minimum")
@pytest.mark.parametrize("kind", FORMULAS, ids=str)
@pytest.mark.parametrize("factor", [0.5, 2.0, 1 - 1e-4, 1 + 1e-4])
def test_changing_one_number_of_noise_in_the_objective(
    kind: tuple[Any, ...], factor: float
) -> None:
    tampered = list(numbers(made_of(kind).to_dict()))
    assert len(tampered) >= 36
    for path in tampered:
        check_tampering(kind, path, factor)


@pytest.mark.proof("joint_bound")
def test_changing_one_number_of_the_joint_law() -> None:
    """By a tenth, which is more than the slack of its recomputation."""
    kind = OBJECTIVE_KINDS[0]
    for path in numbers(made_of(kind).to_dict()):
        if path[0] in {"objective", "events", "epsilon"}:
            check_tampering(kind, path, 0.9)


@pytest.mark.proof("objective_perturbation", "Events, both noises, the approximate minimum")
@pytest.mark.nightly
@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize("kind", set(OBJECTIVE_KINDS) - set(FORMULAS), ids=str)
def test_changing_one_number_of_any_law(kind: tuple[Any, ...], factor: float) -> None:
    for path in numbers(made_of(kind).to_dict()):
        check_tampering(kind, path, factor)


def check_tampering(kind: tuple[Any, ...], path: tuple[Any, ...], factor: float) -> None:
    """One number changed: found out, unless that cannot matter or weakens the promise."""
    made = made_of(kind)
    document = changed(made.to_dict(), path, factor)
    if document == made.to_dict():
        return  # zero stays zero
    outcome = verify(json.dumps(document))
    # Still true: a promise that is weaker than the one that was made.
    harmless = path in {("epsilon",), ("delta",)} and factor > 1
    harmless |= path in WITHOUT_WEIGHT
    # Powers of two that stay powers of two.
    harmless |= path == FREE_GRID and kind[2] == "gamma" and factor in (0.5, 2.0)
    assert outcome.ok == harmless, f"{path}: {outcome}"


@pytest.mark.proof("objective_perturbation", "Events, both noises, the approximate minimum")
def test_two_noises_changed_together_still_have_to_give_the_promise() -> None:
    made = objective_statement(*FORMULAS[0])
    document = made.to_dict()
    document["objective"]["sigma"] /= 1.05
    document["events"][0]["sigma"] /= 1.05
    outcome = verify(document)
    assert not outcome
    assert outcome.epsilon is not None
    assert 2.05 < outcome.epsilon < 2.3
    document["objective"]["epsilon"] = document["epsilon"]
    assert not verify(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "huber"},
        {"loss": "crammer_singer"},
        {"mechanism": "output_perturbation"},
        {"adjacency": "replace_one"},
        {"objective": None},
    ],
    ids=str,
)
def test_changed_words_about_noise_in_the_objective(changes: dict[str, Any]) -> None:
    assert not verify(objective_statement(*FORMULAS[0]).to_dict() | changes)


def test_parts_of_the_two_noises_are_not_interchanged() -> None:
    document = objective_statement(*FORMULAS[0]).to_dict()
    assert not verify(document | {"events": document["events"][::-1]})
    assert not verify(document | {"events": document["events"][1:]})
    # One-score law claimed for a release over more scores.
    wide = copy.deepcopy(document)
    wide["objective"]["shape"] = wide["noise"]["shape"] = [3, 5]
    wide["noise"]["n_weights"] = 15
    assert not verify(wide)


def test_there_is_enough_to_tamper_with() -> None:
    paths = {".".join(map(str, path)) for _, path, _ in TAMPERINGS}
    assert {"epsilon", "delta", "noise.sigma", "noise.beta", "noise.grid"} <= paths
    assert {"sensitivity.total", "events.0.sigma", "events.0.epsilon", "version"} <= paths
    assert len(paths) >= 20


def test_numbers_changed_together_still_have_to_give_the_promise() -> None:
    document = statement().to_dict()
    for place in (document["noise"], document["events"][0]):
        place["sigma"] /= 2
    outcome = verify(document)
    assert not outcome
    assert outcome.epsilon is not None
    assert outcome.epsilon > 1.5
    assert "NOT" in str(outcome)
    half = document["noise"]["sigma"] * 2 * (1 - 1e-7)
    document["noise"]["sigma"] = document["events"][0]["sigma"] = half
    assert not verify(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"loss": "hinge"},
        {"mechanism": "magic"},
        {"adjacency": "replace_one"},
        {"events": []},
        {"version": 1},
        {"version": 2},
        {"version": 4},
        {"private": False},
        {"not_private_reasons": ["a reason"]},
        {"private": False, "not_private_reasons": ["a reason"]},
        {"random_source": "seed"},
        {"surplus": 0},
        {"caveats": 3},
    ],
    ids=str,
)
def test_changed_words_are_refused(changes: dict[str, Any]) -> None:
    assert not verify(statement().to_dict() | changes)


def test_two_events_are_not_one() -> None:
    document = statement().to_dict()
    document["events"] *= 2
    assert not verify(document)
    gamma = statement("gamma", "floating_point").to_dict()
    assert not verify(document | {"events": gamma["events"]})
    assert not verify(gamma | {"events": statement().to_dict()["events"]})


def test_a_seeded_release_does_not_verify_though_its_numbers_do() -> None:
    made = statement(random_source="seed", not_private_reasons=(SEED_REASON,))
    outcome = verify(made)
    assert not outcome
    assert outcome.epsilon == pytest.approx(0.8, rel=1e-9)
    assert any(SEED_REASON in problem for problem in outcome.problems)


def test_a_statement_altered_behind_its_back_is_checked_again() -> None:
    made = statement()
    object.__setattr__(made, "random_source", "seed")
    assert not verify(made)
    assert isinstance(made, PrivacyStatement)


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


def test_no_compiled_calibration_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    text = statement().to_json()

    def refuse(*_: object) -> float:
        raise AssertionError("verification called the calibration that it has to check")

    inside = [objective_statement(*kind).to_json() for kind in (FORMULAS[0], OBJECTIVE_KINDS[0])]
    for name in ("sigma", "delta", "epsilon"):
        monkeypatch.setattr(f"dpsvm_fast._core.gaussian_{name}", refuse)
        monkeypatch.setattr(f"dpsvm_fast._core.objective_{name}", refuse, raising=False)
    assert all(map(verify, [text, *inside]))
    assert math.isfinite(delta_of(1.0, 1.0))
