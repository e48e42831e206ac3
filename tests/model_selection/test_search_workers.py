"""Workers of a search end with the process that searches, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

SEARCH = """
import os, pathlib, sys, time
from dpsvm_fast.certificates import PureEvent
from dpsvm_fast.model_selection import DeclaredTrainer, PrivateGridSearch

def train(X, y, shift, **_):
    pathlib.Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(1200.0)

def events(epsilon, delta, adjacency, **_):
    return (PureEvent(epsilon, adjacency),)

search = PrivateGridSearch(
    DeclaredTrainer(train, events), {"shift": [0.0, 1.0]}, delta=0.0, n_jobs=int(sys.argv[2])
)
search.fit([[0.0]] * 2000, [0, 1] * 1000)
"""


@pytest.mark.skipif(os.name == "nt", reason="no signals between processes")
@pytest.mark.parametrize(
    ("number", "n_jobs"),
    [(signal.SIGTERM, 3), pytest.param(signal.SIGKILL, 2, marks=pytest.mark.slow)],
)
def test_no_worker_outlives_the_search(number: signal.Signals, n_jobs: int, tmp_path: Path) -> None:
    """Two candidates, so that with three workers one would have nothing to do."""
    arguments = [sys.executable, "-c", SEARCH.replace("sys.argv[1]", repr(str(tmp_path)))]
    with subprocess.Popen(
        [*arguments, "", str(n_jobs)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as search:
        deadline = time.monotonic() + 300.0
        while len(workers := [int(p.name) for p in tmp_path.iterdir()]) < 2:
            assert search.poll() is None, search.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert search.pid not in workers
        search.send_signal(number)
        # Ends when the last child has; fits that nobody ends go on for twenty minutes.
        search.communicate(timeout=600.0)
    assert search.returncode == -number


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="children by /proc")
def test_a_worker_that_has_not_begun_ends_too(tmp_path: Path) -> None:
    """Left alone, it would wait for a task for five minutes."""
    arguments = [sys.executable, "-c", SEARCH.replace("sys.argv[1]", repr(str(tmp_path)))]
    with subprocess.Popen([*arguments, "", "2"], stdout=subprocess.PIPE, text=True) as search:
        deadline = time.monotonic() + 300.0
        while not any(b"popen_loky" in started for started in children(search.pid)):
            assert search.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        search.kill()
        search.communicate(timeout=200.0)


def children(process: int) -> list[bytes]:
    """Command lines of the children of a process."""
    found = []
    for number in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        with suppress(OSError):
            found.append(Path(f"/proc/{number}/cmdline").read_bytes())
    return found
