"""PrivateKernelSVC: what it releases, that it is linear where it says so, and that it learns."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from dpsvm_fast import (
    BudgetExceededError,
    InvalidParameterError,
    PrivacyLedger,
    PrivateKernelSVC,
    PrivateLinearSVC,
    PublicSplines,
    verify,
)
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.mechanisms.rows import PublicMap, ReleasedMap, feature_rows
from estimators.test_private_linear import RELEASED as RELEASED_LINEAR
from estimators.test_private_linear import clusters, two_classes

slow = pytest.mark.slow
seeded = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def model(**changes: Any) -> PrivateKernelSVC:
    settings: dict[str, Any] = {
        "epsilon": 8.0,
        "delta": 1e-5,
        "classes": [0, 1, 2],
        "n_threads": 1,
        "bounds": (-1.5, 1.5),
        "n_components": 30,
    }
    return PrivateKernelSVC(**(settings | changes))


LENGTHS = {"normalize": False, "data_norm": 2.0, "bounds": None}
# Binary where the law of three classes takes long to compose.
KINDS: dict[str, dict[str, Any]] = {
    "auto": {},
    "linear": {"epsilon": 0.5},
    "whitened": {"whiten": True, "kernel": "rbf"},
    "laplacian": {"kernel": "laplacian"},
    "two classes": {"classes": [0, 1], "kernel": "rbf"},
    "lengths": LENGTHS,
    "objective": {"mechanism": "objective", "classes": [0, 1], "kernel": "rbf"},
    "output": {"mechanism": "output"},
    "output, lengths": {"mechanism": "output", **LENGTHS},
    "additive": {"kernel": "additive", "knots": 4},
    "additive, objective": {
        "kernel": "additive",
        "mechanism": "objective",
        "classes": [0, 1],
        "knots": [2, 1, [-1, 1], 3],
    },
    "pure": {"delta": 0.0, "classes": [0, 1]},
    "pure, lengths": {"delta": 0.0, "classes": [0, 1], **LENGTHS},
    "pure, given": {"delta": 0.0, "classes": [0, 1], "kernel": "rbf", "gamma": 1.0, **LENGTHS},
}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_relation = pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])


def data_for(kind: str) -> tuple[Any, Any]:
    return two_classes() if len(KINDS[kind].get("classes", "abc")) == 2 else clusters()


@each_kind
@each_relation
@pytest.mark.parametrize("noise_grid", ["exact", pytest.param("float", marks=slow)])
def test_every_certificate_holds(kind: str, adjacency: str, noise_grid: str) -> None:
    settings = KINDS[kind] | {"adjacency": adjacency, "noise_grid": noise_grid}
    fitted = model(**settings).fit(*data_for(kind))
    statement = fitted.privacy_
    assert statement.private
    assert verify(statement), str(verify(statement))
    assert (statement.epsilon, statement.delta) == (fitted.epsilon, fitted.delta)
    parts = [part.name for part in statement.parts]
    # Without any noisy sum it is the solver's own release.
    alone = f"{fitted.mechanism_}_perturbation"
    assert statement.mechanism == ("private_kernel" if parts else alone)
    assert ("whitening" in parts) == fitted.whitened_
    # Solvers do not centre sparse rows, such as values of splines.
    centred = fitted.normalize and kind != "additive, objective"
    assert ("centre" in parts) == (fitted.centre_ is not None) == centred
    text = str(statement)
    if fitted.features_ is not None:
        assert str(fitted.features_.seed) in text
    assert ("bounds" if fitted.normalize else "data_norm") in text
    record = statement.to_dict()
    record["epsilon"] *= 0.9
    assert not verify(record)


def test_a_count_is_verified_like_the_rest() -> None:
    statement = model(**LENGTHS).fit(*clusters()).privacy_
    assert [part.name for part in statement.parts] == ["count", "training"]
    for change in (
        {"clip_norm": 0.5, "contribution": 0.5},
        {"sigma": 0.5 * (statement.parts[0].sigma or 0.0)},
        {"name": "centre"},
    ):
        record = statement.to_dict()
        record["parts"][0] |= change
        if "name" not in change:
            assert not verify(record)
    record = statement.to_dict()
    record["parts"].insert(0, record["parts"][0])
    record["events"].insert(0, record["events"][0])
    assert not verify(record)


RELEASED = RELEASED_LINEAR | {
    "kernel_", "gamma_", "n_components_", "q_", "features_", "data_norm_",
}  # fmt: skip


@each_kind
def test_what_is_published(kind: str) -> None:
    X, y = data_for(kind)
    fitted = model(**KINDS[kind]).fit(X, y)
    own = set() if fitted.splines_ is None else {"splines_"}
    assert set(vars(fitted)) - set(fitted.get_params()) == RELEASED | own
    n_scores = 1 if len(fitted.classes_) == 2 else 3
    columns = {"linear": X.shape[1], "additive": fitted.splines_ and sum(fitted.splines_.sizes)}
    assert fitted.coef_.shape == (n_scores, columns.get(fitted.kernel_, 60))
    unlifted = fitted.kernel_ in columns
    assert (fitted.features_ is None) == (fitted.gamma_ is None) == unlifted
    assert fitted.n_components_ == (None if unlifted else 30)
    if fitted.features_ is not None:
        assert fitted.features_.gamma == fitted.gamma_
        assert fitted.features_.centre == ("sphere" if fitted.normalize else "ball")
    if kind in ("pure, given", "additive, objective"):
        assert fitted.n_samples_ is None
    else:
        assert fitted.n_samples_ == pytest.approx(len(X), abs=300)
        # Whole numbers may be hit by luck, with probability 1/10 by each fit.
        fits = (fitted, *(model(**KINDS[kind]).fit(X, y) for _ in range(7)))
        assert any(one.n_samples_ != len(X) for one in fits)
    for again in (pickle.loads(pickle.dumps(fitted)), clone(fitted).set_params(n_threads=2)):
        if hasattr(again, "coef_"):
            assert np.array_equal(again.decision_function(X), fitted.decision_function(X))
        else:
            assert set(vars(again)) - {"_set_on_clone"} == set(fitted.get_params())


@seeded
@pytest.mark.parametrize("changes", [{"epsilon": 0.5}, {"kernel": "linear"}])
@pytest.mark.parametrize("whiten", ["auto", True])
@each_relation
@pytest.mark.parametrize("form", [sparse.csr_matrix, pytest.param(np.asarray, marks=slow)])
def test_where_it_stays_linear_it_is_the_linear_model(
    changes: dict[str, Any], whiten: Any, adjacency: str, form: Any
) -> None:
    X, y = clusters()
    shared: dict[str, Any] = {"whiten": whiten, "adjacency": adjacency, "random_state": 3}
    fitted = model(**shared | changes).fit(form(X), y)
    assert fitted.kernel_ == "linear"
    epsilon = fitted.epsilon
    linear = PrivateLinearSVC(
        epsilon, 1e-5, classes=[0, 1, 2], bounds=(-1.5, 1.5), n_threads=1, **shared
    ).fit(form(X), y)
    for name in ("coef_", "intercept_", "centre_", "n_samples_", "mu_", "c_"):
        assert np.array_equal(getattr(fitted, name), getattr(linear, name))
    assert np.array_equal(fitted.decision_function(X), linear.decision_function(X))
    assert fitted.privacy_.parts == linear.privacy_.parts


@seeded
@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_solvers_stay_linear_too(mechanism: str) -> None:
    X, y = two_classes()
    shared: dict[str, Any] = {"mechanism": mechanism, "random_state": 3, "classes": [0, 1]}
    fitted = model(**shared, kernel="linear").fit(X, y)
    linear = PrivateLinearSVC(8.0, 1e-5, bounds=(-1.5, 1.5), n_threads=1, **shared).fit(X, y)
    assert np.array_equal(fitted.coef_, linear.coef_)


@seeded
@pytest.mark.parametrize("mechanism", ["gradient", "objective", "output"])
@each_relation
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_additive_is_the_linear_model_on_splines(mechanism: str, adjacency: str, form: Any) -> None:
    """The kernel of hat functions, bit for bit: one fit and one statement in place of two steps."""
    X, y = two_classes()
    X, knots = form(X), [5, 1, [-1.0, 0.0, 2.0], *[3] * (X.shape[1] - 3)]
    shared: dict[str, Any] = {"adjacency": adjacency, "mechanism": mechanism, "random_state": 3}
    fitted = model(classes=[0, 1], kernel="additive", knots=knots, **shared).fit(X, y)
    steps = (
        PublicSplines((-1.5, 1.5), knots),
        PrivateLinearSVC(8.0, 1e-5, classes=[0, 1], bounds=(0, 1), n_threads=1, **shared),
    )
    twin = make_pipeline(*steps).fit(X, y)
    for name in ("coef_", "intercept_", "lift_coef_", "temperature_"):
        assert np.array_equal(getattr(fitted, name), getattr(twin[-1], name))
    assert np.array_equal(fitted.decision_function(X), twin.decision_function(X))
    assert fitted.privacy_.events == twin[-1].privacy_.events
    assert fitted.kernel_ == "additive"
    assert fitted.splines_.sizes[:3] == [5, 1, 3]
    assert model(classes=[0, 1]).fit(X, y).splines_ is None
    assert fitted.set_params(kernel="linear").fit(X, y).splines_ is None


@pytest.mark.parametrize(
    ("changes", "parameter"),
    [
        ({"bounds": None}, "bounds"),
        ({"bounds": "unit_norm"}, "bounds"),
        ({"bounds": None, "normalize": False}, "kernel"),
        ({"knots": [3, 3]}, "knots"),
    ],
)
def test_additive_needs_public_knots(changes: dict[str, Any], parameter: str) -> None:
    ledger = PrivacyLedger(8.0, 1e-5)
    with pytest.raises(InvalidParameterError) as caught:
        model(kernel="additive", ledger=ledger, **changes).fit(*clusters())
    assert caught.value.parameter == parameter
    assert not ledger.history


def test_additive_finds_shapes_of_columns() -> None:
    """The class is the sign of a sum of waves, of which a linear model sees next to nothing."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.5, 1.5, size=(6000, 4))
    y = (np.sin(4.0 * X).sum(axis=1) + 0.1 * rng.normal(size=6000) > 0.0).astype(np.int64)
    scores = {
        kernel: model(kernel=kernel, classes=[0, 1], epsilon=2.0, knots=9)
        .fit(X[:4000], y[:4000])
        .score(X[4000:], y[4000:])
        for kernel in ("additive", "linear")
    }
    assert scores["additive"] > 0.9
    assert scores["linear"] < 0.75


