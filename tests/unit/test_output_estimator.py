"""OutputPerturbationSVC: order of the fit, bad inputs, label sets, forms of the rows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

from dpsvm_fast import (
    BudgetExceededError,
    CertificationError,
    InvalidParameterError,
    NotPrivateWarning,
    OutputPerturbationSVC,
    PrivacyLeakWarning,
    PrivacyLedger,
    _core,
    verify,
)

TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]
SECRET = 7654.25
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


class Untouchable:
    """Stands in for data: any look at it, but at its shape, which is public, fails the test."""

    shape = (6, 2)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the data were touched: {name}")

    def __len__(self) -> int:
        raise AssertionError("the data were touched")

    def __iter__(self) -> Any:
        raise AssertionError("the data were touched")


def model(**changes: Any) -> OutputPerturbationSVC:
    return OutputPerturbationSVC(**({"classes": [0, 1, 2], "n_threads": 1} | changes))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0), ("epsilon", -1.0), ("epsilon", float("nan")), ("epsilon", "1"),
        ("epsilon", True), ("epsilon", 1e308), ("delta", 1.0), ("delta", -0.1), ("delta", 0.0),
        ("loss", "hinge"), ("noise", "laplace"), ("adjacency", "replace"), ("data_norm", 0.0),
        ("data_norm", float("inf")), ("data_norm", 1e300), ("classes", "abc"), ("classes", 3),
        ("classes", [1]), ("classes", [1, 1]), ("classes", [1, None]), ("classes", [1, "a"]),
        ("classes", [0.5, 1.0]), ("classes", [float("nan"), 1.0]), ("classes", [-1, 2**63]),
        ("fit_intercept", 1), ("intercept_scaling", 0.0), ("intercept_scaling", "big"),
        ("C", 0.0), ("C", "best"), ("C", 1e300), ("tol", 0.0), ("tol", 2.0), ("max_iter", 0),
        ("max_iter", 1.5), ("random_state", -1), ("random_state", np.random.RandomState(0)),
        ("ledger", object()), ("n_threads", 0), ("n_threads", 10**6), ("noise_grid", "coarse"),
        ("low_memory", "no"), ("verbose", 2),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_by_name_before_data_are_read(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name}"):
        model(**{name: value}).fit(Untouchable(), Untouchable())


def test_other_losses_are_refused_naming_what_is_accepted() -> None:
    with pytest.raises(InvalidParameterError, match="crammer_singer"):
        model(loss="hinge").fit(Untouchable(), Untouchable())


def test_budget_is_refused_before_data_are_read() -> None:
    ledger = PrivacyLedger(epsilon=0.5, delta=1e-6)
    with pytest.raises(BudgetExceededError):
        model(ledger=ledger).fit(Untouchable(), Untouchable())
    assert ledger.history == ()


def test_invalid_data_spend_nothing(clusters: TrainingSet) -> None:
    X, y = clusters
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-6)
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model(ledger=ledger).fit(X, y)
    assert ledger.history == ()


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
def test_budget_is_spent_before_the_solver_starts(clusters: TrainingSet) -> None:
    ledger = PrivacyLedger(epsilon=1.0, delta=1e-6, strict=False)
    estimator = model(ledger=ledger, max_iter=1, tol=1e-4, C=1.0)
    with pytest.raises(CertificationError, match="not covered by the guarantee"):
        estimator.fit(*clusters)
    assert len(ledger.history) == 1
    assert not [name for name in vars(estimator) if name.endswith("_")]


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
def test_failed_refit_removes_the_old_model(clusters: TrainingSet) -> None:
    X, y = clusters
    estimator = model().fit(X, y)
    with pytest.raises(ValueError, match="label"):
        estimator.fit(X, y + 1)
    with pytest.raises(NotFittedError):
        estimator.predict(X)
    assert not [name for name in vars(estimator) if name.endswith("_")]


@pytest.mark.parametrize("position", [(0, 0), (5, 2)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_errors_never_quote_the_data(
    clusters: TrainingSet, position: tuple[int, int], value: float
) -> None:
    X, y = clusters
    X[:] = SECRET
    broken = X.copy()
    broken[position] = value
    attempts: list[tuple[Any, Any]] = [
        (broken, y),
        (X.astype(complex), y),
        (X.astype(str), y),
        (X.astype(object) + 0j, y),
        (np.where(X > 0, "x7654.25", "y").astype(object), y),
        (X[0], y),
        (X[0, 0], y),
        (X, y + 7654),
        (X, np.where(y > 0, "7654.25", "a")),
        (X, np.where(y > 0, SECRET, 0.0)),
        (X[:-1], y),
        (sparse.csr_matrix(broken), y),
    ]
    for rows, labels in attempts:
        with pytest.raises((ValueError, TypeError)) as caught:
            model().fit(rows, labels)
        error: BaseException | None = caught.value
        while error is not None:
            assert "7654" not in str(error)
            assert str(len(y)) not in str(error)
            error = error.__context__


def fitted_coef(X: Any, y: Any, **changes: Any) -> NDArray[np.float64]:
    coef: NDArray[np.float64] = model(random_state=1, **changes).fit(X, y).coef_
    return coef


@seeded
def test_every_form_of_the_rows_gives_the_same_model(clusters: TrainingSet) -> None:
    X, y = clusters
    X = X.astype(np.float32).astype(np.float64)
    base = model(random_state=1).fit(X, y)
    radius = base.privacy_.sensitivity.solver_radius + base.privacy_.noise.grid
    read_only = X.copy()
    read_only.setflags(write=False)
    strided = np.repeat(X, 2, axis=0)[::2]
    unsorted = sparse.csr_matrix(X)
    unsorted.indices = unsorted.indices.copy()
    for i in range(unsorted.shape[0]):
        part = slice(unsorted.indptr[i], unsorted.indptr[i + 1])
        unsorted.indices[part] = unsorted.indices[part][::-1]
        unsorted.data[part] = unsorted.data[part][::-1]
    unsorted.has_sorted_indices = False
    coo = sparse.csr_matrix(X).tocoo()
    halves = sparse.coo_matrix(
        (np.tile(coo.data / 2, 2), (np.tile(coo.row, 2), np.tile(coo.col, 2))), X.shape
    )
    forms = [
        np.asfortranarray(X), X.astype(np.float32), X.astype(">f8"), X.astype(np.longdouble),
        X[:, ::-1][:, ::-1], strided, read_only, X.tolist(), sparse.csr_matrix(X),
        sparse.csc_matrix(X), sparse.csr_array(X), unsorted, halves, X.astype(object),
    ]  # fmt: skip
    for form in forms:
        assert np.abs(fitted_coef(form, y) - base.coef_).max() <= 2 * radius


@seeded
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float16])
def test_small_dtypes_are_widened(clusters: TrainingSet, dtype: type) -> None:
    X, y = clusters
    narrow = (X > 0.4).astype(dtype)
    expected = fitted_coef(narrow.astype(np.float64), y)
    assert np.abs(fitted_coef(narrow, y) - expected).max() <= 1e-3


@pytest.mark.proof("output_perturbation", "Sensitivity, declared radius, rounding")
@seeded
def test_extreme_rows_are_clipped(clusters: TrainingSet) -> None:
    X, y = clusters
    directions = np.sign(X[:, :1]) * np.eye(1, 5)
    expected = fitted_coef(directions, y)
    for size in (1e308, 1e200, 2.0):
        np.testing.assert_allclose(fitted_coef(directions * size, y), expected, atol=1e-3)
    assert np.isfinite(fitted_coef(X * 5e-324, y)).all()


@seeded
@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ([-1, 1, 2], [-1, 1, 2]),
        (range(3), [0, 1, 2]),
        (["a", "ü", ""], ["", "a", "ü"]),
        ([2.0, 1.0, 3.0], [1, 2, 3]),
        ([2**53 + 1, 2**53, 2**62], [2**53, 2**53 + 1, 2**62]),
        (np.array([2**63 + 1, 5, 7], dtype=np.uint64), [5, 7, 2**63 + 1]),
    ],
)
def test_label_sets(clusters: TrainingSet, classes: Any, labels: list[Any]) -> None:
    X, codes = clusters
    base = model(random_state=1).fit(X, codes)
    y = np.array(labels, dtype=np.uint64 if 2**63 + 1 in labels else None)[codes]
    estimator = model(random_state=1, classes=classes).fit(X, y)
    np.testing.assert_array_equal(estimator.classes_, np.array(labels, dtype=y.dtype))
    np.testing.assert_array_equal(estimator.coef_, base.coef_)
    assert set(estimator.predict(X)) <= set(estimator.classes_)


@seeded
def test_two_classes_give_one_row(clusters: TrainingSet) -> None:
    X, y = clusters
    estimator = model(random_state=1, classes=[False, True]).fit(X, y > 0)
    assert estimator.coef_.shape == (1, 5)
    assert estimator.intercept_.shape == (1,)
    scores = estimator.decision_function(X)
    assert scores.shape == (len(y),)
    np.testing.assert_array_equal(estimator.predict(X), scores > 0)


def test_absent_classes_and_tiny_data_are_fine(clusters: TrainingSet) -> None:
    X, y = clusters
    assert model(classes=range(5)).fit(X, y).coef_.shape == (5, 5)
    assert model().fit(X[:1], y[:1]).coef_.shape == (3, 5)
    assert model().fit(np.zeros((4, 1)), [0, 1, 2, 0]).coef_.shape == (3, 1)
    wide = np.random.default_rng(0).normal(size=(3, 2000))
    assert model().fit(wide, [0, 1, 2]).coef_.shape == (3, 2000)


def test_sample_weight_is_no_parameter(clusters: TrainingSet) -> None:
    with pytest.raises(TypeError, match="sample_weight"):
        model().fit(*clusters, sample_weight=np.ones(90))  # type: ignore[call-arg]


def test_masked_arrays_and_dates_are_refused(clusters: TrainingSet) -> None:
    X, y = clusters
    with pytest.raises(TypeError, match=r"^X: masked"):
        model().fit(np.ma.masked_array(X), y)
    with pytest.raises(ValueError, match=r"^X: expected numbers"):
        model().fit(X.astype("M8[s]"), y)


def test_bad_sparse_indices_are_refused(clusters: TrainingSet) -> None:
    X, y = clusters
    for wrong in (7, -1):
        rows = sparse.csr_matrix(X)
        rows.indices[3] = wrong
        with pytest.raises(ValueError, match="ind"):
            model().fit(rows, y)


def test_statement_and_warnings(clusters: TrainingSet) -> None:
    X, y = clusters
    private = model(max_iter=10**6, adjacency="replace_one").fit(X, y).privacy_
    assert private.private
    assert verify(private).ok
    assert private.adjacency == "replace_one"
    assert any("max_iter" in caveat for caveat in private.caveats)
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        leaked = model(classes=None).fit(X, y).privacy_
    assert not leaked.private
    with pytest.warns(NotPrivateWarning, match="random_state") as caught:
        known = model(random_state=0).fit(X, y).privacy_
    assert len(caught) == 1
    assert not known.private
    assert known.random_source == "seed"


def test_one_label_without_a_label_set_is_refused(clusters: TrainingSet) -> None:
    with (
        pytest.warns(PrivacyLeakWarning),
        pytest.raises(ValueError, match="one class"),
    ):
        model(classes=None).fit(clusters[0], np.zeros(90))


@pytest.mark.proof("output_perturbation", "The whole release, and what may leave with it")
def test_noise_is_fresh_at_every_fit(clusters: TrainingSet) -> None:
    estimator = model()
    first = estimator.fit(*clusters).coef_
    second = estimator.fit(*clusters).coef_
    third = clone(estimator).fit(*clusters).coef_
    copied = pickle.loads(pickle.dumps(estimator)).fit(*clusters).coef_
    values = np.concatenate([first, second, third, copied])
    assert len(np.unique(values)) == values.size


@pytest.mark.proof("output_perturbation", "Inexact minimiser")
@seeded
def test_row_order_does_not_matter_beyond_the_radius(clusters: TrainingSet) -> None:
    X, y = clusters
    base = model(random_state=1).fit(X, y)
    order = np.random.default_rng(0).permutation(len(y))
    moved = model(random_state=1).fit(X[order], y[order])
    allowed = 2 * base.privacy_.sensitivity.solver_radius + base.privacy_.noise.grid
    assert np.abs(moved.coef_ - base.coef_).max() <= allowed


def test_large_epsilon_approaches_the_plain_model(clusters: TrainingSet) -> None:
    X, y = clusters
    assert model(epsilon=1e4).fit(X, y).score(X, y) > 0.9


def test_verbose_prints_public_facts(
    clusters: TrainingSet, capsys: pytest.CaptureFixture[str]
) -> None:
    model(verbose=1).fit(*clusters)
    assert "sigma" in capsys.readouterr().out


@seeded
def test_whole_numbers_in_few_columns_are_solved() -> None:
    # Four thousand duals between their bounds for ninety weights: single steps through them did
    # not end in minutes, whatever max_iter was.
    X, y = load_digits(return_X_y=True)
    fitted = model(classes=range(10), data_norm=80.0, max_iter=1000, random_state=0).fit(
        X[:, :8], y
    )
    assert np.isfinite(fitted.coef_).all()


def test_every_order_of_equal_rows_is_certified() -> None:
    # Where C is tiny, a rounding of a row's duals counts more than the gap that is wanted, if it
    # is laid on a class that is a whole margin behind: one order in twenty never ended.
    rows = np.random.default_rng(0).normal(size=(12, 3)) * 1e6
    X, y = np.tile(rows, (33, 1)), np.tile(np.arange(3), 132)
    settings: dict[str, Any] = {"n_classes": 3, "C": 1e-3, "radius": 1.4e-12, "max_iter": 400}
    scales: dict[str, Any] = {"data_norm": 1e-6, "intercept_scaling": 2e-7}
    for seed in range(150):
        weights, _ = _core.solve_crammer_singer(
            X, y, **settings, **scales, n_threads=1, shuffle_seed=seed, low_memory=False
        )
        assert weights is not None, seed


def test_a_delta_that_promises_nothing_is_warned_of_once_and_first() -> None:
    rows, labels = np.eye(4), np.array([0, 1, 0, 1])
    model = OutputPerturbationSVC(epsilon=1.0, delta=0.2, data_norm=1.0, classes=[0, 1])
    with pytest.warns(NotPrivateWarning) as caught:
        model.fit(rows, labels)
    assert len(caught) == 1
    # Negative control: any usual delta.
    model.set_params(delta=0.1).fit(rows, labels)
