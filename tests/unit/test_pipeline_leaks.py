"""Fits inside scikit-learn's Pipeline: steps before that learned without privacy are named."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from dpsvm_fast import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivacyLeakWarning,
    PrivateCenter,
    PrivateGaussianMarginClassifier,
    PrivateKernelSVC,
    PrivateLinearSVC,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
    PublicScaler,
    RandomFourierFeatures,
    total_privacy,
    verify,
)
from dpsvm_fast.estimators import fit as enclosing_pipeline
from dpsvm_fast.estimators.fit import steps_learned_before

RNG = np.random.default_rng(0)
X: NDArray[np.float64] = RNG.normal(size=(200, 4))
Y: NDArray[np.int64] = (X[:, 0] > 0).astype(np.int64)
STEP = r"'standardscaler' \(StandardScaler\)"


def svc(**options: Any) -> Any:
    return OutputPerturbationSVC(2.0, **{"classes": [0, 1]} | options)


OURS: dict[str, Any] = {
    "output": svc(),
    "objective": ObjectivePerturbationSVC(2.0, classes=[0, 1]),
    "gradient": GradientPerturbationSVC(2.0, classes=[0, 1]),
    "linear": PrivateLinearSVC(2.0, classes=[0, 1]),
    "kernel": PrivateKernelSVC(2.0, n_components=20, classes=[0, 1]),
    "ellipsoids": PrivateGaussianMarginClassifier(2.0, classes=[0, 1]),
    "centre": PrivateCenter(1.0),
    "components": PrivatePCA(2, 1.0),
    "whitening": PrivateWhitener(1.0),
    "scaling": PrivateStandardScaler(1.0, bounds=(-4.0, 4.0)),
}


@pytest.mark.parametrize("kind", OURS)
def test_every_estimator_names_the_leak(kind: str) -> None:
    model = make_pipeline(StandardScaler(), clone(OURS[kind]))
    with pytest.warns(PrivacyLeakWarning, match=STEP) as caught:
        model.fit(X, Y)
    assert len(caught) == 1
    assert "PublicScaler or PrivateStandardScaler" in str(caught[0].message)
    statement = model[-1].privacy_
    assert not statement.private
    assert len(statement.not_private_reasons) == 1
    assert "'standardscaler'" in statement.not_private_reasons[0]
    assert not verify(statement)


@pytest.mark.parametrize("kind", OURS)
def test_no_estimator_cries_wolf(kind: str) -> None:
    """Warnings are errors in this suite."""
    free = (Normalizer(), PublicScaler((-1.0, 1.0)), FunctionTransformer(np.tanh), Binarizer())
    model = make_pipeline(*free, PrivateCenter(1.0), "passthrough", clone(OURS[kind])).fit(X, Y)
    assert model[-1].privacy_.private
    assert clone(OURS[kind]).fit(X, Y).privacy_.private
    # What learns after it, or beside it, is none of its business.
    if hasattr(OURS[kind], "transform"):
        after = make_pipeline(clone(OURS[kind]), StandardScaler()).fit(X, Y)
        assert after[0].privacy_.private
        beside = FeatureUnion([("a", StandardScaler()), ("b", clone(OURS[kind]))])
        make_pipeline(Normalizer(), beside).fit(X, Y)


def nested() -> dict[str, tuple[Any, str]]:
    """Pipelines, and the name by which the leak is known."""
    columns = ColumnTransformer([("a", MinMaxScaler(), [0, 1])], remainder="passthrough")
    union = FeatureUnion([("a", PCA(2)), ("b", "passthrough")])
    inner = make_pipeline(MinMaxScaler(), Normalizer())
    return {
        "columns": (make_pipeline(columns, svc()), "'columntransformer__a' (MinMaxScaler)"),
        "union": (make_pipeline(union, svc()), "'featureunion__a' (PCA)"),
        "pipeline": (make_pipeline(inner, svc()), "'pipeline__minmaxscaler' (MinMaxScaler)"),
        "outer": (
            make_pipeline(MinMaxScaler(), make_pipeline(Normalizer(), svc())),
            "'minmaxscaler' (MinMaxScaler)",
        ),
        "search": (
            make_pipeline(MinMaxScaler(), GridSearchCV(svc(), {"C": [1.0]}, cv=2)),
            "'minmaxscaler' (MinMaxScaler)",
        ),
        "unknown": (make_pipeline(Unknown(), svc()), "'unknown' (Unknown)"),
        "last of a transformer": (
            make_pipeline(MinMaxScaler(), FeatureUnion([("c", PrivateCenter(1.0))])),
            "'minmaxscaler' (MinMaxScaler)",
        ),
    }


class Unknown(TransformerMixin, BaseEstimator):
    """Learns something; nobody knows what."""

    def fit(self, X: Any, y: Any = None) -> Unknown:
        self.mean_ = np.mean(X)
        return self

    def transform(self, X: Any) -> Any:
        return X - self.mean_


@pytest.mark.parametrize("kind", nested())
def test_leaks_inside_other_steps_are_found(kind: str) -> None:
    model, name = nested()[kind]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, Y)
    assert caught
    for warning in caught:
        assert warning.category is PrivacyLeakWarning
        assert name in str(warning.message)


@pytest.mark.parametrize("search", ["grid", "cross"])
def test_clones_in_a_search_warn_too(search: str) -> None:
    model = make_pipeline(StandardScaler(), svc())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if search == "grid":
            found = GridSearchCV(model, {"outputperturbationsvc__C": [1.0, 2.0]}, cv=2).fit(X, Y)
            assert not found.best_estimator_[-1].privacy_.private
        else:
            cross_val_score(model, X, Y, cv=2)
    assert {w.category for w in caught} == {PrivacyLeakWarning}
    assert len(caught) == (5 if search == "grid" else 2)


def test_cached_steps_are_fitted_as_copies(tmp_path: Path) -> None:
    steps = [("first", StandardScaler()), ("centre", PrivateCenter(1.0)), ("svc", svc())]
    model = Pipeline(steps, memory=str(tmp_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # joblib tells when a busy machine took long to write arguments.
        warnings.filterwarnings("ignore", "Persisting input arguments took", UserWarning)
        model.fit(X, Y)
    assert [w.category for w in caught] == [PrivacyLeakWarning] * 2
    assert not model[1].privacy_.private
    assert not model[2].privacy_.private


def test_the_place_in_the_pipeline_counts() -> None:
    """A step is warned of what comes before it, not of what comes after."""
    model = make_pipeline(PrivateCenter(1.0), StandardScaler(), svc())
    with pytest.warns(PrivacyLeakWarning) as caught:
        model.fit(X, Y)
    assert len(caught) == 1
    assert model[0].privacy_.private
    assert not model[2].privacy_.private


def test_an_estimator_of_the_same_kind_elsewhere_is_not_meant() -> None:
    """Fitted while a Pipeline predicts, on whatever rows: that Pipeline's fit is over."""

    def fit_apart(rows: Any) -> Any:
        apart.extend([PrivateCenter(1.0).fit(X)] if armed else [])
        return rows

    apart: list[Any] = []
    armed = False
    model = make_pipeline(StandardScaler(), FunctionTransformer(fit_apart), LogisticRegression())
    model.fit(X, Y)
    armed = True
    model.predict(X)
    assert apart[0].privacy_.private


