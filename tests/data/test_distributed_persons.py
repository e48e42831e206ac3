"""Persons and weights in partitions: the bits of one fit, and nobody in two partitions."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from test_distributed_fit import (
    CUTS,
    DESCENT,
    DESCENTS,
    LINEAR,
    SPARSE,
    TRANSFORMERS,
    Patch,
    X,
    Y,
    check_same,
    exact_sums,
    loaded_by,
    seeded,
)

from dpsvm_fast import PrivacyLedger, verify
from dpsvm_fast.data import Partitions, executors, fit, partitioned
from dpsvm_fast.exceptions import InvalidParameterError, PartitionError
from oracles.synchronous_cluster import Cluster

__all__ = ["exact_sums"]

pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning"),
    pytest.mark.proof("persons", "Partitions"),
]
RNG = np.random.default_rng(2)
# Persons of 1 to some 70 rows, in any order.
GROUPS = (60 * RNG.random(700) ** 1.7).astype(np.int64)
WEIGHTS = RNG.uniform(0.0, 1.5, 700)
WEIGHTS[GROUPS == 7] = 0.0
OWN = {"groups": GROUPS, "sample_weight": WEIGHTS}
WEIGHTED = {"max_weight": 1.2, "class_weight": {0: 3.0, 1: 1.0, 2: 2.0}}


def arrays(rows: Any = X, step: int = 150, **own: Any) -> Partitions:
    return Partitions.from_arrays(rows, Y, rows_per_partition=step, **own)


def loaders(owners: Any = None, pieces: Any = None) -> list[Any]:
    """Partitions whose persons are whole, unless other pieces are given."""
    own = (GROUPS, WEIGHTS) if owners is None else owners
    return [lambda p=p: (X[p], Y[p], *(one[p] for one in own)) for p in pieces or thirds()]


def thirds() -> list[Any]:
    """Which rows are of which persons."""
    return [GROUPS < 20, GROUPS >= 40, (GROUPS >= 20) & (GROUPS < 40)]


@pytest.mark.sampled
@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "csr"])
def test_transformers_have_the_bits_of_their_own_fit(name: str, rows: Any) -> None:
    local = seeded(TRANSFORMERS[name]).fit(rows, groups=GROUPS)
    for step in CUTS:
        check_same(local, fit(seeded(TRANSFORMERS[name]), arrays(rows, step, groups=GROUPS)))
    cut = arrays(rows, 150, groups=GROUPS)
    there = fit(seeded(TRANSFORMERS[name]), cut, client=Cluster(), resident=True)
    check_same(local, there)
    assert there.privacy_.unit == "person"


@pytest.mark.sampled
@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "csr"])
def test_weighted_transformers_have_the_bits_of_their_own_fit(name: str, rows: Any) -> None:
    model = clone(TRANSFORMERS[name]).set_params(max_weight=1.2)
    for own in (OWN, {"sample_weight": WEIGHTS}):
        local = seeded(model).fit(rows, **own)
        for step in CUTS:
            check_same(local, fit(seeded(model), arrays(rows, step, **own)))


@pytest.mark.sampled
@pytest.mark.parametrize("name", DESCENTS)
@pytest.mark.parametrize("rows", [X, SPARSE], ids=["dense", "csr"])
@pytest.mark.usefixtures("exact_sums")
def test_descents_have_the_bits_of_their_own_fit(name: str, rows: Any) -> None:
    model = clone(DESCENTS[name]).set_params(**WEIGHTED)
    local = seeded(model).fit(rows, Y, **OWN)
    if name == "last iterate" and rows is X:
        # Dense coefficients are truncated in parts alone, and the noise for persons knows it.
        whole, local = local, fit(seeded(model), arrays(rows, 300, **OWN))
        assert whole.privacy_.parts[0].rounding < local.privacy_.parts[0].rounding
        assert local.privacy_.parts[0].last_iterate is not None
    check_same(local, fit(seeded(model), arrays(rows, 150, **OWN), resident=True))
    if rows is X:
        own = loaded_by(_picklable(loaders()), groups=True, sample_weight=True)
        check_same(local, fit(seeded(model), own, client=Cluster()))


@pytest.mark.parametrize("name", [name for name in DESCENTS if name != "last iterate"])
@pytest.mark.usefixtures("exact_sums")
def test_balanced_classes_have_the_bits_of_one_fit(name: str) -> None:
    model = clone(DESCENTS[name]).set_params(class_weight="balanced", max_weight=1.2)
    for own in (OWN, {"groups": GROUPS}):
        local = seeded(model).fit(X, Y, **own)
        check_same(local, fit(seeded(model), arrays(**own), resident=True))
    plain = clone(model).set_params(max_weight=1.0)
    check_same(seeded(plain).fit(X, Y), fit(seeded(plain), arrays()))


@pytest.mark.usefixtures("exact_sums")
def test_weights_need_no_persons() -> None:
    model = clone(LINEAR).set_params(**WEIGHTED)
    for own in ({"sample_weight": WEIGHTS}, {}):
        check_same(seeded(model).fit(X, Y, **own), fit(seeded(model), arrays(**own)))


def test_statements_name_persons_and_hold() -> None:
    ledger = PrivacyLedger(4.0, 1e-5, unit="person")
    model = fit(clone(LINEAR).set_params(ledger=ledger), arrays(groups=GROUPS))
    assert model.privacy_.unit == "person"
    assert verify(model.privacy_.to_json()).ok
    assert len(ledger.history) >= len(model.privacy_.events) > 0
    with pytest.raises(InvalidParameterError) as told:
        fit(clone(LINEAR).set_params(ledger=PrivacyLedger(4.0, 1e-5)), arrays(groups=GROUPS))
    assert told.value.parameter == "ledger"


@pytest.mark.sampled
@pytest.mark.parametrize("client", [None, "cluster"])
@pytest.mark.parametrize("most", [2**22, 7])
@pytest.mark.parametrize("known", [None, 700])
def test_a_person_in_two_partitions_is_refused_and_nothing_is_spent(
    monkeypatch: Patch, client: Any, most: int, known: int | None
) -> None:
    monkeypatch.setattr(partitioned, "MAX_DIGESTS", most)
    ledger = PrivacyLedger(100.0, 1e-3, unit="person")
    model = clone(LINEAR).set_params(ledger=ledger)
    own = tuple(np.array([f"patient {one}" for one in GROUPS])[:, None].T)
    for last in range(3):
        pieces = thirds()
        # One row of one person in another partition.
        moved = np.flatnonzero(pieces[last])[-1]
        assert np.count_nonzero(GROUPS[moved] == GROUPS) > 1
        whole = _picklable(loaders(own, pieces))
        pieces[last][moved], pieces[last - 1][moved] = False, True
        split = _picklable(loaders(own, pieces))
        how: dict[str, Any] = {"client": Cluster() if client else None}
        with pytest.raises(InvalidParameterError) as told:
            fit(model, loaded_by(split, n_rows=known, groups=True), **how)
        assert told.value.parameter == "groups"
        assert "patient" not in str(told.value)
        assert ledger.history == ()
        assert not hasattr(model, "coef_")
    fit(model, loaded_by(whole, n_rows=known, groups=True), **how)
    assert b"patient" not in pickle.dumps(model.set_params(ledger=None))


class _Held:
    """What a loader returns, for clusters that pickle."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self) -> Any:
        return self.value