@seeded
@pytest.mark.parametrize("kind", ["auto", "whitened", "laplacian", "lengths", "two classes"])
@pytest.mark.parametrize(
    "form", [sparse.csr_matrix, *(pytest.param(f, marks=slow) for f in (np.asarray, np.float32))]
)
def test_streamed_features_give_the_stored_model_bit_by_bit(kind: str, form: Any) -> None:
    X, y = data_for(kind)
    settings = KINDS[kind] | {"random_state": 4, "n_components": 37}
    fits = [
        model(**settings | {"low_memory": low, "n_threads": threads}).fit(form(X), y)
        for low, threads in ((False, 1), (True, 1), (True, 3), ("auto", 2))
    ]
    assert fits[0].features_ is not None
    for other in fits[1:]:
        assert np.array_equal(other.coef_, fits[0].coef_)
        assert np.array_equal(other.intercept_, fits[0].intercept_)


@pytest.mark.parametrize("released", ["nothing", "centre", "whitening"])
def test_rows_for_solvers_are_functions_of_their_row_alone(released: str) -> None:
    """One record more changes no bit of the features of the others."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 7))
    # A mapped row has a constant behind its features.
    facts = Facts(n_features=6, n_classes=3)
    mechanism = model(kernel="rbf", classes=range(3)).checked().plan(facts)
    features = mechanism.features(mechanism.choice(1e4), 1)
    assert features is not None
    centre = None if released == "nothing" else rng.normal(size=7) / 10.0
    matrix = rng.normal(size=(7, 7)) if released == "whitening" else None
    maps = (PublicMap(), ReleasedMap(centre, matrix))
    whole = feature_rows(features, *maps, X, 1)
    assert whole.dtype == np.float32
    assert np.array_equal(feature_rows(features, *maps, X[:17], 2), whole[:17])
    assert np.array_equal(feature_rows(features, *maps, X[123:124], 1), whole[123:124])
    assert np.array_equal(feature_rows(features, *maps, X[::-1], 1), whole[::-1])
    assert np.allclose(np.linalg.norm(whole, axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize("kind", ["auto", "whitened", "lengths", "pure, lengths"])
def test_adversarial_rows_leave_finite_numbers(kind: str) -> None:
    X, y = data_for(kind)
    X[0], X[1], X[2] = 1e308, 5e-324, 0.0
    for gamma in (1e-30, 1e30, "auto"):
        fitted = model(**KINDS[kind] | {"gamma": gamma, "kernel": "rbf"}).fit(X, y)
        assert np.isfinite(fitted.coef_).all()
        assert np.isfinite(fitted.decision_function(X)).all()


def test_it_learns_what_no_linear_model_can() -> None:
    """Four clusters, opposite ones of one class: no linear model is better than chance."""
    rng = np.random.default_rng(0)
    corners = rng.choice([-1.0, 1.0], size=(3000, 2))
    X = 0.15 * rng.normal(size=(3000, 4))
    X[:, :2] += corners
    y = (corners.prod(axis=1) > 0).astype(np.int64)
    fitted = model(n_components=150, bounds=None, classes=[0, 1]).fit(X[:2000], y[:2000])
    assert fitted.kernel_ == "rbf"
    linear = model(kernel="linear", bounds=None, classes=[0, 1]).fit(X[:2000], y[:2000])
    assert fitted.score(X[2000:], y[2000:]) > 0.9
    assert linear.score(X[2000:], y[2000:]) < 0.7


def test_a_label_in_the_radius_needs_rows_as_they_are() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    X *= (rng.uniform(0.0, 0.5, 4000) / np.linalg.norm(X, axis=1))[:, None]
    y = (np.linalg.norm(X, axis=1) > 0.25).astype(int)
    settings: dict[str, Any] = {"classes": [0, 1], "bounds": None, "n_components": 60}
    for delta in (1e-5, 0.0):
        own = model(**settings, delta=delta, normalize=False, data_norm=0.5).fit(X, y)
        assert own.kernel_ == "rbf"
        assert own.score(X, y) > 0.9
    assert model(**settings).fit(X, y).score(X, y) < 0.7


def test_the_ledger_is_charged_once_for_everything() -> None:
    X, y = clusters()
    ledger = PrivacyLedger(8.0, 1e-5)
    fitted = model(ledger=ledger).fit(X, y)
    assert fitted.features_ is not None
    assert len(ledger.history) == 3
    with pytest.raises(BudgetExceededError):
        model(ledger=ledger).fit(X, y)
    # Features are free: what is left for the training is that of the linear pipeline.
    linear = PrivateLinearSVC(8.0, 1e-5, classes=[0, 1, 2]).fit(X, y)
    assert sum(mu**2 for mu in fitted.mu_.values()) == pytest.approx(
        sum(mu**2 for mu in linear.mu_.values()), rel=1e-9
    )