ROWWISE: dict[str, Any] = {
    **{kind: OURS[kind] for kind in OURS if hasattr(OURS[kind], "transform")},
    "centre": PrivateCenter(1.0, dense_output=True),
    "public": PublicScaler((-1.0, 1.0)),
    "features": RandomFourierFeatures(20),
}


def is_rowwise(step: Any, rows: Any) -> bool:
    """Whether transformed rows are the same, to the last bit, whatever other rows there are."""
    whole = step.transform(rows)
    for part in (slice(0, 66), slice(1, 67), slice(13, 14), slice(40, 67)):
        apart = step.transform(rows[part]) != whole[part]
        if apart.nnz if sparse.issparse(apart) else apart.any():
            return False
    return True


@pytest.mark.proof("private_scaling")
@pytest.mark.parametrize("kind", ROWWISE)
def test_a_transformed_row_does_not_depend_on_the_others(kind: str) -> None:
    """Composition rests on it: a record more must not round the others otherwise."""
    rows = np.random.default_rng(1).normal(size=(67, 30))
    fitted = clone(ROWWISE[kind]).fit(rows)
    assert is_rowwise(fitted, rows)
    # Frames come in this order; sums over a single row of them would go another way.
    assert is_rowwise(fitted, np.asfortranarray(rows))
    np.testing.assert_array_equal(fitted.transform(np.asfortranarray(rows)), fitted.transform(rows))
    assert is_rowwise(fitted, sparse.csr_matrix(np.where(rows > 0.3, rows, 0.0)))


