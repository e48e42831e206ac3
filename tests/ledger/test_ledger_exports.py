"""Ledgers in the vocabulary of dp-accounting, and where that library is there, its opinion."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import json
import math
from typing import Any

import pytest

from dpsvm_fast.accounting import composed_epsilon, dp_accounting_event, dp_accounting_tree
from dpsvm_fast.certificates import (
    AlternativesEvent,
    ApproximateEvent,
    GaussianEvent,
    ObjectiveEvent,
    ParallelEvent,
    PrivacyEvent,
    PureEvent,
    RandomStoppingEvent,
    SubsampledGaussianEvent,
    ZCDPEvent,
)
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.ledger import PrivacyLedger

A, R = "add_remove", "replace_one"
DELTA = 1e-5
UNSUPPORTED = {"type": "UnsupportedDpEvent"}


def gaussian(multiplier: Any) -> dict[str, object]:
    return {"type": "GaussianDpEvent", "noise_multiplier": multiplier}


def sampled(rate: float, multiplier: float, steps: int) -> dict[str, object]:
    step = {"type": "PoissonSampledDpEvent", "sampling_probability": rate}
    return {
        "type": "SelfComposedDpEvent",
        "event": step | {"event": gaussian(multiplier)},
        "count": steps,
    }


WIDE, NARROW = GaussianEvent(8.0, 2.0, A), GaussianEvent(8.0, 1.0, A)


@pytest.mark.parametrize(
    ("events", "tree"),
    [
        ([], {"type": "NoOpDpEvent"}),
        ([WIDE], gaussian(4.0)),
        # Under the other relation the distance of neighbours is in the event already.
        ([GaussianEvent(8.0, 2.0, R)], gaussian(4.0)),
        ([WIDE] * 3, {"type": "SelfComposedDpEvent", "event": gaussian(4.0), "count": 3}),
        ([WIDE, NARROW], {"type": "ComposedDpEvent", "events": [gaussian(4.0), gaussian(8.0)]}),
        ([PureEvent(0.5, A)], {"type": "ZCDpEvent", "rho": 0.125, "xi": 0.0}),
        ([ZCDPEvent(0.3, R)], {"type": "ZCDpEvent", "rho": 0.3, "xi": 0.0}),
        ([SubsampledGaussianEvent(2.0, 0.25, 10, A)], sampled(0.25, 2.0, 10)),
        ([SubsampledGaussianEvent(2.0, 1.0, 1, A)], gaussian(2.0)),
        ([SubsampledGaussianEvent(2.0, 1.0, 1, R)], gaussian(1.0)),
        ([SubsampledGaussianEvent(2.0, 0.25, 10, R)], UNSUPPORTED),
        ([ApproximateEvent(1.0, 1e-6, A)], UNSUPPORTED),
        ([ObjectiveEvent("softmax", 10, 8.0, 0.1, None, A)], UNSUPPORTED),
        ([ObjectiveEvent("huber", 1, 8.0, None, 0.0, A)], gaussian(pytest.approx(8.0))),
        ([ParallelEvent(((NARROW,), (WIDE,)), A)], gaussian(4.0)),
        ([ParallelEvent(((NARROW,), (PureEvent(0.1, A),)), A)], UNSUPPORTED),
        ([AlternativesEvent(((NARROW,), (WIDE,)), A)], gaussian(4.0)),
        (
            [RandomStoppingEvent((WIDE,), "geometric", 10.0, A)],
            {
                "type": "RepeatAndSelectDpEvent",
                "event": gaussian(4.0),
                "mean": 10.0,
                "shape": 1.0,
            },
        ),
    ],
    ids=str,
)
def test_trees(events: list[PrivacyEvent], tree: dict[str, object]) -> None:
    assert dp_accounting_tree(events) == tree


def test_shapes_of_the_number_of_runs() -> None:
    shapes = [
        dp_accounting_tree([RandomStoppingEvent((WIDE,), law, 10.0, A)])["shape"]
        for law in ("logarithmic", "geometric", "poisson")
    ]
    assert shapes == [0.0, 1.0, math.inf]


def test_relations_are_not_mixed() -> None:
    with pytest.raises(InvalidParameterError, match="relations"):
        dp_accounting_tree([PureEvent(0.5, A), PureEvent(0.5, R)])


def test_trees_are_plain_values() -> None:
    events = [WIDE, NARROW, SubsampledGaussianEvent(2.0, 0.25, 10, A), PureEvent(0.5, A)]
    tree = dp_accounting_tree(events)
    assert json.loads(json.dumps(tree, allow_nan=False)) == tree


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(name: str, *_: Any) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    ledger = PrivacyLedger(1.0, DELTA)
    with pytest.raises(ImportError, match="pip install dp-accounting"):
        ledger.to_dp_accounting()


def test_importing_does_not_need_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *arguments: Any, **more: Any) -> Any:
        assert not name.startswith("dp_accounting")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    PrivacyLedger(1.0, DELTA).spend(WIDE)


needs_the_library = pytest.mark.skipif(
    importlib.util.find_spec("dp_accounting") is None,
    reason="dp-accounting is not installed: nothing to compare with",
)

LEDGERS: dict[str, list[PrivacyEvent]] = {
    "gaussian": [WIDE, NARROW, NARROW],
    "gaussian, replace_one": [GaussianEvent(8.0, 2.0, R)] * 2,
    "sampled": [SubsampledGaussianEvent(1.1, 0.01, 500, A), NARROW],
    "zcdp and pure": [ZCDPEvent(0.01, A), PureEvent(0.2, A), PureEvent(0.2, A)],
    "geometric": [RandomStoppingEvent((GaussianEvent(7.0, 1.0, A),), "geometric", 10.0, A)],
    "poisson": [RandomStoppingEvent((ZCDPEvent(0.01, A),), "poisson", 10.0, A)],
}


def epsilons_of_the_library(events: list[PrivacyEvent]) -> dict[str, float]:
    """Epsilon of each of its accountants that knows the events."""
    rdp = importlib.import_module("dp_accounting.rdp")
    pld = importlib.import_module("dp_accounting.pld")
    relation = importlib.import_module("dp_accounting").NeighboringRelation.ADD_OR_REMOVE_ONE
    event = dp_accounting_event(events)
    found = {}
    for name, accountant in (
        ("rdp", rdp.RdpAccountant(neighboring_relation=relation)),
        ("pld", pld.PLDAccountant(neighboring_relation=relation)),
    ):
        if accountant.supports(event):
            found[name] = accountant.compose(event).get_epsilon(DELTA)
    return found


@needs_the_library
@pytest.mark.parametrize("name", LEDGERS)
def test_the_other_library_agrees(name: str) -> None:
    events = LEDGERS[name]
    ours, theirs = composed_epsilon(events, DELTA), epsilons_of_the_library(events)
    assert "rdp" in theirs
    # Renyi divergences lose; theirs of every accountant is a bound, so none is far below ours.
    assert theirs["rdp"] >= ours * (1.0 - 1e-6)
    if "pld" in theirs:
        assert theirs["pld"] == pytest.approx(ours, rel=1e-3)


@needs_the_library
def test_what_it_cannot_say_it_refuses() -> None:
    rdp = importlib.import_module("dp_accounting.rdp")
    for event in (ApproximateEvent(1.0, 1e-6, A), SubsampledGaussianEvent(1.0, 0.1, 5, R)):
        assert not rdp.RdpAccountant().supports(dp_accounting_event([event, NARROW][:1]))


@needs_the_library
def test_bare_noise_multipliers_would_be_wrong_under_replace_one() -> None:
    # Negative control: why sigma is exported over the distance of neighbours.
    library = importlib.import_module("dp_accounting")
    accountant = importlib.import_module("dp_accounting.rdp").RdpAccountant(
        neighboring_relation=library.NeighboringRelation.REPLACE_ONE
    )
    bare = accountant.compose(library.GaussianDpEvent(2.0)).get_epsilon(DELTA)
    true = composed_epsilon([GaussianEvent(2.0, 2.0, R)], DELTA)
    assert bare < 0.6 * true


@needs_the_library
def test_a_ledger_exports_its_history() -> None:
    ledger = PrivacyLedger(3.0, DELTA)
    for event in (WIDE, NARROW, NARROW):
        ledger.spend(event)
    assert ledger.to_dp_accounting() == dp_accounting_event([WIDE, NARROW, NARROW])
