"""Tables through transformers, pipelines and searches: names, outputs, ledgers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder
from sklearn.utils import _safe_indexing

import dpsvm_fast as dp
from dpsvm_fast.model_selection import PrivateGridSearch
from oracles.odd_inputs import X, Y
from oracles.subjects import TRANSFORMERS, made, outputs
from oracles.tables import COLUMNS, NAMES, WORDS, every_library, table


def pipeline() -> Any:
    """Of steps of ours alone, whose names go through to the end."""
    return make_pipeline(
        dp.PublicScaler((-3, 3)),
        dp.PrivateCenter(50.0),
        dp.OutputPerturbationSVC(50.0, classes=range(3), data_norm=2.0),
    )


@pytest.mark.sampled
@pytest.mark.parametrize("subject", TRANSFORMERS)
@pytest.mark.parametrize("output", ["pandas", "polars"])
@every_library
def test_set_output(subject: str, output: str, library: str) -> None:
    pytest.importorskip(output)
    fitted = made(subject).set_output(transform=output).fit(table(library), Y)
    rows = fitted.transform(table(library))
    assert type(rows).__module__.startswith(output)
    names = list(fitted.get_feature_names_out())
    assert list(rows.columns) == names
    one_to_one = subject in ("centre", "standard scaler", "public scaler")
    splines = [f"{name}_sp_{i}" for name in NAMES for i in range(3)]
    prefix = type(fitted).__name__.lower()
    width = rows.shape[1]
    numbered = splines if subject == "splines" else [f"{prefix}{i}" for i in range(width)]
    assert names == (NAMES if one_to_one else numbered)
    plain = fitted.set_output(transform="default").transform(table(library))
    np.testing.assert_array_equal(np.asarray(rows), plain)
    if hasattr(fitted, "inverse_transform"):
        back = outputs(fitted, table(library))["inverse_transform"]
        np.testing.assert_array_equal(fitted.inverse_transform(rows), back)


@every_library
def test_names_go_through_pipelines_and_column_transformers(library: str) -> None:
    """With public bounds and categories every step is free but the last, and says so."""
    columns = COLUMNS | {"kind": np.array(["b", "a"] * 6)}
    rows = table(library, columns)
    try:
        _safe_indexing(rows, ["kind"], axis=1)
    except TypeError:
        pytest.skip("columns of this library cannot be chosen by this scikit-learn")
    by_column = make_column_transformer(
        (dp.PublicScaler((-3, 3)), NAMES),
        (OneHotEncoder(categories=[["a", "b", "c"]], sparse_output=False), ["kind"]),
        verbose_feature_names_out=False,
    )
    model = make_pipeline(
        by_column, Normalizer(), dp.OutputPerturbationSVC(50.0, classes=range(3))
    ).set_output(transform="pandas")
    model.fit(rows, Y)
    assert list(model[-1].feature_names_in_) == [*NAMES, "kind_a", "kind_b", "kind_c"]
    assert dp.total_privacy(model).private
    assert set(model.predict(rows)) <= {0, 1, 2}
    ours = pipeline().fit(table(library), Y)
    assert list(ours[:-1].get_feature_names_out()) == NAMES


@pytest.mark.parametrize(
    "strategy", ["partition", pytest.param("random_stopping", marks=pytest.mark.slow)]
)
@every_library
def test_a_search_takes_tables(library: str, strategy: str) -> None:
    many = {name: np.tile(column, 30) for name, column in COLUMNS.items()}
    labels = np.tile(Y, 30)
    words = table(library, {"y": WORDS[labels].tolist()})["y"]
    ledger = dp.PrivacyLedger(100.0, 0.1)
    svc = dp.OutputPerturbationSVC(classes=WORDS.tolist())
    search = PrivateGridSearch(svc, {"C": [0.1]}, 8.0, strategy=strategy, ledger=ledger)
    broken = table(library, many | {"x 2": [np.nan] * 360})
    with pytest.raises(ValueError, match=r"^X: column 'x 2' contains NaN"):
        search.fit(broken, words)
    assert not ledger.history
    search.fit(table(library, many), words)
    assert list(search.feature_names_in_) == NAMES
    assert set(search.predict(table(library, many))) <= set(WORDS)


def test_partial_fits_keep_the_names() -> None:
    frame = pd.DataFrame(COLUMNS)
    fitting = dp.GradientPerturbationSVC(50.0, classes=range(3), n_steps=2)
    fitting.partial_fit(frame, Y).partial_fit(frame, Y)
    assert list(fitting.feature_names_in_) == NAMES
    with pytest.raises(ValueError, match="same order"):
        fitting.partial_fit(frame[NAMES[::-1]], Y)


@every_library
def test_parties_with_tables(library: str) -> None:
    from dpsvm_fast.federated import FederatedSpec
    from dpsvm_fast.federated.local import checked_records

    spec = FederatedSpec.dp_helmet(
        n_users=30,
        n_features=3,
        classes=WORDS.tolist(),
        epsilon=4.0,
        delta=1e-6,
        max_records=50,
        min_records=1,
    )
    words = table(library, {"y": WORDS[Y].tolist()})["y"]
    records = checked_records(table(library), words, spec)
    np.testing.assert_array_equal(records.X, X)
    np.testing.assert_array_equal(records.codes, Y)
