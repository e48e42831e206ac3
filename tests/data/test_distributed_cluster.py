"""Fits on a real Dask cluster: threads by default, processes and accidents among the slow tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dpsvm_fast as dp
from dpsvm_fast.data import Partitions, fit
from dpsvm_fast.data import executors as tasks
from dpsvm_fast.exceptions import PartitionError
from dpsvm_fast.model_selection import PrivateGridSearch

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 2000)
X = np.eye(3, 6)[Y] + 0.3 * RNG.normal(size=(2000, 6))
LINEAR = dp.PrivateLinearSVC(
    4.0, 1e-5, classes=[0, 1, 2], bounds=(-2, 2), random_state=5, n_threads=1
)

DESCENT = dp.GradientPerturbationSVC(
    classes=[0, 1, 2], data_norm=1.5, n_steps=5, random_state=5, n_threads=1
)
PCA = dp.PrivatePCA(2, data_norm=1.5, random_state=5)


def cluster(processes: bool, **settings: Any) -> Any:
    """Two workers on the loopback interface."""
    # Without a dashboard there is still a server for it, on all interfaces if none is named.
    options: dict[str, Any] = {
        "dashboard_address": "127.0.0.1:0",
        "worker_dashboard_address": "127.0.0.1:0",
    } | settings
    if processes:
        options["host"] = "127.0.0.1"
    return distributed.LocalCluster(
        n_workers=2, threads_per_worker=options.pop("threads", 1), processes=processes, **options
    )


@pytest.fixture(scope="module")
def threads() -> Iterator[Any]:
    with cluster(False) as workers, distributed.Client(workers) as client:
        yield client


@pytest.fixture
def processes() -> Iterator[Any]:
    with cluster(True) as workers, distributed.Client(workers) as client:
        yield client


@pytest.mark.sampled
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("estimator", [DESCENT, PCA], ids=["descent", "components"])
def test_dask_and_this_process_agree(threads: Any, estimator: Any, resident: bool) -> None:
    parts = Partitions.from_arrays(X, Y, rows_per_partition=130)
    here = fit(clone(estimator), parts, resident=True)
    there = fit(clone(estimator), parts, client=threads, resident=resident)
    name = "components_" if estimator is PCA else "coef_"
    assert np.array_equal(getattr(here, name), getattr(there, name))
    assert not tasks._KEPT


def test_dask_collections_are_computed_by_the_tasks(threads: Any) -> None:
    da = pytest.importorskip("dask.array")
    blocks, labels = da.from_array(X, chunks=(300, 6)), da.from_array(Y, chunks=300)
    parts = Partitions.from_dask(blocks, labels)
    here = fit(clone(DESCENT), Partitions.from_arrays(X, Y), resident=True)
    there = fit(clone(DESCENT), parts, client=threads)
    assert np.array_equal(here.coef_, there.coef_)
    kept = blocks.persist()
    with pytest.raises(ValueError, match="persisted"):
        Partitions.from_dask(kept, labels)


@pytest.mark.slow
def test_pipelines_agree(threads: Any) -> None:
    parts = Partitions.from_arrays(X, Y, rows_per_partition=130)
    kernel = dp.PrivateKernelSVC(
        classes=[0, 1, 2], bounds=(-2, 2), kernel="rbf", gamma=1.0, n_components=10, random_state=5
    )
    for estimator in (LINEAR, kernel):
        here = fit(clone(estimator), parts, resident=True)
        there = fit(clone(estimator), parts, client=threads, resident=True)
        assert np.array_equal(here.coef_, there.coef_)


def test_a_failing_loader_is_named(threads: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def load() -> Any:
        raise OSError("secret 918273645")

    parts = Partitions.from_loaders([load], n_features=6)
    ledger = dp.PrivacyLedger(9.0, 1e-4, strict=False)
    model = clone(LINEAR).set_params(ledger=ledger)
    with pytest.raises(PartitionError, match="its loader raised OSError"):
        fit(model, parts, client=threads)
    assert ledger.history
    assert not hasattr(model, "coef_")
    # Neither does a worker write it into its log.
    assert "918273645" not in "".join(capfd.readouterr())


def killer(client: Any, path: Path) -> threading.Thread:
    """Kills a worker once a few partitions have been loaded."""

    def work() -> None:
        while len(list(path.glob("*"))) < 12:
            time.sleep(0.02)
        workers = client.run(os.getpid)
        os.kill(next(iter(workers.values())), signal.SIGKILL)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


class Noted:
    """A loader that leaves a file whenever it is called."""

    def __init__(self, loader: Any, path: Path) -> None:
        self.loader, self.path = loader, path

    def __call__(self) -> Any:
        (self.path / f"{time.time_ns()}-{os.getpid()}").touch()
        time.sleep(0.02)
        return self.loader()


@pytest.mark.slow
@pytest.mark.parametrize("resident", [False, True])
def test_a_killed_worker_changes_nothing(processes: Any, tmp_path: Path, resident: bool) -> None:
    parts = Partitions.from_arrays(X, Y, rows_per_partition=100)
    model = clone(DESCENT).set_params(n_steps=30)
    here = fit(clone(model), parts, resident=True)
    noted = Partitions.from_loaders(
        [Noted(loader, tmp_path) for loader in parts.loaders], n_features=6
    )
    thread = killer(processes, tmp_path)
    there = fit(clone(model), noted, client=processes, resident=resident)
    thread.join()
    assert np.array_equal(here.coef_, there.coef_)
    loads = len(list(tmp_path.glob("*")))
    # Thirty sums of twenty partitions; kept ones are loaded once, and again where they were lost.
    assert 20 < loads <= 60 if resident else loads >= 30 * 20


@pytest.mark.slow
def test_an_interrupt_stops_the_workers(tmp_path: Path) -> None:
    code = f"""
