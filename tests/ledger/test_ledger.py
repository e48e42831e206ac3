"""One budget for everybody: threads, processes, copies, pickles, and all that scikit-learn does.

Whatever is asked of a ledger, in whatever order: the budget holds and nothing is lost.
"""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier

from dpsvm_fast import OutputPerturbationSVC
from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    dp_accounting_tree,
    gaussian_sigma,
)
from dpsvm_fast.certificates import (
    ApproximateEvent,
    DistanceEvent,
    GaussianEvent,
    PrivacyEvent,
    PureEvent,
)
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, LedgerError
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from oracles.ledgers import admitted, spend_all

# Newer Pythons warn of any fork beside threads; forking beside threads is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

TENTH = PureEvent(0.1, "add_remove")


def calibrated(epsilon: float, delta: float) -> GaussianEvent:
    return GaussianEvent(gaussian_sigma(epsilon, delta), 1.0, "add_remove")


# ---------------------------------------------------------------- one process


def test_ten_tenths_fill_a_budget_of_one_and_no_more() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    assert spend_all(ledger, TENTH, 15) == 10
    assert ledger.total() == (composed_epsilon([TENTH] * 10, 0.0), 0.0)
    assert ledger.remaining() == 0.0
    assert len(ledger.history) == 10


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("delta", [0.0, 1e-12, 1e-6])
def test_infinite_losses_beyond_delta_are_refused(epsilon: float, delta: float) -> None:
    small, large = max(0.1 * delta, 1e-15), max(10.0 * delta, 1e-9)
    leaking = ApproximateEvent(1e-3 * epsilon, large, "add_remove")
    far = DistanceEvent(large, "add_remove")
    pure = PureEvent(0.5 * epsilon, "add_remove")
    for events in ((leaking,), (far,), (pure, leaking), (pure, far)):
        ledger = PrivacyLedger(epsilon, delta)
        with pytest.raises(BudgetExceededError):
            ledger.spend(events)
        assert ledger.history == ()
    ledger = PrivacyLedger(epsilon, delta)
    often = spend_all(ledger, ApproximateEvent(1e-3 * epsilon, small, "add_remove"), 20)
    assert often * small <= delta * (1.0 + 1e-6)


def parts() -> st.SearchStrategy[PrivacyEvent]:
    sizes, leaks = st.floats(1e-3, 2.0), st.floats(-12.0, -2.0).map(lambda x: 10.0**x)
    return st.one_of(
        sizes.map(lambda size: PureEvent(size, "add_remove")),
        st.builds(lambda size, leak: ApproximateEvent(size, leak, "add_remove"), sizes, leaks),
        leaks.map(lambda far: DistanceEvent(far, "add_remove")),
        sizes.map(lambda size: GaussianEvent(2.0 / size, 1.0, "add_remove")),
    )


@given(
    st.lists(parts(), min_size=1, max_size=8),
    st.floats(0.1, 10.0),
    st.floats(-10.0, -2.0).map(lambda x: 10.0**x),
)
def test_what_is_admitted_costs_no_more_than_delta_by_one_part_alone(
    events: list[PrivacyEvent], epsilon: float, delta: float
) -> None:
    ledger = PrivacyLedger(epsilon, delta)
    for event in events:
        if admitted(ledger, event):
            assert composed_delta([event], epsilon) <= delta * (1.0 + 1e-6)
    kept = [spend.event for spend in ledger.history]
    stays = [1.0 - event.delta for event in kept if isinstance(event, ApproximateEvent)]
    assert 1.0 - float(np.prod(stays)) <= delta * (1.0 + 1e-6)


def test_an_event_calibrated_to_the_budget_is_admitted_and_nothing_after_it() -> None:
    for epsilon, delta in [(1.0, 1e-6), (0.3, 1e-10), (8.0, 1e-300)]:
        ledger = PrivacyLedger(epsilon, delta)
        ledger.check(calibrated(epsilon, delta))
        ledger.spend(calibrated(epsilon, delta))
        with pytest.raises(BudgetExceededError):
            ledger.spend(PureEvent(0.01 * epsilon, "add_remove"))
        with pytest.raises(BudgetExceededError):
            PrivacyLedger(epsilon, delta).spend(calibrated(epsilon * (1 + 1e-6), delta))


def test_the_tight_composition_admits_more_than_basic() -> None:
    ledger = PrivacyLedger(1.0, 1e-6)
    assert spend_all(ledger, calibrated(0.25, 2.5e-7), 50) > 6
    spent, delta = ledger.total()
    assert delta == 1e-6
    assert spent <= 1.0


def test_check_records_nothing() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    ledger.check(PureEvent(1.0, "add_remove"))
    with pytest.raises(BudgetExceededError):
        ledger.check(PureEvent(1.1, "add_remove"))
    assert ledger.history == ()
    assert ledger.total() == (0.0, 0.0)


