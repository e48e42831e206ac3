"""Steps of Pipelines that learned without privacy are named; a PrivatePipeline refuses them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.utils import get_tags

from dpsvm_fast import (
    GradientPerturbationSVC,
    InvalidParameterError,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivacyLeakWarning,
    PrivacyLedger,
    PrivateCenter,
    PrivateGaussianMarginClassifier,
    PrivateKernelSVC,
    PrivateLinearSVC,
    PrivatePCA,
    PrivatePipeline,
    PrivateStandardScaler,
    PrivateWhitener,
    PublicScaler,
    PublicSplines,
    RandomFourierFeatures,
    total_privacy,
    verify,
)
from dpsvm_fast.model_selection import PrivateGridSearch

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


def private(model: Any) -> PrivatePipeline:
    """The same steps, in a Pipeline that looks at them."""
    return PrivatePipeline(model.steps)


@pytest.mark.parametrize("kind", OURS)
def test_every_estimator_names_the_leak(kind: str) -> None:
    """No Pipeline says to a step what was before it: whoever asks about the whole is told."""
    model = make_pipeline(StandardScaler(), clone(OURS[kind])).fit(X, Y)
    with pytest.warns(PrivacyLeakWarning, match=STEP) as caught:
        total = total_privacy(model)
    assert len(caught) == 1
    assert not total.private
    assert len(total.not_private_reasons) == 1
    assert "'standardscaler'" in total.not_private_reasons[0]
    assert not verify(total)
    # The step's own statement says what it is about.
    assert "total_privacy" in " ".join(str(model[-1].privacy_).split())


@pytest.mark.parametrize("kind", OURS)
def test_a_private_pipeline_refuses_the_leak_before_it_costs(kind: str) -> None:
    ledger = PrivacyLedger(9.0, 1e-3)
    model = private(make_pipeline(StandardScaler(), clone(OURS[kind]).set_params(ledger=ledger)))
    with pytest.raises(InvalidParameterError, match=STEP) as error:
        model.fit("no rows at all", Y)
    assert error.value.parameter == "steps"
    if hasattr(OURS[kind], "transform"):
        with pytest.raises(InvalidParameterError, match=STEP):
            model.fit_transform("no rows at all", Y)
    assert ledger.history == ()
    assert not hasattr(model, "privacy_")


@pytest.mark.parametrize("kind", OURS)
def test_no_estimator_cries_wolf(kind: str) -> None:
    """Warnings are errors in this suite."""
    free = (Normalizer(), PublicScaler((-1.0, 1.0)), FunctionTransformer(np.tanh), Binarizer())
    steps = make_pipeline(*free, PrivateCenter(1.0), "passthrough", clone(OURS[kind]))
    model = private(steps).fit(X, Y)
    assert model.privacy_.private
    assert model.privacy_ == total_privacy(model)
    assert clone(OURS[kind]).fit(X, Y).privacy_.private
    if hasattr(OURS[kind], "transform"):
        assert private(steps).fit_transform(X, Y).shape[0] == X.shape[0]


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
            make_pipeline(Normalizer(), GridSearchCV(svc(), {"C": [1.0]}, cv=2)),
            "'gridsearchcv' (GridSearchCV)",
        ),
        "unknown": (make_pipeline(Unknown(), svc()), "'unknown' (Unknown)"),
        "after the last private step": (
            make_pipeline(PrivateCenter(1.0), StandardScaler()),
            "'standardscaler' (StandardScaler)",
        ),
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
    with pytest.raises(InvalidParameterError, match=re.escape(name)):
        private(model).fit(X, Y)
    if kind != "search":
        with pytest.warns(PrivacyLeakWarning, match=re.escape(name)):
            assert not total_privacy(model.fit(X, Y)).private


def test_a_pipeline_of_public_steps_is_none() -> None:
    with pytest.raises(InvalidParameterError) as error:
        private(make_pipeline(Normalizer(), PublicScaler((0, 1)))).fit(X, Y)
    assert error.value.parameter == "steps"


def test_clones_in_a_search_refuse_too() -> None:
    """A search that goes on after an error has no score that came from what was learned."""
    model = private(make_pipeline(StandardScaler(), svc()))
    grid = GridSearchCV(model, {"outputperturbationsvc__C": [1.0, 2.0]}, cv=2, error_score="raise")
    with pytest.raises(InvalidParameterError):
        grid.fit(X, Y)
    with pytest.raises(InvalidParameterError):
        cross_val_score(model, X, Y, cv=2, error_score="raise")


def test_a_private_pipeline_is_cloned_cached_and_searched_like_any(tmp_path: Path) -> None:
    model = PrivatePipeline([("centre", PrivateCenter(1.0)), ("svc", svc())], memory=str(tmp_path))
    again = clone(model)
    assert type(again) is PrivatePipeline
    with warnings.catch_warnings():
        # joblib tells when a busy machine took long to write arguments.
        warnings.filterwarnings("ignore", "Persisting input arguments took", UserWarning)
        again.fit(X, Y)
    assert again.privacy_.private
    assert not hasattr(model, "privacy_")
    rows, labels = np.tile(X, (2, 1)), np.tile(Y, 2)
    search = PrivateGridSearch(model, {"svc__C": [0.1, 1.0]}).fit(rows, labels)
    assert search.privacy_.private
    assert type(search.best_estimator_) is PrivatePipeline


ROWWISE: dict[str, Any] = {
    **{kind: OURS[kind] for kind in OURS if hasattr(OURS[kind], "transform")},
    "centre": PrivateCenter(1.0, dense_output=True),
    "public": PublicScaler((-1.0, 1.0)),
    "splines": PublicSplines((-1.0, 1.0), log=True, sparse_output=False),
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


def test_a_step_that_looks_at_all_rows_is_distinguished() -> None:
    rows = np.random.default_rng(1).normal(size=(67, 30))
    assert not is_rowwise(FunctionTransformer(lambda X: X - X.mean(axis=0)).fit(rows), rows)
    assert is_rowwise(FunctionTransformer(np.tanh).fit(rows), rows)


class TestEncoders:
    """Encoders learn categories from the rows unless all of them were declared."""

    ROWS = np.array([["a"], ["b"]] * 100)

    @pytest.mark.parametrize("kind", [OneHotEncoder, OrdinalEncoder])
    def test_declared_categories_are_public(self, kind: Any) -> None:
        model = private(make_pipeline(kind(categories=[["a", "b", "c"]]), svc()))
        assert model.fit(self.ROWS, Y).privacy_.private

    @pytest.mark.parametrize(
        ("threshold", "sparse_output", "public"),
        [(0.3, True, False), (0.3, False, True), (0, True, True), (1, True, True)],
    )
    def test_a_form_that_follows_from_the_rows_is_not(
        self, threshold: float, sparse_output: bool, public: bool
    ) -> None:
        encoder = OneHotEncoder(categories=[["a", "b", "c"]], sparse_output=sparse_output)
        columns = ColumnTransformer([("e", encoder, [0])], sparse_threshold=threshold)
        model = private(make_pipeline(columns, svc()))
        if public:
            assert model.fit(self.ROWS, Y).privacy_.private
        else:
            with pytest.raises(InvalidParameterError, match="columntransformer__e"):
                model.fit(self.ROWS, Y)

    @pytest.mark.parametrize("threshold", [0.3, 1])
    @pytest.mark.parametrize(
        "step",
        [
            (HashingVectorizer(n_features=8), 0),
            (type("OwnVectorizer", (HashingVectorizer,), {})(n_features=8), 0),
            (OneHotEncoder(categories=[["a", "b"]], drop="first"), [0]),
        ],
    )
    def test_a_step_may_give_rows_with_and_without_zeros(self, step: Any, threshold: float) -> None:
        columns = ColumnTransformer([("e", *step)], sparse_threshold=threshold)
        with pytest.raises(InvalidParameterError, match="columntransformer__e"):
            private(make_pipeline(columns, svc())).fit(self.ROWS, Y)
        if isinstance(step[0], HashingVectorizer) and get_tags(step[0]).requires_fit:
            pytest.skip("this scikit-learn does not say that hashing learns nothing")
        columns.set_params(sparse_threshold=0)
        assert private(make_pipeline(columns, svc())).fit(self.ROWS, Y).privacy_.private

    def test_the_form_of_sparse_rows_follows_from_all_of_them(self) -> None:
        """Without any step inside that gives sparse rows itself."""
        rows = np.tile([[0.5, 0.0, 0.0], [0.0, 0.25, 0.0]], (100, 1))
        frame = pd.DataFrame(rows).astype(pd.SparseDtype(float, 0.0))
        for X in (sparse.csr_matrix(rows), frame):
            columns = ColumnTransformer([("a", Normalizer(), [0])], remainder="passthrough")
            model = private(make_pipeline(columns, svc()))
            with pytest.raises(InvalidParameterError, match="sparse_threshold=0") as caught:
                model.fit(X, Y)
            assert caught.value.parameter == "steps"
            search = PrivateGridSearch(make_pipeline(columns, svc()), {})
            with pytest.raises(InvalidParameterError, match="sparse_threshold=0") as caught:
                search.fit(X, Y)
            assert caught.value.parameter == "estimator"
            columns.set_params(sparse_threshold=0)
            assert model.fit(X, Y).privacy_.private

    def test_what_an_earlier_fit_left_is_not_what_is_fitted(self) -> None:
        columns = ColumnTransformer([("a", Normalizer(), [0, 1])]).fit(X)
        columns.set_params(a=StandardScaler())
        for step in (columns, make_pipeline(columns)):
            model = private(make_pipeline(step, svc()))
            with pytest.raises(InvalidParameterError, match="columntransformer__a"):
                model.fit(X, Y)

    def test_an_earlier_step_may_give_sparse_rows(self) -> None:
        encoder = OneHotEncoder(categories=[["a", "b"]])
        columns = ColumnTransformer([("n", Normalizer(), [0])], remainder="passthrough")
        model = private(make_pipeline(encoder, columns, svc()))
        with pytest.raises(InvalidParameterError, match=r"'columntransformer'.*sparse_threshold=0"):
            model.fit(self.ROWS, Y)
        leaky = make_pipeline(encoder, columns, svc()).fit(self.ROWS, Y)
        with pytest.warns(PrivacyLeakWarning, match="columntransformer"):
            assert not total_privacy(leaky).private
        columns.set_params(sparse_threshold=0)
        assert model.fit(self.ROWS, Y).privacy_.private

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
        with pytest.raises(InvalidParameterError, match="Encoder"):
            private(make_pipeline(encoder, svc())).fit(self.ROWS, Y)