def _picklable(found: list[Any]) -> list[Any]:
    return [_Held(loader()) for loader in found]


@pytest.mark.parametrize("other", [np.int32, np.float64, np.uint8, str])
def test_one_id_is_one_person_whatever_its_type(other: Any) -> None:
    halves = [np.arange(700) < 350, np.arange(700) >= 350]
    found = loaders((np.arange(700) % 350,), halves)
    retyped = [found[0], lambda: (*found[1]()[:2], found[1]()[2].astype(other))]
    if other is np.uint8:
        retyped = [lambda: (*found[0]()[:2], found[0]()[2] % 200), found[1]]
    with pytest.raises(InvalidParameterError, match="several"):
        fit(clone(LINEAR), loaded_by(retyped, groups=True))


def test_digests_hide_ids_and_their_parts_are_all_of_them() -> None:
    ids = np.array([f"patient {k}" for k in range(500)])
    whole = executors.Persons(b"k" * 32, 0, 1).digests(ids)
    parts = [executors.Persons(b"k" * 32, part, 7).digests(ids) for part in range(7)]
    assert sorted(np.concatenate(parts).tolist()) == sorted(whole.tolist())
    assert len(set(whole.tolist())) == 500
    assert max(map(len, parts)) < 130
    assert not set(whole) & set(executors.Persons(b"j" * 32, 0, 1).digests(ids))
    assert "kkk" not in repr(executors.Persons(b"k" * 32, 0, 1))


