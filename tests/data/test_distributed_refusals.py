"""Fits over partitions that are refused, and what is said about it: nothing of the rows."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from test_distributed_fit import (
    DESCENT,
    DESCENTS,
    LINEAR,
    SECRET,
    Patch,
    X,
    Y,
    check_same,
    loaded_by,
    partitions,
    seeded,
)

import dpsvm_fast as dp
from dpsvm_fast.data import executors as tasks
from dpsvm_fast.data import fit
from dpsvm_fast.exceptions import ClusterError, InvalidParameterError, PartitionError
from oracles.synchronous_cluster import Cluster

pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def bad(kind: str) -> Any:
    """What a loader must not return, or does instead."""
    rows, labels = np.full((4, 6), SECRET), np.zeros(4, dtype=np.int64)
    if kind == "raises":
        raise OSError(f"row {rows[0]}")
    if kind == "no memory":
        raise MemoryError(str(SECRET))
    wrong: dict[str, Any] = {
        "nan": (np.where(np.eye(4, 6) > 0, np.nan, SECRET), labels),
        "infinite": (np.where(np.eye(4, 6) > 0, np.inf, SECRET), labels),
        "narrow": (rows[:, :5], labels),
        "one row": (rows[0], labels[:1]),
        "sparse": (sparse.csr_matrix(rows), labels),
        "text": (np.full((4, 6), str(SECRET)), labels),
        "objects": (np.full((4, 6), object()), labels),
        "label": (rows, np.full(4, int(SECRET))),
        "labels": (rows, labels[:3]),
        "no labels": rows,
        "triple": (rows, labels, labels),
        "nothing": None,
    }
    return wrong[kind]


BAD = {
    "raises": "its loader raised OSError",
    "no memory": "not enough memory",
    "nan": "expected dense rows of 6 finite numbers",
    "infinite": "expected dense rows of 6 finite numbers",
    "narrow": "expected dense rows of 6 finite numbers",
    "one row": "expected dense rows",
    "sparse": "expected dense rows",
    "text": "expected dense rows",
    "objects": "expected dense rows",
    "label": "each of them in `classes`",
    "labels": "one label for each row",
    "no labels": "one label for each row",
    "triple": "expected dense rows",
    "nothing": "expected dense rows",
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("where", ["here", "there"])
def test_a_bad_partition_is_named_and_never_quoted(kind: str, where: str) -> None:
    def load(k: str = kind) -> Any:
        return bad(k)

    good = list(partitions(step=300).loaders)
    ledger = dp.PrivacyLedger(100.0, 1e-3)
    model = fit(clone(LINEAR).set_params(ledger=ledger), partitions(step=300), resident=True)
    spent = len(ledger.history)
    client = None if where == "here" else _Unpickled()
    with pytest.raises(PartitionError, match=BAD[kind]) as caught:
        fit(model, loaded_by([*good[:2], load, good[2]]), client=client)
    assert caught.value.partition == 2
    assert str(int(SECRET)) not in str(caught.value)
    assert caught.value.__context__ is None or str(SECRET) not in str(caught.value.__context__)
    assert len(ledger.history) == 2 * spent
    assert not hasattr(model, "coef_")
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


class _Unpickled(Cluster):
    """A cluster that takes functions of a test, which have no name to be pickled by."""

    def submit(self, function: Any, *given: Any, **named: Any) -> Any:
        from oracles import synchronous_cluster as module

        for name in ("key", "pure", "workers", "allow_other_workers", "priority"):
            named.pop(name, None)
        given, _ = module._values(given)
        return module.Future(function(*given, **named))


def test_the_budget_is_asked_first_and_charged_before_anything_is_loaded() -> None:
    seen: list[str] = []

    class Ledger(dp.PrivacyLedger):
        def spend(self, *given: Any, **named: Any) -> Any:
            seen.append("spend")
            return super().spend(*given, **named)

    def loader() -> Any:
        seen.append("load")
        return X, Y

    ledger = Ledger(4.0, 1e-5)
    parts = loaded_by([loader])
    model = clone(LINEAR).set_params(ledger=ledger)
    fit(model, parts, resident=True)
    assert seen == ["spend", "load"]
    with pytest.raises(dp.BudgetExceededError):
        fit(model, parts)
    assert seen == ["spend", "load"]
    assert not hasattr(model, "coef_")


@pytest.mark.parametrize(
    ("estimator", "error", "text"),
    [
        (dp.OutputPerturbationSVC(classes=[0, 1, 2]), TypeError, "all rows in one process"),
        (dp.ObjectivePerturbationSVC(classes=[0, 1, 2]), TypeError, "all rows in one process"),
        (make_pipeline(dp.PrivateCenter(), LINEAR), TypeError, "got Pipeline; expected one of"),
        (dp.PrivateLinearSVC(), InvalidParameterError, "classes: got None"),
        (
            dp.PrivateLinearSVC(classes=[0, 1, 2], mechanism="output"),
            InvalidParameterError,
            "mechanism: got 'output', expected 'gradient'",
        ),
        (dp.PrivateLinearSVC(classes=[0, 1], delta=0.0), InvalidParameterError, "got 'auto'"),
        (dp.PrivateLinearSVC(-1.0, classes=[0, 1]), InvalidParameterError, "epsilon"),
    ],
)
def test_what_needs_all_rows_is_refused(estimator: Any, error: type[Exception], text: str) -> None:
    def never() -> Any:
        raise AssertionError("loaded")

    with pytest.raises(error, match=text):
        fit(estimator, loaded_by([never]))


def test_other_arguments_are_checked() -> None:
    model = clone(LINEAR)
    with pytest.raises(TypeError, match="partitions: got ndarray"):
        fit(model, X)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="without labels"):
        fit(model, partitions(labels=None))
    with pytest.raises(TypeError, match="resident"):
        fit(model, partitions(), resident="yes")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="n_threads"):
        fit(model, partitions(), n_threads=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="client: got int"):
        fit(model, partitions(), client=3)
    ledger = dp.PrivacyLedger(4.0, 1e-5)
    model.set_params(ledger=ledger)
    nobody = Cluster()
    nobody.threads = {}
    with pytest.raises(ClusterError, match="no workers"):
        fit(model, partitions(), client=nobody)
    for answer, text in (
        ("dpsvm-fast 0.0 for x86-64-v1", r"dpsvm-fast 0\.0 for x86-64-v1,"),
        (ImportError("secret"), "cannot import dpsvm-fast: ImportError;"),
    ):
        other = Cluster()
        other.builds = {"b": answer}
        with pytest.raises(ClusterError, match="nothing was spent") as caught:
            fit(model, partitions(), client=other)
        assert re.search(text, str(caught.value))
        assert "secret" not in str(caught.value)
    assert not ledger.history


def test_a_worker_of_another_kind_may_not_join(monkeypatch: Patch) -> None:
    def joined(function: Any) -> None:
        if function is tasks.share_of_bundle:
            monkeypatch.setattr(tasks, "build", lambda: "dpsvm-fast 0.0 for another processor")

    with pytest.raises(ClusterError, match=r"another processor, .*; the budget is spent"):
        fit(clone(LINEAR), partitions(), client=Cluster(before=joined))


def test_a_public_number_of_rows_has_to_be_known_where_it_is_needed() -> None:
    public = clone(DESCENT).set_params(adjacency="replace_one")
    loaders = list(partitions().loaders)
    with pytest.raises(InvalidParameterError, match="n_rows"):
        fit(public, loaded_by(loaders))
    with pytest.raises(InvalidParameterError, match="n_rows"):
        fit(DESCENTS["last iterate"], loaded_by(loaders))
    found = fit(seeded(public), loaded_by(loaders, n_rows=700))
    check_same(found, fit(seeded(public), partitions()))
    with pytest.raises(ValueError, match="as many rows as declared") as caught:
        fit(seeded(public), loaded_by(loaders, n_rows=699))
    assert "700" not in str(caught.value)
    # Where it is released with noise, or first needed once rows have been summed, it is counted.
    loaders = list(partitions().loaders)
    check_same(*(fit(seeded(LINEAR), p, resident=True) for p in (partitions(), loaded_by(loaders))))
    kernel = seeded(DESCENTS["kernel of lengths"])
    check_same(fit(clone(kernel), loaded_by(loaders)), fit(clone(kernel), partitions()))


def test_too_many_rows_for_the_last_iterate_are_refused_unpaid() -> None:
    ledger = dp.PrivacyLedger(4.0, 1e-5)
    model = clone(DESCENTS["last iterate"]).set_params(max_samples=600, ledger=ledger)
    with pytest.raises(InvalidParameterError, match="max_samples"):
        fit(model, partitions())
    assert not ledger.history


def test_partitions_must_not_change() -> None:
    calls: list[int] = []

    def growing() -> Any:
        calls.append(1)
        return (X, Y) if len(calls) == 1 else (X[:-1], Y[:-1])

    with pytest.raises(ValueError, match="as many rows as before"):
        fit(clone(LINEAR), loaded_by([growing]))