import os, signal, sys, threading, time
from pathlib import Path
import numpy as np
sys.path.insert(0, {str(Path(__file__).resolve().parents[1])!r})
from distributed import Client
from dpsvm_fast import PrivacyLedger, PrivateLinearSVC
from dpsvm_fast.data import Partitions, fit
from data.test_distributed_cluster import Noted, X, Y, cluster
path = Path({str(tmp_path)!r})
if __name__ == "__main__":
    with cluster(True) as workers, Client(workers) as client:
        def interrupt():
            while len(list(path.glob("*"))) < 30:
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        parts = Partitions.from_arrays(X, Y, rows_per_partition=100)
        parts = Partitions.from_loaders([Noted(l, path) for l in parts.loaders], n_features=6)
        ledger = PrivacyLedger(9.0, 1e-4, strict=False)
        model = PrivateLinearSVC(4.0, 1e-5, classes=[0, 1, 2], ledger=ledger)
        try:
            fit(model, parts, client=client)
        except KeyboardInterrupt:
            print("interrupted")
        assert ledger.history and not hasattr(model, "coef_")
        time.sleep(0.5)
        loads = len(list(path.glob("*")))
        time.sleep(1.0)
        assert len(list(path.glob("*"))) == loads < 300
        print("stopped")
"""
    script = tmp_path.parent / "interrupted.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["interrupted", "stopped"], done.stderr


@pytest.mark.slow
def test_searches_run_on_a_cluster(processes: Any) -> None:
    joblib = pytest.importorskip("joblib")

    def search() -> Any:
        found = PrivateGridSearch(
            dp.PrivateLinearSVC(classes=[0, 1, 2], bounds=(-2, 2)),
            {"margin": [0.0, 1.0], "whiten": [False, True]},
            epsilon=4.0,
            delta=1e-5,
            random_state=3,
        )
        return found.fit(X[:400], Y[:400])

    def many() -> Any:
        jobs = (joblib.delayed(_coefficients)(seed) for seed in range(8))
        return np.array(joblib.Parallel(n_jobs=2)(jobs))

    here, fits = search(), many()
    with joblib.parallel_config(backend="dask", n_jobs=2):
        there, fits_there = search(), many()
    assert here.best_params_ == there.best_params_
    assert np.array_equal(here.best_estimator_.coef_, there.best_estimator_.coef_)
    assert np.array_equal(fits, fits_there)
    assert len(np.unique(fits[:, 0, 0])) == 8


def _coefficients(seed: int) -> Any:
    return clone(LINEAR).set_params(random_state=seed).fit(X, Y).coef_


PEAK = """
import sys, threading, time
import numpy as np
from dpsvm_fast import PrivatePCA
from dpsvm_fast.data import Partitions, fit

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) // 1024

path, kind = sys.argv[1:]
if kind == "map":
    rows = np.load(path + ".npy", mmap_mode="r")
    parts = Partitions.from_arrays(rows, rows_per_partition=20_000)
elif kind == "parquet":
    import pyarrow.parquet
    parts = Partitions.from_parquet(path + ".parquet", label=None)
before = peak()
model = fit(PrivatePCA(5, data_norm=8.0, n_threads=1), parts)
assert np.isfinite(model.components_).all()
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("kind", ["map", "parquet"])
def test_files_are_read_in_bounded_memory(tmp_path: Path, kind: str) -> None:
    """A file of 320 MB in partitions of 6.4 MB each."""
    path = tmp_path / "rows"
    rows = np.random.default_rng(0).normal(size=(1_000_000, 40))
    if kind == "map":
        np.save(path, rows)
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        table = pa.table({f"x{j}": rows[:, j] for j in range(40)})
        pq.write_table(table, f"{path}.parquet", row_group_size=20_000, compression="none")
    del rows
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path), kind],
        capture_output=True, text=True, timeout=170, check=True,
    )  # fmt: skip
    # A few partitions, and what allocators keep; not the file.
    assert int(done.stdout) < 100


@pytest.mark.slow
def test_a_worker_that_holds_records_has_them_packed(processes: Any) -> None:
    """What is kept, and that it is given back."""
    rows = np.random.default_rng(0).normal(size=(200_000, 20))
    parts = Partitions.from_arrays(rows, (rows[:, 0] > 0).astype(int), rows_per_partition=20_000)
    model = dp.PrivateLinearSVC(4.0, classes=[0, 1], n_threads=1)
    fit(model, parts, client=processes, resident=True)
    assert model.score(rows, (rows[:, 0] > 0).astype(int)) > 0.9
    assert set(processes.run(_n_kept).values()) == {0}
    fit(dp.PrivateCenter(), parts, client=processes, resident=True)
    assert set(processes.run(_n_kept).values()) == {0}


def _n_kept() -> int:
    return len(tasks._KEPT)
