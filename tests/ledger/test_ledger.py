"""One budget for everybody: threads, processes, copies, pickles."""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone

from dpsvm_fast.accounting import composed_epsilon, gaussian_sigma
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, LedgerError
from dpsvm_fast.ledger import PrivacyLedger, check_ledger
from oracles.ledgers import spend_all

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
        assert here + elsewhere.get(timeout=120) == 5
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
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    spent, path = done.stdout.split()
    assert float(spent) == 0.5
    assert not Path(path).exists(), "the creating process removes its store when it exits"
    assert not Path(path).parent.exists()
    assert ledger.total() == (0.0, 0.0)