@pytest.mark.parametrize("kind", ROWWISE)
def test_entries_given_in_parts_count_as_their_sum(kind: str) -> None:
    """Sparse rows with repeated columns in any order, as the fit takes them."""
    rows = np.random.default_rng(1).normal(size=(20, 6))
    parts = np.repeat(rows[:, ::-1], 2, axis=1) * np.tile([0.25, 0.75], 6)
    columns = np.tile(np.repeat(np.arange(6)[::-1], 2), 20)
    given = sparse.csr_matrix((parts.ravel(), columns, np.arange(0, 241, 12)), shape=(20, 6))
    fitted = clone(ROWWISE[kind]).fit(rows)
    mapped = fitted.transform(given)
    mapped = mapped.toarray() if sparse.issparse(mapped) else mapped
    np.testing.assert_allclose(mapped, fitted.transform(rows), rtol=1e-9, atol=1e-12)
    assert given.nnz == 240


def test_a_step_that_looks_at_all_rows_is_told_apart() -> None:
    rows = np.random.default_rng(1).normal(size=(67, 30))
    assert not is_rowwise(FunctionTransformer(lambda X: X - X.mean(axis=0)).fit(rows), rows)
    assert is_rowwise(FunctionTransformer(np.tanh).fit(rows), rows)


def test_the_search_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    assert steps_learned_before() == ()

    def broken(*_: Any) -> Any:
        raise RuntimeError

    monkeypatch.setattr(enclosing_pipeline, "learned_steps", broken)
    assert make_pipeline(StandardScaler(), svc()).fit(X, Y)[-1].privacy_.private

    class Strange(Pipeline):
        @property
        def steps(self) -> Any:
            raise RuntimeError

        def __init__(self) -> None:
            pass

        def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
            return steps_learned_before()

    assert Strange().fit(X) == ()


def test_a_deep_stack_is_not_walked_to_its_end() -> None:
    def down(levels: int) -> Any:
        return steps_learned_before() if levels == 0 else down(levels - 1)

    class Deep(Pipeline):
        def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
            return down(enclosing_pipeline.DEEPEST)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 2 * enclosing_pipeline.DEEPEST)
    try:
        assert Deep([("a", StandardScaler()), ("b", svc())]).fit(X) == ()
    finally:
        sys.setrecursionlimit(limit)


class TestEncoders:
    """Encoders learn categories from the rows unless all of them were declared."""

    ROWS = np.array([["a"], ["b"]] * 100)

    @pytest.mark.parametrize("kind", [OneHotEncoder, OrdinalEncoder])
    def test_declared_categories_are_public(self, kind: Any) -> None:
        model = make_pipeline(kind(categories=[["a", "b", "c"]]), svc()).fit(self.ROWS, Y)
        assert model[-1].privacy_.private
        assert total_privacy(model).private

    @pytest.mark.parametrize(
        ("threshold", "sparse_output", "private"),
        [(0.3, True, False), (0.3, False, True), (0, True, True), (1, True, True)],
    )
    def test_a_form_that_follows_from_the_rows_is_not(
        self, threshold: float, sparse_output: bool, private: bool
    ) -> None:
        encoder = OneHotEncoder(categories=[["a", "b", "c"]], sparse_output=sparse_output)
        columns = ColumnTransformer([("e", encoder, [0])], sparse_threshold=threshold)
        model = make_pipeline(columns, svc())
        if private:
            model.fit(self.ROWS, Y)
        else:
            with pytest.warns(PrivacyLeakWarning, match=r"columntransformer__e' \(OneHotEncoder"):
                model.fit(self.ROWS, Y)
        assert model[-1].privacy_.private is private

    @pytest.mark.parametrize(
        "encoder",
        [
            OneHotEncoder(),
            OrdinalEncoder(),
            OneHotEncoder(categories=[["a", "b"]], min_frequency=5),
            OneHotEncoder(categories=[["a", "b"]], max_categories=1),
        ],
    )
    def test_what_was_read_from_the_rows_is_not(self, encoder: Any) -> None:
        model = make_pipeline(encoder, svc())
        with pytest.warns(PrivacyLeakWarning, match="Encoder"):
            model.fit(self.ROWS, Y)
        assert not model[-1].privacy_.private
