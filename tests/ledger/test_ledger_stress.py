"""A ledger under load and under violence: many threads, many processes, kill -9, damaged files."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest

from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.ledger import PrivacyLedger
from oracles.ledgers import assert_refused, spend_all

DATA = Path(__file__).parents[1] / "stored"
# A power of two: sums are exact, and the budget is filled to the last spend.
TINY = PureEvent(2.0**-20, "add_remove")


def run(threads: list[threading.Thread]) -> None:
    """Start all, and wait for all."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def check_threads(n_threads: int, tries: int, *, adaptive: bool) -> None:
    """Let threads try more than the budget allows, and count."""
    fits = n_threads * tries * 9 // 10
    ledger = PrivacyLedger(fits * TINY.epsilon, 0.0, adaptive=adaptive)
    counts = [0] * n_threads
    start = threading.Barrier(n_threads)

    def work(number: int) -> None:
        start.wait()
        counts[number] = spend_all(ledger, TINY, tries)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n_threads)]
    run(threads)
    assert sum(counts) == fits == len(ledger.history)
    assert Fraction(ledger.total()[0]) == fits * Fraction(TINY.epsilon)
    assert ledger.remaining() == 0.0


@pytest.mark.parametrize("tries", [40, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("adaptive", [False, True])
def test_a_hundred_threads_never_exceed_the_budget(adaptive: bool, tries: int) -> None:
    check_threads(100, tries, adaptive=adaptive)


def test_threads_with_gaussian_events_never_exceed_the_budget() -> None:
    ledger = PrivacyLedger(1.0, 1e-5)
    event = GaussianEvent(30.0, 1.0, "add_remove")
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(spend_all(ledger, event, 10)))
        for _ in range(20)
    ]
    run(threads)
    admitted = sum(counts)
    assert len(ledger.history) == admitted
    assert composed_epsilon([event] * admitted, 1e-5) <= 1.0 + 1e-9
    assert composed_epsilon([event] * (admitted + 1), 1e-5) > 1.0


def _process(path: str, epsilon: float, tries: int, counts: multiprocessing.Queue[int]) -> None:
    counts.put(spend_all(PrivacyLedger(epsilon, 0.0, path=path), TINY, tries))


@pytest.mark.parametrize(
    ("n_processes", "tries"), [(2, 24), pytest.param(8, 200, marks=pytest.mark.slow)]
)
def test_processes_share_one_file(tmp_path: Path, n_processes: int, tries: int) -> None:
    """They try more than the budget allows."""
    path = tmp_path / "ledger.sqlite"
    fits = n_processes * tries * 3 // 4
    epsilon = fits * TINY.epsilon
    context = multiprocessing.get_context("spawn")
    counts = context.Queue()
    arguments = (os.fspath(path), epsilon, tries, counts)
    workers = [context.Process(target=_process, args=arguments) for _ in range(n_processes)]
    for worker in workers:
        worker.start()
    admitted = sum(counts.get(timeout=300) for _ in workers)
    for worker in workers:
        worker.join()
    again = PrivacyLedger(epsilon, 0.0, path=path)
    assert admitted == fits == len(again.history)
    assert again.remaining() == 0.0


SPENDER = """
import sys
from dpsvm_fast.certificates import PureEvent
from dpsvm_fast.ledger import PrivacyLedger
ledger = PrivacyLedger(1.0, 0.0, path=sys.argv[1])
while True:
    ledger.spend(PureEvent(2.0 ** -20, "add_remove"))
    print("spent", flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")
def test_a_killed_process_leaves_a_ledger_with_every_spend(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    acknowledged = 0
    for spends in (1, 7, 20):
        with subprocess.Popen(
            [sys.executable, "-c", SPENDER, os.fspath(path)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(spends):
                assert process.stdout.readline() == "spent\n"
            process.send_signal(signal.SIGKILL)
            acknowledged += spends + len(process.stdout.read().split())
        ledger = PrivacyLedger(1.0, 0.0, path=path)
        # A spend that was committed and not told of may be there; none that was told of is missing.
        assert acknowledged <= len(ledger.history) <= acknowledged + 1
        acknowledged = len(ledger.history)
        ledger.spend(TINY)
        acknowledged += 1


def test_a_crash_while_saving_leaves_the_old_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.json"
    ledger = PrivacyLedger(1.0, 0.0)
    ledger.spend(TINY)
    ledger.save(path)
    before = path.read_bytes()
    ledger.spend(TINY)

    def fail(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="space"):
        ledger.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["ledger.json"]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_refused(tmp_path: Path, share: float) -> None:
    for name in ("ledger_v1.sqlite", "ledger_v1.json"):
        content = (DATA / name).read_bytes()
        (tmp_path / name).write_bytes(content[: int(share * len(content))])
    assert_refused(lambda: PrivacyLedger(1.0, 1e-5, path=tmp_path / "ledger_v1.sqlite").total())
    assert_refused(lambda: PrivacyLedger.load(tmp_path / "ledger_v1.json"))


def test_files_of_the_first_version_are_read_as_ever(tmp_path: Path) -> None:
    shutil.copy(DATA / "ledger_v1.sqlite", tmp_path / "ledger.sqlite")
    (tmp_path / "ledger.sqlite").chmod(0o600)
    stored = PrivacyLedger(1.0, 1e-5, path=tmp_path / "ledger.sqlite")
    loaded = PrivacyLedger.load(DATA / "ledger_v1.json")
    assert not stored.adaptive
    assert not loaded.adaptive
    assert stored.history == loaded.history
    kinds = [record.event.tag for record in stored.history]
    assert kinds == ["gaussian", "pure", "subsampled_gaussian", "zcdp", "objective", "objective"]
    # What the version that wrote them said.
    assert stored.total() == loaded.total()
    # About: what is added for rounding, another grid of losses, a tighter bound of objectives.
    assert stored.total()[0] == pytest.approx(0.29275565570268536, rel=2e-4)
    stored.spend(PureEvent(0.1, "add_remove"))
    assert len(PrivacyLedger(1.0, 1e-5, path=tmp_path / "ledger.sqlite").history) == 7


def test_what_is_written_is_what_the_first_version_wrote(tmp_path: Path) -> None:
    loaded = PrivacyLedger.load(DATA / "ledger_v1.json")
    loaded.save(tmp_path / "ledger.json")
    written = (
        json.loads(p.read_text()) for p in (tmp_path / "ledger.json", DATA / "ledger_v1.json")
    )
    assert next(written) == next(written)
