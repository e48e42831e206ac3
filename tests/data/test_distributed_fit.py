"""Fits over partitions: the estimator's own, bit for bit, whoever sums and however rows are cut."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import dpsvm_fast as dp
from dpsvm_fast.data import Partitions, executors, fit
from dpsvm_fast.exceptions import ClusterError
from dpsvm_fast.mechanisms import gradient as descent_run
from dpsvm_fast.mechanisms.gradient import GradientPerturbation
from dpsvm_fast.mechanisms.pipeline import DescentRule
from oracles.synchronous_cluster import Cluster

pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
Patch = pytest.MonkeyPatch
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 3, 700)
X = np.eye(3, 6)[Y] + 0.3 * RNG.normal(size=(700, 6))
SPARSE = sparse.csr_matrix(np.where(RNG.random(X.shape) < 0.4, X, 0.0))
CUTS = (1000, 150, 7)
SECRET = 918273645.0

TRANSFORMERS: dict[str, Any] = {
    "centre": dp.PrivateCenter(1.0, data_norm=1.5),
    "pure centre": dp.PrivateCenter(1.0, 0.0, data_norm=1.5),
    "whitener": dp.PrivateWhitener(1.0, data_norm=1.5, adjacency="replace_one"),
    "components": dp.PrivatePCA(3, 1.0, data_norm=1.5, centre=[0.3] * 6),
    "scaler": dp.PrivateStandardScaler(1.0, bounds=(-2, 3)),
    "public count": dp.PrivateStandardScaler(1.0, bounds=(-2, 3), adjacency="replace_one"),
}
LINEAR = dp.PrivateLinearSVC(4.0, 1e-5, classes=[0, 1, 2], bounds=(-2, 2))
KERNEL = dp.PrivateKernelSVC(
    4.0, 1e-5, classes=[0, 1, 2], bounds=(-2, 2), kernel="rbf", gamma=0.5, n_components=20
)
DESCENT = dp.GradientPerturbationSVC(4.0, 1e-5, classes=[0, 1, 2], data_norm=1.5, n_steps=12)
DESCENTS: dict[str, Any] = {
    "linear": LINEAR,
    "whitened": clone(LINEAR).set_params(whiten=True),
    "replaced": clone(LINEAR).set_params(adjacency="replace_one", whiten=True),
    "kernel": KERNEL,
    "additive": clone(KERNEL).set_params(kernel="additive", knots=4),
    "kernel of lengths": clone(KERNEL).set_params(normalize=False, bounds=None, data_norm=1.5),
    "descent": DESCENT,
    "adam": clone(DESCENT).set_params(optimizer="adam", sampling_rate=1.0),
    "last iterate": clone(DESCENT).set_params(
        accountant="last_iterate", C=0.05, average=0, max_samples=2000
    ),
}


def partitions(rows: Any = X, step: int = 150, labels: Any = Y) -> Partitions:
    return Partitions.from_arrays(rows, labels, rows_per_partition=step)


def loaded_by(loaders: list[Any], **facts: Any) -> Partitions:
    return Partitions.from_loaders(loaders, n_features=6, **facts)


def seeded(estimator: Any) -> Any:
    return clone(estimator).set_params(random_state=5, n_threads=1)


def check_same(first: Any, second: Any) -> None:
    """All that was released, to the last bit; statements but for who is trusted."""
    released = {name for name in vars(first) if name.endswith("_") and name[0] != "_"}
    assert released == {name for name in vars(second) if name.endswith("_") and name[0] != "_"}
    for name in released - {"privacy_"}:
        a, b = getattr(first, name), getattr(second, name)
        if isinstance(a, tuple):
            assert all(map(np.array_equal, a, b)), name
        elif isinstance(a, dict) or hasattr(a, "seed"):
            assert a == b, name
        else:
            assert np.array_equal(a, b), name
    a, b = first.privacy_, second.privacy_
    assert a.events == b.events
    assert a.parts == b.parts
    assert (a.epsilon, a.delta, a.assumed_public) == (b.epsilon, b.delta, b.assumed_public)
    assert set(a.caveats) <= set(b.caveats)


@pytest.fixture
def exact_sums(monkeypatch: Patch) -> None:
    """The local descent sums as partitions are summed: exactly, also where rows are dense."""
    for kind in (DescentRule, GradientPerturbation):
        options = kind.descent_options

        def exact(self: Any, *given: Any, options: Any = options) -> dict[str, Any]:
            return options(self, *given) | {"exact_sums": True}

        monkeypatch.setattr(kind, "descent_options", exact)


@pytest.mark.sampled
@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize(
    "rows",
    [SPARSE, *(pytest.param(rows, marks=pytest.mark.slow) for rows in (X, X.astype(np.float32)))],
    ids=["csr", "f64", "f32"],
)
def test_transformers_have_the_bits_of_their_own_fit(name: str, rows: Any) -> None:
    local = seeded(TRANSFORMERS[name]).fit(rows)
    for step in CUTS:
        check_same(local, fit(seeded(TRANSFORMERS[name]), partitions(rows, step)))
    cut = partitions(rows, 150, None)
    check_same(local, fit(seeded(TRANSFORMERS[name]), cut, resident=True, n_threads=2))
    check_same(local, fit(seeded(TRANSFORMERS[name]), cut, client=Cluster()))


@pytest.mark.sampled
@pytest.mark.parametrize("name", DESCENTS)
@pytest.mark.parametrize(
    "rows", [SPARSE, pytest.param(X, marks=pytest.mark.slow)], ids=["csr", "dense"]
)
@pytest.mark.usefixtures("exact_sums")
def test_descents_have_the_bits_of_their_own_fit(name: str, rows: Any) -> None:
    local = seeded(DESCENTS[name]).fit(rows, Y)
    for step in CUTS[:2]:
        check_same(local, fit(seeded(DESCENTS[name]), partitions(rows, step), resident=True))
    check_same(local, fit(seeded(DESCENTS[name]), partitions(rows), n_threads=3))
    client = Cluster()
    found = fit(seeded(DESCENTS[name]), partitions(rows), client=client, resident=True)
    check_same(local, found)
    # Nothing is kept once the fit is over.
    assert not any(client.stores.values())
    assert not executors._KEPT


def test_sparse_descents_need_no_other_sums() -> None:
    plain = clone(LINEAR).set_params(whiten=False)
    local = seeded(plain).fit(SPARSE, Y)
    check_same(local, fit(seeded(plain), partitions(SPARSE), resident=True))


@pytest.mark.parametrize("name", ["linear", "kernel", "descent"])
def test_dense_descents_differ_by_rounding_alone(name: str) -> None:
    local = seeded(DESCENTS[name]).fit(X, Y)
    found = fit(seeded(DESCENTS[name]), partitions(), resident=True)
    size = np.abs(local.coef_).max()
    assert np.abs(local.coef_ - found.coef_).max() < 1e-4 * size
    # Another seed is another model: the bound above would see it.
    other = clone(DESCENTS[name]).set_params(random_state=6, n_threads=1).fit(X, Y)
    assert np.abs(local.coef_ - other.coef_).max() > 1e-2 * size


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_batches_do_not_depend_on_who_sums(optimizer: str) -> None:
    model = clone(DESCENT).set_params(optimizer=optimizer, sampling_rate=0.05)
    first = fit(seeded(model), partitions(), resident=True)
    check_same(first, fit(seeded(model), partitions(), n_threads=2))
    check_same(first, fit(seeded(model), partitions(), client=Cluster(), resident=True))
    # But on the cut: the batch of a partition is drawn from its number.
    other = fit(seeded(model), partitions(step=100))
    assert not np.array_equal(first.coef_, other.coef_)


def test_empty_partitions_count_nothing() -> None:
    cut = partitions().loaders
    empty: list[Any] = [lambda: (np.empty((0, 6)), np.empty(0)), lambda: (np.empty((0, 6)), [])]
    parts = loaded_by([empty[0], *cut[:2], empty[1], *cut[2:]])
    check_same(seeded(dp.PrivateCenter()).fit(X), fit(seeded(dp.PrivateCenter()), parts))
    with pytest.raises(ValueError, match="expected 1 to"):
        fit(seeded(dp.PrivateCenter()), loaded_by(empty))


def test_the_statement_says_who_is_trusted() -> None:
    here = fit(clone(LINEAR), partitions(), resident=True)
    there = fit(clone(LINEAR), partitions(), client=Cluster(), resident=True)
    assert here.privacy_.private
    assert not any("cluster" in text for text in here.privacy_.caveats)
    (added,) = set(there.privacy_.caveats) - set(here.privacy_.caveats)
    for word in ("Dask cluster (inproc)", "without noise", "key", "TLS"):
        assert word in added
    assert dp.verify(there.privacy_)
    assert "Dask cluster" in str(there.privacy_)


def test_open_connections_are_warned_about() -> None:
    for address, expected in (("tcp://10.0.0.7:8786", True), ("tcp://127.0.0.1:1", False)):
        client = Cluster(address=address)
        if not expected:
            fit(dp.PrivateCenter(), partitions(), client=client)
            continue
        with pytest.warns(dp.PrivacyLeakWarning, match="without encryption") as caught:
            fit(dp.PrivateCenter(), partitions(), client=client)
        assert caught[0].filename == __file__


@pytest.mark.parametrize("resident", [False, True])
def test_an_interrupt_cancels_and_drops_everything(resident: bool) -> None:
    begun: list[str] = []

    def interrupted(function: Any) -> None:
        begun.append(function.__name__)
        if begun.count("share_of_bundle") == 12:
            raise KeyboardInterrupt

    ledger = dp.PrivacyLedger(4.0, 1e-5)
    client = Cluster(before=interrupted)
    model = clone(LINEAR).set_params(ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        fit(model, partitions(), client=client, resident=resident)
    assert ledger.history
    assert not hasattr(model, "coef_")
    # All that was submitted for the sum that was interrupted, and what was held for all sums.
    told = list(zip(client.keys, client.futures, strict=False))
    last = client.keys[-1].partition("-sum-")[0] + "-"
    recipes = [future for key, future in told if key.endswith("-recipe")]
    assert all(future.released for key, future in told if key.startswith(last))
    assert recipes[-1].released
    assert not any(client.stores.values())

    def stopped() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(clone(LINEAR), loaded_by([*partitions().loaders, stopped]), resident=resident)
    assert not executors._KEPT


@pytest.mark.parametrize("lost_at", [0, 1, 5, 20])
@pytest.mark.usefixtures("exact_sums")
def test_a_lost_worker_changes_nothing(lost_at: int) -> None:
    local = seeded(LINEAR).fit(X, Y)
    client = Cluster({"a": 1, "b": 1, "c": 1}, lost_at=lost_at)
    found = fit(seeded(LINEAR), partitions(), client=client, resident=True)
    check_same(local, found)
    assert len(client.threads) == 2


def test_a_cluster_that_loses_everything_is_given_up() -> None:
    with pytest.raises(ClusterError, match="no workers left"):
        fit(clone(LINEAR), partitions(), client=Cluster({"a": 1}, lost_at=3), resident=True)


def test_errors_of_the_cluster_are_not_quoted() -> None:
    class Broken(Cluster):
        def submit(self, *given: Any, **named: Any) -> Any:
            future = super().submit(*given, **named)
            future.value = ValueError(f"secret {SECRET}")
            return future

    with pytest.raises(ClusterError, match="by the workers: ValueError") as caught:
        fit(dp.PrivateCenter(), partitions(step=1000), client=Broken())
    assert caught.value.__cause__ is None


def test_what_is_sent_has_no_noise_and_what_returns_is_small() -> None:
    client = Cluster()
    fit(seeded(LINEAR), partitions(), client=client, resident=True)
    biggest = max(len(pickle.dumps(result)) for result in client.results)
    assert biggest < 4000
    # Neither a source of noise nor the records could be pickled.
    assert not any(b"NoiseSource" in task or b"Records" in task for task in client.sent)
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        pickle.dumps(dp._core.NoiseSource(1))


def test_partial_fit_goes_on_from_a_fit_over_partitions() -> None:
    model = fit(seeded(DESCENT), partitions(), client=Cluster())
    said = model.privacy_.caveats
    model.partial_fit(X, Y)
    assert set(said) <= set(model.privacy_.caveats)


def test_steps_of_partial_runs_are_cut_like_local_ones(monkeypatch: Patch) -> None:
    """A run of so many steps that one call cannot draw their noise is made in several."""
    monkeypatch.setattr(descent_run, "MAX_NUMBERS", 5 * 21)
    local = seeded(DESCENT).fit(SPARSE, Y)
    check_same(local, fit(seeded(DESCENT), partitions(SPARSE), resident=True))


def test_dropping_a_partition_is_seen() -> None:
    """Negative control: the comparison above fails where a sum lacks a partition."""
    local = seeded(dp.PrivateCenter()).fit(X)
    found = fit(seeded(dp.PrivateCenter()), loaded_by(list(partitions().loaders)[:-1]))
    assert not np.array_equal(local.mean_, found.mean_)


@pytest.mark.sampled
@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("estimator", [LINEAR, DESCENT], ids=["linear", "descent"])
def test_steps_are_reported_and_nothing_else_changes(estimator: Any, resident: bool) -> None:
    told: list[tuple[int, int]] = []
    parts = Partitions.from_arrays(X, Y, rows_per_partition=300)
    watched, alone = (clone(estimator).set_params(random_state=5) for _ in range(2))
    fit(watched, parts, resident=resident, on_step=lambda *how_far: told.append(how_far))
    fit(alone, parts, resident=resident)
    n_steps = 12
    if hasattr(watched, "n_steps_"):
        # The last ones calibrate.
        n_steps = watched.n_steps_ - 2 * math.ceil(0.01 * watched.n_steps_)
    assert told == [(done, n_steps) for done in range(1, n_steps + 1)]
    assert np.array_equal(watched.coef_, alone.coef_)


def test_a_watcher_is_a_function_and_may_stop_a_fit() -> None:
    parts = Partitions.from_arrays(X, Y)
    with pytest.raises(TypeError, match="on_step: got int"):
        fit(clone(LINEAR), parts, on_step=3)  # type: ignore[arg-type]

    def stop(done: int, n_steps: int) -> None:
        raise KeyboardInterrupt

    model, ledger = clone(LINEAR), dp.PrivacyLedger(10.0, 1e-4)
    with pytest.raises(KeyboardInterrupt):
        fit(model.set_params(ledger=ledger), parts, on_step=stop)
    assert not hasattr(model, "coef_")
    assert len(ledger.history) > 0