NAN = np.where(np.arange(700) == 3, np.nan, GROUPS)
BAD: dict[str, Any] = {
    "missing ids": (NAN, WEIGHTS),
    "mixed ids": (np.array([GROUPS[0], "a"] * 350, dtype=object), WEIGHTS),
    "negative weights": (GROUPS, -WEIGHTS),
    "infinite weights": (GROUPS, np.where(np.arange(700) == 3, np.inf, WEIGHTS)),
    "text": (GROUPS, WEIGHTS.astype(str)[:, None]),
    "no weights": (GROUPS,),
    "nothing": (),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_owners_are_reported_before_anything_is_spent(case: str) -> None:
    ledger = PrivacyLedger(100.0, 1e-3, unit="person")
    given = loaded_by(loaders(BAD[case], [np.arange(700) >= 0]), groups=True, sample_weight=True)
    with pytest.raises(PartitionError) as told:
        fit(clone(LINEAR).set_params(ledger=ledger), given)
    assert told.value.partition == 0
    assert not told.value.spent
    assert "nothing was spent" in str(told.value)
    assert ledger.history == ()
    assert pickle.loads(pickle.dumps(told.value)).args == told.value.args


def test_weights_may_be_zero_in_some_partitions_and_not_in_all() -> None:
    zero = np.where(GROUPS < 20, 0.0, 1.0)
    ledger = PrivacyLedger(4.0, 1e-5)
    model = seeded(LINEAR)
    some = fit(model, loaded_by(loaders((zero,)), sample_weight=True))
    kept = zero > 0
    rest = Partitions.from_arrays(X[kept], Y[kept])
    assert np.array_equal(some.coef_, fit(seeded(LINEAR), rest).coef_)
    none = loaded_by(loaders((0.0 * zero,)), sample_weight=True)
    with pytest.raises(ValueError, match="Nothing was spent"):
        fit(clone(LINEAR).set_params(ledger=ledger), none)
    assert ledger.history == ()


def test_what_is_not_promised_is_refused_unspent() -> None:
    ledger = PrivacyLedger(4.0, 1e-5, unit="person")
    limited = clone(DESCENTS["last iterate"]).set_params(ledger=ledger, max_samples=50)
    with pytest.raises(InvalidParameterError) as told:
        fit(limited, arrays(groups=GROUPS))
    assert told.value.parameter == "max_samples"
    for changes in ({"groups": GROUPS[:-1]}, {"sample_weight": -WEIGHTS}, {"groups": NAN}):
        with pytest.raises(InvalidParameterError):
            arrays(**changes)
    assert ledger.history == ()


def test_the_number_of_persons_is_public_where_one_is_exchanged() -> None:
    model = clone(DESCENT).set_params(adjacency="replace_one", random_state=1)
    unknown = loaded_by(loaders((GROUPS,)), groups=True)
    local = clone(model).fit(X, Y, groups=GROUPS)
    found = fit(clone(model), unknown)
    assert found.privacy_.events == local.privacy_.events
    assert np.abs(found.coef_ - local.coef_).max() <= 1e-5 * np.abs(local.coef_).max()


@pytest.mark.sampled
@pytest.mark.parametrize("kept", [0, 2, 9])
@pytest.mark.parametrize("estimator", [LINEAR, DESCENT], ids=["linear", "descent"])
def test_how_many_partitions_are_in_files_changes_no_bit(
    tmp_path: Path, estimator: Any, kept: int
) -> None:
    model = clone(estimator).set_params(**WEIGHTED, random_state=5)
    parts = arrays(groups=GROUPS + 918273, sample_weight=WEIGHTS)
    there = fit(clone(model), parts, scratch=tmp_path, resident=kept)
    (tmp_path / "other").mkdir()
    here = fit(clone(model), arrays(step=60, **OWN), scratch=tmp_path / "other", resident=99)
    assert np.array_equal(there.coef_, here.coef_)
    near = fit(clone(model), parts).coef_
    assert np.abs(there.coef_ - near).max() <= 2e-5 * np.abs(near).max()
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert len(files) == 3 * max(0, len(parts) - kept)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    # Whose rows they are is not written down.
    for path in tmp_path.glob("owners-*"):
        with np.load(path) as owners:
            assert owners["arr_0"].max() <= 700


def test_arrays_are_cut_between_persons_and_keep_no_ids() -> None:
    ids = np.array([f"patient {k}" for k in GROUPS])
    parts = arrays(step=40, groups=ids)
    assert b"patient" not in pickle.dumps(parts)
    seen: list[set[Any]] = []
    total = 0
    for loader in parts.loaders:
        rows, labels, own = loader()
        again = pickle.loads(pickle.dumps(loader))()
        assert all(map(np.array_equal, again, (rows, labels, own)))
        assert len(rows) == len(labels) == len(own)
        seen.append(set(own.tolist()))
        total += len(rows)
    assert total == 700
    assert sum(map(len, seen)) == len(set.union(*seen)) == np.unique(GROUPS).size
    assert len(parts) > 5
    # Rows that are together already are not moved.
    ordered = np.sort(GROUPS)
    first = Partitions.from_arrays(X, Y, groups=ordered, rows_per_partition=40).loaders[0]()
    assert np.shares_memory(first[0], X)
    one = Partitions.from_arrays(X, Y, groups=np.zeros(700, int), rows_per_partition=40)
    assert len(one) == 1
    sparser = arrays(SPARSE, 40, groups=GROUPS).loaders[1]
    assert (sparser()[0] != pickle.loads(pickle.dumps(sparser))()[0]).nnz == 0
    assert sparse.issparse(sparser()[0])


def test_memory_maps_with_persons_are_opened_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    parts = Partitions.from_arrays(mapped, Y, groups=GROUPS, rows_per_partition=100)
    sent = len(pickle.dumps(parts.loaders[0]))
    assert sent < 100 * 6 * 8
    local = fit(seeded(LINEAR), arrays(groups=GROUPS))
    assert np.array_equal(fit(seeded(LINEAR), parts).coef_, local.coef_)


def test_files_and_collections_name_their_columns(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    order = np.argsort(GROUPS, kind="stable")
    names = [f"f{j}" for j in range(6)]
    ids = np.array([f"p{k}" for k in GROUPS])
    columns = dict(zip(names, X[order].T, strict=True))
    columns |= {"y": Y[order], "who": ids[order], "w": WEIGHTS[order]}
    table = pa.table(columns)
    begins = np.flatnonzero(np.diff(GROUPS[order], prepend=-1))
    cuts = [0, int(begins[10]), int(begins[25]), 700]
    with parquet.ParquetWriter(tmp_path / "t.parquet", table.schema) as writer:
        for a, b in itertools.pairwise(cuts):
            writer.write_table(table.slice(a, b - a))
    feather.write_feather(table, str(tmp_path / "t.arrow"), compression="uncompressed")
    how: dict[str, Any] = {"label": "y", "person": "who", "weight": "w"}
    model = clone(LINEAR).set_params(max_weight=1.2, random_state=5)
    local = fit(clone(model), arrays(**OWN))
    for parts in (
        Partitions.from_parquet(tmp_path / "t.parquet", **how),
        Partitions.from_arrow(tmp_path / "t.arrow", **how),
        Partitions.from_arrow(table, **how, rows_per_partition=90),
    ):
        assert parts.n_features == 6
        assert parts.owners == ("groups", "sample_weight")
        check_same_numbers(local, fit(clone(model), parts))
    with pytest.raises(InvalidParameterError):
        Partitions.from_parquet(tmp_path / "t.parquet", label="y", person="y")
    array = pytest.importorskip("dask.array")
    chunks = tuple(np.diff(cuts).tolist())
    blocks = [array.from_array(one[order], chunks=(chunks, *(-1,) * (one.ndim - 1)))
              for one in (X, Y, GROUPS, WEIGHTS)]  # fmt: skip
    X_, y_, groups_, weights_ = blocks
    found = Partitions.from_dask(X_, y_, groups=groups_, sample_weight=weights_)
    check_same_numbers(local, fit(clone(model), found))
    with pytest.raises(ValueError, match="groups: expected as many blocks"):
        Partitions.from_dask(X_, y_, groups=groups_.rechunk(100))


def check_same_numbers(first: Any, second: Any) -> None:
    assert np.array_equal(first.coef_, second.coef_)
    assert first.privacy_.events == second.privacy_.events
