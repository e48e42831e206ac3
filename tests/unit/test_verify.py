"""Verification: true certificates pass, and no number can be changed in one's own favour."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from mpmath import mp
from test_statement import KINDS, statement

from dpsvm_fast.accounting import PrivacyStatement, gaussian_delta, verify
from dpsvm_fast.accounting.statement import SEED_REASON

delta_of = verify.__globals__["gaussian_delta"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_true_certificates_hold_in_every_form(kind: tuple[str, str, str]) -> None:
    made = statement(*kind)
    for form in (made, made.to_dict(), made.to_json(), made.to_json(indent=None)):
        outcome = verify(form)
        assert outcome, str(outcome)
        assert outcome.problems == ()
        assert outcome.epsilon == pytest.approx(0.8, rel=1e-9)
        assert outcome.delta == pytest.approx(made.delta, rel=1e-9)
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


@pytest.mark.parametrize(("kind", "path", "factor"), TAMPERINGS, ids=str)
def test_changing_one_number_never_strengthens_the_promise(
    kind: tuple[str, str, str], path: tuple[Any, ...], factor: float
) -> None:
    document = changed(statement(*kind).to_dict(), path, factor)
    if document == statement(*kind).to_dict():
        return  # zero stays zero
    outcome = verify(json.dumps(document))
    # Still true: a promise that is weaker than the one that was made.
    weaker = path in {("epsilon",), ("delta",)} and factor > 1
    assert outcome.ok == weaker, str(outcome)


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
        {"version": 2},
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


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 30.0), (1.0, 4.0), (8.0, 0.7), (100.0, 0.2)])
def test_two_independent_implementations_agree(epsilon: float, sigma: float) -> None:
    assert delta_of(epsilon, 1 / sigma) == pytest.approx(gaussian_delta(epsilon, sigma), rel=1e-11)


def test_no_compiled_calibration_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    text = statement().to_json()

    def refuse(*_: object) -> float:
        raise AssertionError("verification called the calibration that it has to check")

    for name in ("gaussian_sigma", "gaussian_delta", "gaussian_epsilon"):
        monkeypatch.setattr(f"dpsvm_fast._core.{name}", refuse)
    assert verify(text)
    assert math.isfinite(delta_of(1.0, 1.0))
