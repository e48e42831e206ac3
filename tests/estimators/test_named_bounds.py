"""Bounds by the names of columns: the same as in the order of the columns, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import dpsvm_fast as dp
from dpsvm_fast import InvalidParameterError, PrivacyLedger, PrivatePipeline
from dpsvm_fast.data import Partitions, fit
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.persist import load_model, save_model

RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "age": RNG.uniform(0, 100, 300),
        "x 2": RNG.uniform(-1, 1, 300),
        "höhe": RNG.uniform(1, 3, 300),
    }
)
LABELS = (ROWS["age"] > 50).astype(int).to_numpy()
# In another order than the columns.
NAMED = {"höhe": (1.0, 3.0), "age": (0, 100), "x 2": (-1, 1)}
ORDERED = ([0.0, -1.0, 1.0], [100.0, 1.0, 3.0])
SEED = {"random_state": 0}
RECIPES: dict[str, Any] = {
    "linear": lambda bounds: dp.PrivateLinearSVC(4.0, bounds=bounds, classes=[0, 1], **SEED),
    "kernel": lambda bounds: dp.PrivateKernelSVC(
        4.0, bounds=bounds, classes=[0, 1], kernel="rbf", n_components=5, **SEED
    ),
    "additive": lambda bounds: dp.PrivateKernelSVC(
        4.0, bounds=bounds, classes=[0, 1], kernel="additive", **SEED
    ),
    "standard scaler": lambda bounds: dp.PrivateStandardScaler(4.0, bounds=bounds, **SEED),
    "public scaler": lambda bounds: dp.PublicScaler(bounds),
    "splines": lambda bounds: dp.PublicSplines(bounds, sparse_output=False),
}
every_recipe = pytest.mark.parametrize("recipe", RECIPES)
pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def answer(model: Any, rows: Any) -> Any:
    """What it says of rows."""
    return (model.decision_function if hasattr(model, "predict") else model.transform)(rows)


@every_recipe
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_names_stand_for_places(recipe: str, library: str, tmp_path: Path) -> None:
    package = pytest.importorskip(library)
    rows: Any = {"pandas": lambda: ROWS, "polars": lambda: package.from_pandas(ROWS)}.get(
        library, lambda: package.Table.from_pandas(ROWS)
    )()
    expected = RECIPES[recipe](ORDERED).fit(ROWS, LABELS)
    named = clone(RECIPES[recipe](NAMED)).fit(rows, LABELS)
    np.testing.assert_array_equal(answer(named, rows), answer(expected, ROWS))
    assert named.get_params()["bounds"] == NAMED
    # A second fit, of rows in another order, forgets the first.
    turned = ROWS[["x 2", "höhe", "age"]]
    again = named.fit(turned, LABELS)
    save_model(again, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json", verify=False)
    assert loaded.get_params()["bounds"] == NAMED
    np.testing.assert_array_equal(answer(loaded, turned), answer(again, turned))
    if hasattr(named, "bounds_"):
        low, high = again.bounds_
        assert low.tolist() == [-1.0, 1.0, 0.0]
        assert high.tolist() == [1.0, 3.0, 100.0]


@every_recipe
def test_columns_without_bounds_and_bounds_without_columns(recipe: str) -> None:
    few = {name: pair for name, pair in NAMED.items() if name != "age"}
    for bounds, rows in (
        (few, ROWS),
        (NAMED | {"more": (0, 1)}, ROWS),
        (NAMED, ROWS.to_numpy()),
        (NAMED, ROWS.rename(columns={"age": "Age"})),
    ):
        model = RECIPES[recipe](bounds)
        ledger = PrivacyLedger(10.0, 1e-4, strict=False)
        if "ledger" in model.get_params():
            model.set_params(ledger=ledger)
        with pytest.raises(InvalidParameterError) as caught:
            model.fit(rows, LABELS)
        assert caught.value.parameter == "bounds"
        assert not ledger.history


def test_in_pipelines_searches_and_partitions() -> None:
    svc = dp.PrivateLinearSVC(4.0, classes=[0, 1])
    scaler = dp.PublicScaler(NAMED)
    model = PrivatePipeline([("scale", scaler), ("svc", svc)]).fit(ROWS, LABELS)
    assert model.privacy_.private
    assert model.score(ROWS, LABELS) > 0.8
    search = PrivateGridSearch(
        RECIPES["linear"](NAMED).set_params(random_state=None), {"whiten": [True, False]}, 20.0
    )
    assert search.fit(ROWS, LABELS).score(ROWS, LABELS) > 0.8
    parts = Partitions.from_arrays(ROWS, LABELS, rows_per_partition=100)
    found = fit(RECIPES["linear"](NAMED), parts)
    whole = RECIPES["linear"](NAMED).fit(ROWS, LABELS)
    # Rows are rounded in parts.
    np.testing.assert_allclose(found.coef_, whole.coef_, rtol=1e-4)
    for side, expected in zip(found.bounds_, ORDERED, strict=True):
        assert side.tolist() == expected


@every_recipe
def test_a_file_whose_bounds_have_other_names_is_refused(recipe: str, tmp_path: Path) -> None:
    model = RECIPES[recipe](NAMED).fit(ROWS, LABELS)
    model.set_params(bounds={f"{name}!": pair for name, pair in NAMED.items()})
    with pytest.raises(InvalidParameterError, match="bounds"):
        save_model(model, tmp_path / "m.json")