def test_what_remains_is_admitted() -> None:
    ledger = PrivacyLedger(2.0, 1e-6)
    ledger.spend(calibrated(0.7, 1e-7))
    ledger.spend(PureEvent(0.3, "add_remove"))
    ledger.spend(PureEvent(ledger.remaining(), "add_remove"))
    assert ledger.remaining() < 0.5


def test_a_refusal_names_budget_spent_and_asked() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    ledger.spend(PureEvent(0.75, "add_remove"))
    with pytest.raises(BudgetExceededError) as caught:
        ledger.spend(PureEvent(0.5, "add_remove"))
    for part in ("epsilon=1,", "delta=0", "add_remove", "epsilon=0.75", "epsilon=0.5"):
        assert part in str(caught.value)
    assert len(ledger.history) == 1


def test_other_relations_and_other_things_are_refused() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    with pytest.raises(InvalidParameterError, match="replace_one"):
        ledger.spend(PureEvent(0.1, "replace_one"))
    with pytest.raises(TypeError, match="float"):
        ledger.spend(0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="label"):
        ledger.spend(TENTH, label=3)  # type: ignore[arg-type]
    assert ledger.history == ()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((0.0, 1e-6), InvalidParameterError),
        ((1.0, 1.0), InvalidParameterError),
        ((1.0, 0.0, "both"), InvalidParameterError),
        (("1", 0.0), TypeError),
        ((True, 0.0), TypeError),
    ],
)
def test_bad_budgets(arguments: tuple[float, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        PrivacyLedger(*arguments)  # type: ignore[arg-type]


def test_the_budget_cannot_be_changed() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    with pytest.raises(AttributeError):
        ledger.epsilon = 2.0  # type: ignore[misc]


def test_check_ledger() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    assert check_ledger(None, "add_remove") is None
    assert check_ledger(ledger, "add_remove") is ledger
    with pytest.raises(InvalidParameterError, match="replace_one"):
        check_ledger(ledger, "replace_one")
    with pytest.raises(TypeError, match="dict"):
        check_ledger({}, "add_remove")


# -------------------------------------------------------- copies and threads


class Spender(BaseEstimator):  # type: ignore[misc]
    """An estimator that only carries a ledger."""

    def __init__(self, ledger: PrivacyLedger | None = None) -> None:
        self.ledger = ledger


def test_copies_are_the_same_ledger() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy([ledger])[0] is ledger
    assert clone(Spender(ledger)).ledger is ledger
    assert pickle.loads(pickle.dumps(ledger)) is ledger


def test_threads_never_exceed_the_budget_of_a_file() -> None:
    ledger = PrivacyLedger(5.0, 0.0)
    # From here on it has a file.
    pickle.dumps(ledger)
    n_threads, attempts = 16, 8
    start = threading.Barrier(n_threads)

    def work() -> int:
        start.wait()
        return spend_all(ledger, TENTH, attempts)

    with concurrent.futures.ThreadPoolExecutor(n_threads) as pool:
        admitted = sum(f.result() for f in [pool.submit(work) for _ in range(n_threads)])
    assert admitted == 50
    assert len(ledger.history) == 50
    assert ledger.total()[0] == composed_epsilon([TENTH] * 50, 0.0)


# ------------------------------------------------------------------ processes


def test_joblib_processes_share_one_budget() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    ledger.spend(TENTH, label="parent")
    admitted = Parallel(n_jobs=2)(delayed(spend_all)(ledger, TENTH, 8) for _ in range(3))
    assert sum(admitted) == 9
    assert len(ledger.history) == 10
    assert len({record.process for record in ledger.history}) >= 2
    with pytest.raises(BudgetExceededError):
        ledger.spend(TENTH)


def test_spawned_processes_share_one_budget() -> None:
    ledger = PrivacyLedger(0.5, 0.0)
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        elsewhere = pool.apply_async(spend_all, (ledger, TENTH, 4))
        here = spend_all(ledger, TENTH, 4)
        assert here + elsewhere.get(timeout=600) == 5
    assert len(ledger.history) == 5


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def in_forked_child(work: object) -> int:
    """Exit status of a child that runs ``work()`` and exits with its result."""
    assert callable(work)
    child = os.fork()
    if child == 0:
        status = 99
        try:
            status = work()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@needs_fork
def test_a_fork_shares_the_budget_without_any_pickling() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    ledger.spend(TENTH)
    assert in_forked_child(lambda: spend_all(ledger, TENTH, 6)) == 6
    assert spend_all(ledger, TENTH, 10) == 3
    assert len(ledger.history) == 10


@needs_fork
def test_a_fork_while_threads_spend() -> None:
    ledger = PrivacyLedger(3.0, 0.0)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        spent = [pool.submit(spend_all, ledger, TENTH, 10) for _ in range(4)]
        children = [in_forked_child(lambda: spend_all(ledger, TENTH, 3)) for _ in range(2)]
        admitted = sum(f.result() for f in spent) + sum(children)
    assert admitted == 30
    assert len(ledger.history) == 30


@needs_fork
def test_a_child_refuses_when_the_move_to_a_file_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = PrivacyLedger(1.0, 0.0)

    def full() -> Path:
        raise OSError("disk full")

    monkeypatch.setattr("dpsvm_fast.ledger.ledger.private_directory", full)

    def work() -> int:
        try:
            ledger.spend(TENTH)
        except LedgerError:
            return 7
        return 0

    assert in_forked_child(work) == 7
    assert ledger.history == ()


@needs_fork
def test_a_child_does_not_remove_the_parents_store() -> None:
    ledger = PrivacyLedger(1.0, 0.0)
    pickle.dumps(ledger)
    code = (
        "import os, pickle\nfrom dpsvm_fast.certificates import PureEvent\n"
        "from dpsvm_fast.ledger import PrivacyLedger\n"
        "ledger = PrivacyLedger(1.0, 0.0)\n"
        "if os.fork() == 0:\n"
        "    raise SystemExit(0)\n"
        "os.wait()\n"
        "ledger.spend(PureEvent(0.5, 'add_remove'))\n"
        "print(ledger.total()[0], ledger._store.path)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    spent, path = done.stdout.split()
    assert float(spent) == 0.5
    assert not Path(path).exists(), "the creating process removes its store when it exits"
    assert not Path(path).parent.exists()
    assert ledger.total() == (0.0, 0.0)


# The slack that the ledger's text promises for rounding.
SLACK = 1e-9

epsilons = st.floats(0.05, 4.0)
deltas = st.one_of(st.just(0.0), st.floats(1e-12, 1e-2))
pure_events = st.floats(1e-3, 1.0).map(lambda e: PureEvent(e, "add_remove"))
gaussian_events = st.floats(0.5, 200.0).map(lambda s: GaussianEvent(s, 1.0, "add_remove"))
events = st.one_of(pure_events, gaussian_events)


class SharedBudget(RuleBasedStateMachine):
    """A ledger against a plain list, with moves to files and reloads between the spends."""

    @initialize(epsilon=epsilons, delta=deltas)
    def open(self, epsilon: float, delta: float) -> None:
        self.ledger = PrivacyLedger(epsilon, delta)
        self.admitted: list[PrivacyEvent] = []

    @rule(event=events)
    def spend(self, event: PrivacyEvent) -> None:
        if admitted(self.ledger, event):
            self.admitted.append(event)

    @rule(event=events)
    def check_predicts_spend(self, event: PrivacyEvent) -> None:
        try:
            self.ledger.check(event)
            fits = True
        except BudgetExceededError:
            fits = False
        assert admitted(self.ledger, event) == fits
        if fits:
            self.admitted.append(event)

    @rule()
    def move_to_a_file(self) -> None:
        assert pickle.loads(pickle.dumps(self.ledger)) is self.ledger

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "ledger.json"
            self.ledger.save(path)
            self.ledger = PrivacyLedger.load(path)

    @rule()
    def spend_what_remains(self) -> None:
        remaining = self.ledger.remaining()
        if remaining > 0:
            event = PureEvent(remaining, "add_remove")
            self.ledger.spend(event)
            self.admitted.append(event)

    @invariant()
    def nothing_is_lost_and_the_budget_holds(self) -> None:
        if not hasattr(self, "ledger"):
            return
        assert [record.event for record in self.ledger.history] == self.admitted
        epsilon, delta = self.ledger.epsilon, self.ledger.delta
        if delta > 0.0:
            assert composed_delta(self.admitted, epsilon * (1 + SLACK)) <= delta * (1 + 2 * SLACK)
        else:
            assert composed_epsilon(self.admitted, 0.0) <= epsilon * (1 + 2 * SLACK)


TestSharedBudget = SharedBudget.TestCase
# Every step composes all that was admitted: a run costs the square of its length.
# Half as many examples as other properties have: each is a history.
TestSharedBudget.settings = settings(
    stateful_step_count=30, max_examples=settings().max_examples // 2
)


@given(st.lists(events, max_size=8), st.floats(1e-9, 1e-3), st.randoms())
def test_the_total_does_not_depend_on_the_order(
    spends: list[PrivacyEvent], delta: float, random: object
) -> None:
    ledgers = [PrivacyLedger(1e4, delta) for _ in range(2)]
    for event in spends:
        ledgers[0].spend(event)
    shuffled = sorted(spends, key=lambda _: random.random())  # type: ignore[attr-defined]
    for event in shuffled:
        ledgers[1].spend(event)
    assert ledgers[0].total() == ledgers[1].total()


@given(st.lists(events, min_size=1, max_size=8), st.floats(1e-9, 1e-3))
def test_a_budget_of_exactly_the_total_admits_exactly_these(
    spends: list[PrivacyEvent], delta: float
) -> None:
    total = composed_epsilon(spends, delta)
    if total <= 0.0:
        return
    ledger = PrivacyLedger(total, delta)
    assert all(admitted(ledger, event) for event in spends)
    assert not admitted(ledger, PureEvent(max(1.0, total), "add_remove"))


@given(epsilons, deltas, st.lists(events, max_size=6))
def test_a_refusal_changes_nothing(
    epsilon: float, delta: float, spends: list[PrivacyEvent]
) -> None:
    ledger = PrivacyLedger(epsilon, delta)
    for event in spends:
        before = (ledger.history, ledger.total())
        if not admitted(ledger, event):
            assert (ledger.history, ledger.total()) == before


TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]


def model(ledger: PrivacyLedger, **changes: Any) -> OutputPerturbationSVC:
    settings = {"epsilon": 0.5, "classes": [0, 1, 2], "n_threads": 1, "noise": "gamma"}
    return OutputPerturbationSVC(**(settings | changes), ledger=ledger)


def test_clones_share_the_budget(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=0.0)
    estimator = model(ledger)
    clone(estimator).fit(*clusters)
    clone(estimator).fit(*clusters)
    with pytest.raises(BudgetExceededError):
        clone(estimator).fit(*clusters)
    assert len(ledger.history) == 2


def test_grid_search_charges_every_fit(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=3.5, delta=0.0, strict=False)
    search = GridSearchCV(model(ledger), {"C": [0.01, 0.1]}, cv=3)
    search.fit(*clusters)
    assert len(ledger.history) == 2 * 3 + 1
    with pytest.raises(BudgetExceededError):
        model(ledger).fit(*clusters)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_cross_validation_charges_every_fit(clusters: TrainingSet, n_jobs: int) -> None:
    ledger = PrivacyLedger(epsilon=2.0, delta=0.0)
    cross_val_score(model(ledger), *clusters, cv=4, n_jobs=n_jobs)
    assert len(ledger.history) == 4
    with pytest.raises(BudgetExceededError):
        model(ledger).fit(*clusters)


def test_one_vs_rest_charges_every_class(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=1.5, delta=0.0)
    OneVsRestClassifier(model(ledger, classes=[0, 1])).fit(*clusters)
    assert len(ledger.history) == 3
    with pytest.raises(BudgetExceededError):
        model(ledger).fit(*clusters)


@pytest.mark.parametrize("stored", [False, True])
def test_events_of_one_release_are_recorded_together_or_not_at_all(
    stored: bool, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.sqlite" if stored else None
    ledger = PrivacyLedger(epsilon=1.0, delta=0.0, path=path)
    half, more = (PureEvent(epsilon=e, adjacency="add_remove") for e in (0.5, 0.6))
    for refused in (ledger.check, ledger.spend):
        with pytest.raises(BudgetExceededError, match=r"needs epsilon=1\.1"):
            refused((half, more))
    assert ledger.history == ()
    ledger.spend((half, half), "two parts")
    assert [record.event for record in ledger.history] == [half, half]
    assert ledger.total()[0] == 1.0
    with pytest.raises(TypeError):
        ledger.spend((half, "event"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("path", lambda: PrivacyLedger(1.0, 0.0, path=5)),  # type: ignore[arg-type]
        ("path", lambda: PrivacyLedger(1.0, 0.0, path="a\0b")),
        ("path", lambda: PrivacyLedger.open(5)),  # type: ignore[arg-type]
        ("path", lambda: PrivacyLedger.load([])),  # type: ignore[arg-type]
        ("path", lambda: PrivacyLedger(1.0, 0.0).save(5)),  # type: ignore[arg-type]
        ("anchor", lambda: PrivacyLedger(1.0, 0.0, anchor="beside")),
        ("anchor", lambda: PrivacyLedger(1.0, 0.0, path="ledger", anchor=5)),  # type: ignore[arg-type]
        ("periods", lambda: PrivacyLedger(1.0, 0.0, periods=None)),  # type: ignore[arg-type]
        ("periods", lambda: PrivacyLedger(1.0, 0.0, periods="week")),
        ("events", lambda: composed_epsilon(None, 0.1)),  # type: ignore[arg-type]
        ("events", lambda: composed_delta(5, 0.1)),  # type: ignore[arg-type]
        ("events", lambda: dp_accounting_tree("x")),
        ("event", lambda: dp_accounting_tree(["x"])),  # type: ignore[list-item]
    ],
)
def test_arguments_of_other_types_are_refused_by_name(
    name: str, call: Callable[[], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, InvalidParameterError), match=f"^{name}: "):
        call()
    assert list(tmp_path.iterdir()) == []
