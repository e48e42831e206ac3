"""Groups and weights as users pass them: same bits, refused ids, nothing kept."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from conftest import three_clusters
from dpsvm_fast import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivacyLedger,
    PrivateCenter,
    PrivateKernelSVC,
    PrivateLinearSVC,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
    PublicScaler,
)
from dpsvm_fast.estimators.inputs import owners
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.verification import verify
from oracles.noisy_descent import STEEP, clipped_sum, records_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:random_state is a seed"),
    pytest.mark.proof("persons", "One person, one vector"),
]

X, Y = three_clusters(600)
GROUPS = np.repeat(np.arange(60), 10)
CLASSIFIERS: dict[str, Any] = {
    "linear": PrivateLinearSVC(delta=1e-5, classes=range(3), random_state=0),
    "kernel": PrivateKernelSVC(delta=1e-5, classes=range(3), n_components=20, random_state=0),
    "gradient": GradientPerturbationSVC(delta=1e-5, classes=range(3), random_state=0),
    "sampled": GradientPerturbationSVC(
        delta=1e-5, classes=range(3), optimizer="sgd", n_steps=20, random_state=0
    ),
}
TRANSFORMERS: dict[str, Any] = {
    "centre": PrivateCenter(delta=1e-5, random_state=0),
    "whitener": PrivateWhitener(delta=1e-5, random_state=0),
    "pca": PrivatePCA(delta=1e-5, random_state=0),
    "scaler": PrivateStandardScaler(delta=1e-5, bounds=(-2, 2), random_state=0),
}
ALL = CLASSIFIERS | TRANSFORMERS


def numbers(fitted: Any) -> list[np.ndarray]:
    """All fitted arrays."""
    found = {k: v for k, v in vars(fitted).items() if k.endswith("_") and isinstance(v, np.ndarray)}
    return [found[name] for name in sorted(found)]


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(numbers(one), numbers(other), strict=True))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_persons_of_one_row_are_rows_to_the_last_bit(name: str, form: Any) -> None:
    ids = np.random.default_rng(0).permutation(len(X))
    by_rows = clone(ALL[name]).fit(form(X), Y)
    by_persons = clone(ALL[name]).fit(form(X), Y, groups=ids)
    assert same(by_rows, by_persons)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_threads_names_and_places_of_persons_change_nothing(name: str, form: Any) -> None:
    fits = [clone(ALL[name]).fit(form(X), Y, groups=GROUPS)]
    for threads, ids in ((2, GROUPS), (1, np.char.add("p", GROUPS.astype(str))), (1, 99 - GROUPS)):
        fits.append(clone(ALL[name]).set_params(n_threads=threads).fit(form(X), Y, groups=ids))
    # Rows of a person need not stand together; their order within the person is kept.
    order = np.argsort(np.tile(np.arange(10), 60), kind="stable")
    fits.append(clone(ALL[name]).fit(form(X[order]), Y[order], groups=GROUPS[order]))
    assert all(same(fits[0], fit) for fit in fits[1:])
    assert not same(fits[0], clone(ALL[name]).fit(form(X), Y))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_rows_of_weight_zero_are_not_there(name: str) -> None:
    weights = np.ones(len(X))
    weights[::3] = 0.0
    kept = weights > 0.0
    for own in (GROUPS, None):
        some = None if own is None else own[kept]
        weighted = clone(CLASSIFIERS[name]).fit(X, Y, groups=own, sample_weight=weights)
        fewer = clone(CLASSIFIERS[name]).fit(X[kept], Y[kept], groups=some)
        assert same(weighted, fewer)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_weights_are_clipped_to_the_largest(name: str) -> None:
    weights = np.linspace(0.5, 1.5, len(X))
    model = clone(CLASSIFIERS[name])
    assert same(
        clone(model).fit(X, Y, sample_weight=weights),
        clone(model).fit(X, Y, sample_weight=np.minimum(weights, 1.0)),
    )
    halves = clone(model).set_params(max_weight=2.0)
    assert same(
        clone(model).fit(X, Y, sample_weight=weights / 2), halves.fit(X, Y, sample_weight=weights)
    )


@pytest.mark.proof("persons", "Sums of rows")
def test_a_person_counts_once_whatever_its_weights() -> None:
    for weights, total in (([1.0] * 4, 2.0), ([0.25, 0.25, 1.0, 1.0], 1.5), ([9.0] * 4, 2.0)):
        found = owners([0, 0, 1, 1], weights, 4, 1.0)
        assert (found.n_persons, found.total) == (2, total)


@pytest.mark.proof("persons", "Sums of rows")
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_weight_two_is_two_rows_where_sums_are_exact(form: Any) -> None:
    """A row of weight 2 beside others of the same person, or the row twice."""
    rows, labels = np.round(X[:6] * 64) / 128, Y[:6]
    twice = [0, 0, 1, 2, 3, 4, 5]
    one = records_of(form(rows), labels, 3)
    one.own(np.array([0, 6]), np.array([1.0, 0.5, 0.5, 0.5, 0.5, 0.5]))
    two = records_of(form(rows[twice]), labels[twice], 3)
    two.own(np.array([0, 7]), np.full(7, 0.5))
    assert np.array_equal(one.sums(1), two.sums(1))
    options = STEEP | {"clip": 1e3}
    ones = [records_of(form(r), np.ones(len(r))) for r in (rows, rows[twice])]
    ones[0].own(np.array([0, 6]), np.array([1.0, 0.5, 0.5, 0.5, 0.5, 0.5]))
    ones[1].own(np.array([0, 7]), np.full(7, 0.5))
    assert np.array_equal(*(clipped_sum(records, **options) for records in ones))


@pytest.mark.proof("persons", "Sums of gradients")
def test_class_weights_count_by_their_ratios() -> None:
    model = CLASSIFIERS["linear"]
    fits = [
        clone(model).set_params(class_weight=weights).fit(X, Y)
        for weights in ({0: 4, 1: 1, 2: 1}, {0: 1, 1: 0.25, 2: 0.25}, {0: 4.0}, {0: 1, 1: 1, 2: 1})
    ]
    assert same(fits[0], fits[1])
    assert same(fits[0], fits[2])
    assert same(fits[3], clone(model).fit(X, Y))
    assert not same(fits[0], fits[3])
    share = [(fit.predict(X) == 0).mean() for fit in fits]
    assert share[0] >= share[3]


BAD_GROUPS: dict[str, Any] = {
    "length": GROUPS[1:],
    "columns": np.stack([GROUPS, GROUPS], axis=1),
    "NaN": np.where(GROUPS == 3, np.nan, GROUPS),
    "fractions": GROUPS + 0.5,
    "None": [None, *GROUPS[1:]],
    "tuples": [(g, g) for g in GROUPS],
    "lists": [[g] for g in GROUPS],
    "mixed": np.array(["a", *GROUPS[1:]], dtype=object),
    "missing": pd.Series(GROUPS, dtype="Int64").where(GROUPS > 5),
    "dates": GROUPS.astype("datetime64[D]"),
    "number": 3,
}
BAD_WEIGHTS: dict[str, Any] = {
    "length": np.ones(3),
    "columns": np.ones((600, 1)),
    "negative": np.where(GROUPS == 3, -1.0, 1.0),
    "infinite": np.where(GROUPS == 3, np.inf, 1.0),
    "NaN": np.where(GROUPS == 3, np.nan, 1.0),
    "zeros": np.zeros(600),
    "words": ["heavy"] * 600,
}


@pytest.mark.parametrize("case", BAD_GROUPS)
def test_bad_groups_are_refused_and_nothing_is_spent(case: str) -> None:
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-3, unit="person")
    model = PrivateLinearSVC(delta=1e-5, classes=range(3), ledger=ledger)
    with pytest.raises(InvalidParameterError) as caught:
        model.fit(X, Y, groups=BAD_GROUPS[case])
    assert caught.value.parameter == "groups"
    assert ledger.history == ()
    assert caught.value.__context__ is None


@pytest.mark.parametrize("case", BAD_WEIGHTS)
def test_bad_weights_are_refused_and_nothing_is_spent(case: str) -> None:
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-3)
    model = PrivateLinearSVC(delta=1e-5, classes=range(3), ledger=ledger)
    with pytest.raises(InvalidParameterError) as caught:
        model.fit(X, Y, sample_weight=BAD_WEIGHTS[case])
    assert caught.value.parameter == "sample_weight"
    assert ledger.history == ()


@pytest.mark.parametrize(
    ("weights", "kind"),
    [
        ("balanced", TypeError),
        ({9: 1.0}, InvalidParameterError),
        ({0: -1.0}, InvalidParameterError),
        ({0: 0.0}, InvalidParameterError),
        ({}, InvalidParameterError),
        ({0: np.inf}, InvalidParameterError),
    ],
)
def test_bad_class_weights_are_refused(weights: Any, kind: type[Exception]) -> None:
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-3)
    model = PrivateLinearSVC(delta=1e-5, classes=range(3), class_weight=weights, ledger=ledger)
    with pytest.raises(kind, match="class_weight"):
        model.fit(X, Y)
    assert ledger.history == ()


@pytest.mark.parametrize(
    "ids",
    [
        GROUPS.astype(str),
        GROUPS.astype(float),
        GROUPS.tolist(),
        pd.Categorical(GROUPS.astype(str), categories=[*map(str, range(60)), "nobody"]),
        pd.Series(GROUPS.astype(str)),
        GROUPS.astype(object),
        GROUPS.astype(np.uint8),
    ],
    ids=["strings", "floats", "list", "categories", "series", "objects", "bytes"],
)
def test_ids_of_usual_kinds_are_one_data_set(ids: Any) -> None:
    fits = [clone(CLASSIFIERS["linear"]).fit(X, Y, groups=g) for g in (GROUPS, ids)]
    assert same(*fits)


@pytest.mark.parametrize(
    "model",
    [
        ObjectivePerturbationSVC(classes=range(3)),
        OutputPerturbationSVC(classes=range(3)),
        PrivateLinearSVC(classes=range(3), mechanism="output"),
        PrivateLinearSVC(classes=range(3), delta=0.0),
        GradientPerturbationSVC(
            classes=range(3), accountant="last_iterate", C=1.0, max_samples=600
        ),
    ],
)
def test_what_is_not_proved_is_refused(model: Any) -> None:
    for given in ("groups", "sample_weight"):
        if given == "groups" or hasattr(model, "max_weight"):
            with pytest.raises(InvalidParameterError) as caught:
                clone(model).fit(X, Y, **{given: np.ones(600, dtype=int)})
            assert caught.value.parameter in (given, "accountant")


@pytest.mark.parametrize("name", ALL)
def test_no_id_survives_the_fit(name: str) -> None:
    ids = np.array([f"secret-{g}" for g in GROUPS])
    fitted = clone(ALL[name]).fit(X, Y, groups=ids)
    assert b"secret" not in pickle.dumps(fitted)
    assert "secret" not in repr(vars(fitted))


@pytest.mark.parametrize("name", ALL)
def test_statements_name_persons_and_hold(name: str) -> None:
    model = clone(ALL[name]).set_params(random_state=None)
    statement = model.fit(X, Y, groups=GROUPS).privacy_
    assert statement.unit == "person"
    assert verify(statement).ok
    assert clone(ALL[name]).fit(X, Y).privacy_.unit == "row"


def test_a_ledger_of_rows_refuses_persons() -> None:
    for unit, groups in (("row", GROUPS), ("person", None)):
        ledger = PrivacyLedger(epsilon=3.0, delta=1e-3, unit=unit)
        with pytest.raises(InvalidParameterError):
            PrivateLinearSVC(delta=1e-5, classes=range(3), ledger=ledger).fit(X, Y, groups=groups)
        assert ledger.history == ()


def test_the_number_of_persons_is_public_where_one_is_exchanged() -> None:
    model = PrivateLinearSVC(delta=1e-5, classes=range(3), adjacency="replace_one")
    assert model.fit(X, Y, groups=GROUPS).n_samples_ == 60


def test_one_person_may_own_everything() -> None:
    for name, model in ALL.items():
        fitted = clone(model).fit(X, Y, groups=np.zeros(600, dtype=int))
        assert all(np.isfinite(a).all() for a in numbers(fitted) if a.dtype.kind == "f"), name


def test_further_calls_protect_the_same_unit() -> None:
    model = clone(CLASSIFIERS["gradient"]).partial_fit(X, Y, groups=GROUPS)
    model.partial_fit(X, Y, groups=GROUPS)
    with pytest.raises(InvalidParameterError) as caught:
        model.partial_fit(X, Y)
    assert caught.value.parameter == "groups"


def test_pipelines_route_groups() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = clone(TRANSFORMERS["scaler"]).set_fit_request(groups=True)
        linear = clone(CLASSIFIERS["linear"]).set_fit_request(groups=True, sample_weight=False)
        fitted = make_pipeline(scaler, linear).fit(X, Y, groups=GROUPS)
        alone = make_pipeline(clone(scaler), PublicScaler((-9, 9)), clone(linear))
        assert alone.fit(X, Y, groups=GROUPS) is alone
    by_hand = clone(TRANSFORMERS["scaler"]).fit(X, groups=GROUPS)
    expected = clone(CLASSIFIERS["linear"]).fit(by_hand.transform(X), Y, groups=GROUPS)
    assert same(fitted[-1], expected)
