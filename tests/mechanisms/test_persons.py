"""Groups and weights as users pass them: same bits, refused ids, nothing kept."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from conftest import three_clusters, tries
from dpsvm_fast import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
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
    _core,
    total_privacy,
)
from dpsvm_fast.accounting import composed_epsilon
from dpsvm_fast.audit.pair_audit import world_of
from dpsvm_fast.estimators.inputs import ArrayRows, owners
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.moments import ClassCounts
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.model_selection import DeclaredTrainer, PrivateGridSearch
from dpsvm_fast.model_selection.search import SearchRows
from dpsvm_fast.model_selection.strategies import Part, Scoring, assigned_parts, noise_sources
from dpsvm_fast.persist import load_model, save_model
from dpsvm_fast.verification import verify
from oracles.noisy_descent import STEEP, clipped_sum, records_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:random_state. anyone"),
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
    "last iterate": GradientPerturbationSVC(
        delta=1e-5,
        classes=range(3),
        accountant="last_iterate",
        C=0.1,
        max_samples=600,
        n_steps=30,
        random_state=0,
    ),
    "output": OutputPerturbationSVC(delta=1e-5, classes=range(3), random_state=0),
    "smooth": OutputPerturbationSVC(
        delta=1e-5, loss="softmax_margin", classes=range(3), random_state=0
    ),
    "linear output": PrivateLinearSVC(
        delta=1e-5, mechanism="output", classes=range(3), random_state=0
    ),
    "objective": ObjectivePerturbationSVC(delta=1e-5, classes=range(3), random_state=0),
    "pure objective": ObjectivePerturbationSVC(
        noise="gamma", loss="huber", classes=range(3), random_state=0
    ),
    "linear objective": PrivateLinearSVC(
        delta=1e-5, mechanism="objective", classes=range(3), random_state=0
    ),
    "pure linear": PrivateLinearSVC(delta=0.0, classes=range(3), random_state=0),
    "ellipsoids": PrivateGaussianMarginClassifier(
        delta=1e-5, psd="constraint", tol=1e-3, classes=range(3), random_state=0
    ),
    "anchors": PrivateGaussianMarginClassifier(
        loss="huber_ww", noise="gamma", n_ellipsoids=2, tol=1e-3, classes=range(3), random_state=0
    ),
}
# Their noise is for means of several rows, whatever persons own.
OF_MEANS = ("objective", "pure objective", "linear objective", "pure linear", "ellipsoids")
OF_MEANS += ("anchors",)
TRANSFORMERS: dict[str, Any] = {
    "centre": PrivateCenter(delta=1e-5, random_state=0),
    "whitener": PrivateWhitener(delta=1e-5, random_state=0),
    "pca": PrivatePCA(delta=1e-5, random_state=0),
    "scaler": PrivateStandardScaler(delta=1e-5, bounds=(-2, 2), random_state=0),
}
ALL = CLASSIFIERS | TRANSFORMERS
DENSE = ("ellipsoids", "anchors")
FORMS = {"dense": np.asarray, "csr": sparse.csr_matrix}
MEANS = (*OF_MEANS, "last iterate")
EVERY = [(name, form) for name in ALL for form in FORMS if form == "dense" or name not in DENSE]
OF_SUMS = [one for one in EVERY if one[0] not in MEANS]


def numbers(fitted: Any) -> list[np.ndarray]:
    """All fitted arrays."""
    found = {k: v for k, v in vars(fitted).items() if k.endswith("_") and isinstance(v, np.ndarray)}
    return [found[name] for name in sorted(found)]


def same(one: Any, other: Any) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(numbers(one), numbers(other), strict=True))


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "form"), [one for one in EVERY if one[0] not in (*OF_MEANS, "last iterate")]
)
def test_persons_of_one_row_are_rows_to_the_last_bit(name: str, form: str) -> None:
    ids = np.random.default_rng(0).permutation(len(X))
    by_rows = clone(ALL[name]).fit(FORMS[form](X), Y)
    by_persons = clone(ALL[name]).fit(FORMS[form](X), Y, groups=ids)
    assert same(by_rows, by_persons)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "form"), EVERY)
def test_threads_names_and_places_of_persons_change_nothing(name: str, form: str) -> None:
    fits = [clone(ALL[name]).fit(FORMS[form](X), Y, groups=GROUPS)]
    for threads, ids in ((2, GROUPS), (1, np.char.add("p", GROUPS.astype(str))), (1, 99 - GROUPS)):
        fits.append(
            clone(ALL[name]).set_params(n_threads=threads).fit(FORMS[form](X), Y, groups=ids)
        )
    # Rows of a person need not stand together; their order within the person is kept.
    order = np.argsort(np.tile(np.arange(10), 60), kind="stable")
    fits.append(clone(ALL[name]).fit(FORMS[form](X[order]), Y[order], groups=GROUPS[order]))
    assert all(same(fits[0], fit) for fit in fits[1:])
    assert not same(fits[0], clone(ALL[name]).fit(FORMS[form](X), Y))


@pytest.mark.parametrize("name", ALL)
def test_rows_of_weight_zero_are_not_there(name: str) -> None:
    weights = np.ones(len(X))
    weights[::3] = 0.0
    kept = weights > 0.0
    for own in (GROUPS, None):
        some = None if own is None else own[kept]
        weighted = clone(ALL[name]).fit(X, Y, groups=own, sample_weight=weights)
        fewer = clone(ALL[name]).fit(X[kept], Y[kept], groups=some)
        assert same(weighted, fewer)


def replacing(name: str) -> Any:
    """An estimator whose neighbours are replaced rows."""
    model = clone(ALL[name]).set_params(adjacency="replace_one")
    return model.set_params(max_samples=None) if "max_samples" in model.get_params() else model


@pytest.mark.proof("persons", "Projected SGD")
@pytest.mark.parametrize("name", [*ALL, "psgd"])
def test_who_is_replaced_by_a_person_of_weight_zero_leaves_the_public_number(name: str) -> None:
    """All that is printed, and the number that means are divided by."""
    if name == "psgd":
        model: Any = OutputPerturbationSVC(
            solver="psgd", loss="logistic", adjacency="replace_one", classes=range(3)
        ).set_params(random_state=0)
    else:
        model = replacing(name)
    for groups in (None, GROUPS):
        facts = []
        for weight in (1.0, 0.0):
            weights = np.ones(len(X))
            weights[: 1 if groups is None else 10] = weight
            own = {"groups": groups, "sample_weight": weights}
            fitted = clone(model).fit(X, Y, **own)
            known: Any = (
                {"classes": np.arange(3)} if name not in TRANSFORMERS else {"labelled": False}
            )
            rows = ArrayRows(model.checked(), X, Y, **known | own)
            rows.read()
            facts.append((fitted.privacy_.to_json(), rows.n_rows, rows.facts))
        assert facts[0] == facts[1]


@pytest.mark.parametrize("name", ALL)
def test_weights_are_clipped_to_the_largest(name: str) -> None:
    weights = np.linspace(0.5, 1.5, len(X))
    model = clone(ALL[name])
    assert same(
        clone(model).fit(X, Y, sample_weight=weights),
        clone(model).fit(X, Y, sample_weight=np.minimum(weights, 1.0)),
    )
    halves = clone(model).set_params(max_weight=2.0)
    if name == "last iterate":
        # C multiplies losses with the weights as they are given.
        halves.set_params(C=model.C / 2)
    assert same(
        clone(model).fit(X, Y, sample_weight=weights / 2), halves.fit(X, Y, sample_weight=weights)
    )


@pytest.mark.proof("persons", "Sums of rows")
def test_a_person_counts_once_whatever_its_weights() -> None:
    for weights, total in (
        ([1.0] * 4, 2.0),
        ([0.25, 0.25, 1.0, 1.0], 1.5),
        ([9.0] * 4, 2.0),
        # A multiple of the grid on which the noise is added, and no more than the weights.
        ([0.3, 0.3, 1.0, 1.0], 1.0 + math.floor(0.6 * 2**19) / 2**19),
    ):
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
    # Each coefficient of a sparse row is truncated to a share of 2^-20 of the clip, or less.
    lost = 0.0 if form is np.asarray else 7 * 1e3 * 2.0**-19
    assert np.abs(np.subtract(*(clipped_sum(records, **options) for records in ones))).max() <= lost


@pytest.mark.proof("persons", "Sums of gradients")
def test_class_weights_count_by_their_ratios() -> None:
    model = CLASSIFIERS["linear"]
    fits = [
        clone(model).set_params(class_weight=weights).fit(X, Y)
        for weights in (
            {0: 4, 1: 1, 2: 1},
            {0: 1, 1: 0.25, 2: 0.25},
            {0: 4.0},
            {0: 1, 1: 1, 2: 1},
            {0: 2, 1: 2, 2: 2},
        )
    ]
    assert same(fits[0], fits[1])
    assert same(fits[0], fits[2])
    assert same(fits[3], fits[4])
    assert not same(fits[0], fits[3])
    share = [(fit.predict(X) == 0).mean() for fit in fits]
    assert share[0] >= share[3]


@pytest.mark.proof("persons", "Class counts")
@given(
    sizes=st.lists(st.integers(1, 60), min_size=2, max_size=5),
    weighted=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@tries(100)
def test_a_person_moves_numbers_of_classes_by_one_at_most(
    sizes: list[int], weighted: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    ids, n = np.repeat(np.arange(len(sizes)), sizes), sum(sizes)
    y, weights = rng.integers(0, 3, n), rng.random(n) * 3 if weighted else None
    model = PrivateLinearSVC(classes=range(3), class_weight="balanced").checked()
    counts = []
    for kept in (slice(n), slice(n - sizes[-1]), slice(sizes[0], n)):
        rows = ArrayRows(
            model,
            np.zeros((n, 1))[kept],
            y[kept],
            classes=model.classes,
            groups=ids[kept],
            sample_weight=None if weights is None else weights[kept],
        )
        rows.read()
        counts.append(rows.class_counts())
    assert float(np.linalg.norm(counts[0] - counts[1])) <= 1.0
    # One exchanged for another.
    assert float(np.linalg.norm(counts[1] - counts[2])) <= math.sqrt(2.0)
    assert np.array_equal(counts[0] * 2.0**20, np.rint(counts[0] * 2.0**20))
    assert counts[0].sum() <= len(sizes)
    if not weighted:
        assert counts[0].sum() >= len(sizes) * (1.0 - 3 * 2.0**-20)


# Whose noise is Gaussian.
BALANCED = {
    **{
        name: each for name, each in CLASSIFIERS.items() if "pure" not in name and name != "anchors"
    },
    "gaussian anchors": PrivateGaussianMarginClassifier(
        delta=1e-5, n_ellipsoids=2, tol=1e-3, classes=range(3), random_state=0
    ),
}


def balanced(name: str, adjacency: str) -> Any:
    """An estimator that takes the weights of its classes from noisy counts."""
    model = clone(BALANCED[name]).set_params(adjacency=adjacency, class_weight="balanced")
    if name == "last iterate" and adjacency == "replace_one":
        model.set_params(max_samples=None)
    return model


@pytest.mark.sampled
@pytest.mark.proof("persons", "Class counts")
@pytest.mark.parametrize("name", BALANCED)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("form", FORMS)
def test_balanced_weights_are_paid_for(
    name: str, adjacency: str, form: str, tmp_path: Path
) -> None:
    if form == "csr" and name in (*DENSE, "gaussian anchors"):
        pytest.skip("dense rows only")
    rare = np.concatenate([np.flatnonzero(Y != 2), np.flatnonzero(Y == 2)[:30]])
    model = balanced(name, adjacency).set_params(epsilon=20.0, random_state=None)
    fitted = model.fit(FORMS[form](X[rare]), Y[rare], groups=np.arange(rare.size) // 2)
    statement = fitted.privacy_
    part = next(part for part in statement.parts if part.name == "classes")
    assert part.shape == (3,)
    assert (part.clip_norm, part.rounding) == (1.0, 0.0)
    assert part.relation_factor == pytest.approx(1.0 if adjacency == "add_remove" else 2**0.5)
    assert "the number of rows of each class" in str(statement)
    assert composed_epsilon(statement.events, 1e-5) <= 20.0 * (1.0 + 1e-9)
    # Half the noise, as if a person added half of what it does.
    tampered = replace(part, clip_norm=0.5, contribution=0.5, sigma=part.sigma / 2)
    parts = tuple(tampered if p is part else p for p in statement.parts)
    assert not verify(replace(statement, parts=parts)).ok
    save_model(fitted, tmp_path / "model.json")
    assert verify(statement, model=tmp_path / "model.json").ok
    # The counts are the model's, too.
    others = tuple(p for p in statement.parts if p is not part)
    if others or statement.noise is not None:
        without = replace(statement, parts=others)
        assert not verify(without, model=tmp_path / "model.json").ok
    loaded = load_model(tmp_path / "model.json")
    assert loaded.class_weight == "balanced"
    assert np.array_equal(loaded.predict(X), fitted.predict(X))


@pytest.mark.proof("persons", "Class counts")
@pytest.mark.parametrize("name", [name for name in BALANCED if "linear" not in name][1:])
def test_a_training_after_counts_is_one_with_public_weights(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ClassCounts, "balance", lambda self, rows, source: rows.balance(np.array([1.0, 0.5, 0.25]))
    )
    after = balanced(name, "add_remove").fit(X, Y, groups=GROUPS)
    facts = Facts(n_features=X.shape[1], n_classes=3, unit="person", weighted=True)
    plan = balanced(name, "add_remove").checked().plan(facts)
    assert 0.5 < plan.training.epsilon < 1.0
    weights = {0: 4.0, 1: 2.0, 2: 1.0}
    own: dict[str, Any] = {"epsilon": plan.training.epsilon, "class_weight": weights}
    if name == "last iterate":
        # A number multiplies the largest weight.
        own["C"] = after.C / 4.0
    alone = clone(BALANCED[name]).set_params(**own).fit(X, Y, groups=GROUPS)
    assert same(after, alone)


@pytest.mark.proof("persons", "Class counts")
@given(
    counts=st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=9),
    seed=st.integers(0, 2**32 - 1),
)
@tries(100)
def test_weights_of_classes_are_one_at_most_whatever_was_released(
    counts: list[float], seed: int
) -> None:
    release = ClassCounts(adjacency="add_remove", mu=0.1, n_classes=len(counts))
    given: list[Any] = []
    rows = SimpleNamespace(class_counts=lambda: np.array(counts), n_threads=1, balance=given.append)
    release.balance(rows, _core.NoiseSource(seed))
    assert given[0].max() == 1.0
    assert given[0].min() > 0.0


@pytest.mark.proof("persons", "Class counts")
def test_balanced_weights_are_those_of_noisy_counts() -> None:
    rare = np.concatenate([np.flatnonzero(Y != 2), np.flatnonzero(Y == 2)[:60]])
    estimator = balanced("linear", "add_remove").set_params(epsilon=50.0)
    shares = []
    for weights in ("balanced", None):
        model = clone(estimator).set_params(class_weight=weights)
        shares.append(float((model.fit(X[rare], Y[rare]).predict(X) == 2).mean()))
    assert shares[0] >= shares[1]
    plan = estimator.checked().plan(Facts(n_features=5, n_classes=3))
    assert plan.class_counts is not None
    given: list[Any] = []
    rows = SimpleNamespace(
        class_counts=lambda: np.array([1000.0, 100.0, 0.0]), n_threads=1, balance=given.append
    )
    plan.class_counts.balance(rows, _core.NoiseSource(1))
    least = max(1.0, 3.0 * plan.class_counts.sum.scale)
    assert given[0].tolist() == pytest.approx([least / 1000.0, least / 100.0, 1.0], rel=0.1)


@pytest.mark.parametrize(
    "model",
    [
        PrivateLinearSVC(delta=0.0),
        OutputPerturbationSVC(noise="gamma"),
        ObjectivePerturbationSVC(noise="gamma"),
        GradientPerturbationSVC(delta=0.0),
        PrivateGaussianMarginClassifier(noise="gamma"),
    ],
)
def test_balanced_weights_are_refused_where_they_have_no_price(model: Any) -> None:
    ledger = PrivacyLedger(epsilon=9.0, delta=0.1)
    model.set_params(class_weight="balanced", classes=range(3), ledger=ledger)
    # Before any data are looked at.
    with pytest.raises(InvalidParameterError, match="balanced") as caught:
        model.fit(object(), None)
    assert caught.value.parameter == "class_weight"
    assert ledger.history == ()


def test_balanced_weights_are_those_of_one_fit() -> None:
    model = GradientPerturbationSVC(delta=1e-5, classes=range(3), class_weight="balanced")
    with pytest.raises(InvalidParameterError, match="counts the rows of one fit") as caught:
        model.partial_fit(object(), None)
    assert caught.value.parameter == "class_weight"


@pytest.mark.proof("persons", "Output perturbation")
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5), seed=st.integers(0, 2**32 - 1))
@tries(100)
def test_losses_of_a_person_weigh_one_at_most(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, factors = sum(sizes), {0: 2.0, 1: 1.0}
    # Often all of the class of the largest weight, and of one weight: 1 / m may be rounded up.
    ids, y = np.repeat(np.arange(len(sizes)), sizes), rng.integers(0, rng.choice([1, 2]), n)
    weights = rng.random(n) ** rng.choice([0, 1, 30]) * rng.choice([1e-3, 1.0, 5.0])
    model = OutputPerturbationSVC(classes=[0, 1], class_weight=factors, max_weight=2.0).checked()
    rows = ArrayRows(
        model,
        np.column_stack([ids, weights]),
        y,
        classes=model.classes,
        groups=ids,
        sample_weight=weights,
    )
    rows.read()
    found = rows.loss_weights
    assert found is not None
    for person in range(len(sizes)):
        own = rows.X[:, 0] == person
        assert sum(map(Fraction, found[own])) <= 1
        shares = np.minimum(rows.X[own, 1], 2.0) / 2.0
        expected = shares / max(1.0, shares.sum()) * np.where(rows.codes[own] == 0, 1.0, 0.5)
        np.testing.assert_allclose(found[own], expected, rtol=1e-12, atol=2.0**-60)


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
    "text": "p" * 600,
    "masked": np.ma.masked_equal(GROUPS, 3),
    "NaN beside strings": ["a", *[math.nan] * 599],
    "numbers beside strings": ["a", *GROUPS[1:].tolist()],
    "bytes beside strings": [b"a", *["a"] * 599],
    "floats beside integers": [1.0, *GROUPS[1:].tolist()],
    "booleans beside integers": [True, *GROUPS[1:].tolist()],
    "lost digits": GROUPS + 2.0**53,
    "lost digits of single precision": (GROUPS + 2.0**24).astype(np.float32),
    "infinite": np.where(GROUPS == 3, np.inf, GROUPS),
    "missing categories": pd.Categorical([None, *["a"] * 599], categories=["a", "nobody"]),
    "missing text": pd.Series([pd.NA, *["a"] * 599], dtype="string"),
}


@pytest.mark.parametrize("case", BAD_GROUPS)
def test_bad_groups_are_refused_and_nothing_is_spent(case: str) -> None:
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-3, unit="person")
    model = PrivateLinearSVC(delta=1e-5, bounds=(-3, 3), classes=range(3), ledger=ledger)
    with pytest.raises(InvalidParameterError) as caught:
        model.fit(X, Y, groups=BAD_GROUPS[case])
    assert caught.value.parameter == "groups"
    assert ledger.history == ()
    assert caught.value.__context__ is None


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
    ("two", "third"),
    [
        ((2**63, 2**63 + 1), -1),
        ((2**128, 2**128 + 1), 0),
        ((np.uint64(2**53), np.uint64(2**53 + 1)), np.int64(0)),
        (("a", "a\0"), "b"),
        ((b"a", b"a\0"), b"b"),
    ],
    ids=["signs", "huge", "unsigned", "text", "bytes"],
)
def test_two_persons_are_two_whoever_else_is_there(two: tuple[Any, Any], third: Any) -> None:
    """Where a third made them one, it would move what all three add."""

    def number(ids: Any) -> int | None:
        try:
            return owners(ids, None, len(ids), 1.0).n_persons
        except InvalidParameterError:
            return None

    for ids in (list(two), [*two, third]):
        column = np.empty(len(ids), dtype=object)
        column[:] = ids
        for listed in (ids, tuple(ids), column):
            assert number(listed) == number([*listed, two[0]]) == len(ids)


def test_zero_is_one_id_whatever_its_sign() -> None:
    assert owners(np.array([0.0, -0.0, 1.0]), None, 3, 1.0).n_persons == 2


def last_of(**changes: Any) -> Any:
    return clone(CLASSIFIERS["last iterate"]).set_params(**changes)


@pytest.mark.proof("persons", "Last iterate")
@pytest.mark.parametrize("form", FORMS)
def test_last_iterates_are_of_means_over_persons(form: str) -> None:
    """A person counts with the mean of its first 1024 rows, whatever is behind them."""
    ids = np.concatenate([np.zeros(1100, dtype=int), np.arange(1, 101)])
    rows, labels = X[np.arange(1200) % 600], Y[np.arange(1200) % 600]
    other = rows.copy()
    other[1024:1100] *= -1.0
    fits = [last_of().fit(FORMS[form](each), labels, groups=ids) for each in (rows, other)]
    assert same(*fits)
    other[1023] *= -1.0
    assert not same(fits[0], last_of().fit(FORMS[form](other), labels, groups=ids))
    # Every row twice is the same person.
    twice = np.repeat(np.arange(600), 2)
    kept = [last_of().fit(FORMS[form](X[k]), Y[k], groups=GROUPS[k]) for k in (slice(600), twice)]
    np.testing.assert_allclose(kept[0].coef_, kept[1].coef_, atol=1e-4)


@pytest.mark.proof("persons", "Last iterate")
@given(sizes=st.lists(st.integers(1, 2000), min_size=1, max_size=5), seed=st.integers(0, 2**32 - 1))
@tries(100)
def test_factors_of_a_person_add_up_to_one_at_most(sizes: list[int], seed: int) -> None:
    """As they are stored: in single precision, and of the first rows alone."""
    rng = np.random.default_rng(seed)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    weights = rng.random(ids.size) ** rng.choice([0, 1, 30]) * rng.choice([1e-3, 1.0, 5.0])
    found = owners(ids, weights, ids.size, 2.0)
    most = int(rng.choice([1, 64, 1024]))
    means = found.averaged(ids.size, most)
    assert means.persons.size == 0
    assert np.array_equal(means.weights, means.weights.astype(np.float32))
    order = np.arange(ids.size) if found.order is None else found.order
    for person in range(len(sizes)):
        own = means.weights[ids[order] == person]
        assert sum(map(Fraction, own)) <= 1
        assert not own[most:].any()
        shares = np.minimum(weights[ids == person], 2.0) / 2.0
        expected = shares[:most] / max(1.0, shares[:most].sum())
        np.testing.assert_allclose(own[:most], expected, rtol=1e-6, atol=1e-30)


@pytest.mark.proof("persons", "Last iterate")
@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_a_person_take_part_as_far_as_rounding_costs_little(sparse: bool) -> None:
    """A public number: it follows from the bound on the number of persons."""
    found = []
    for most in (100, 1000, 10_000, 100_000):
        model = last_of(max_samples=most).checked()
        plan = model.plan(Facts(n_features=100, n_classes=3, unit="person", sparse=sparse))
        noise = plan.noise
        assert noise.rounding <= 0.05 * noise.clip or noise.rows_a_record == 1
        twice = noise._rounding_of(2 * noise.rows_a_record)
        assert twice > 0.05 * noise.clip or noise.rows_a_record == 1024
        found.append(noise.rows_a_record)
    assert found == sorted(found, reverse=True)
    assert found[0] == 1024 > found[-1]


@pytest.mark.proof("persons", "Last iterate")
@pytest.mark.parametrize("form", FORMS)
def test_a_person_adds_no_more_to_an_unclipped_sum_than_a_row_may(form: str) -> None:
    """Rows that add up, at the largest gradient; and all of it where factors are left out."""
    rows, labels = np.tile([1.0, 0.0, 0.0], (50, 1)), np.zeros(50, dtype=int)
    model = last_of(C=1e-3, fit_intercept=False, loss="huber", classes=[0, 1]).checked()
    plan = model.plan(model.owned(Facts(n_features=3, unit="person", sparse=form == "csr")))
    assert (plan.noise.rows_a_record, plan.noise.truncated) == (1024, form == "csr")
    own = {"classes": model.classes, "groups": np.zeros(50, dtype=int)}
    read = ArrayRows(model, FORMS[form](rows), labels, **own)
    read.read()
    options = plan.descent_options() | {"sigma": 0.0, "grid": None, "radius": None}
    moved = []
    for records in (plan.records(read), records_of(FORMS[form](rows), labels)):
        descent = _core.Descent(**options)
        descent.run(records, _core.NoiseSource(0), 1, 1)
        moved.append(float(np.linalg.norm(descent.weights())) / plan.step * plan.divisor)
    assert 0.999 * plan.noise.clip <= moved[0] <= plan.noise.contribution
    assert moved[1] > 49.0 * plan.noise.clip


@pytest.mark.proof("persons", "Last iterate")
def test_the_bound_of_last_iterates_counts_persons_whatever_they_weigh() -> None:
    ledger = PrivacyLedger(epsilon=3.0, delta=1e-3, unit="person")
    last_of(max_samples=60).fit(X, Y, groups=GROUPS)
    with pytest.raises(InvalidParameterError) as caught:
        last_of(max_samples=59, ledger=ledger, random_state=None).fit(X, Y, groups=GROUPS)
    assert caught.value.parameter == "max_samples"
    assert ledger.history == ()
    with pytest.raises(InvalidParameterError) as caught:
        last_of(max_samples=599).fit(X, Y, sample_weight=np.full(600, 0.01))
    assert caught.value.parameter == "max_samples"
    # Which would be chosen for rows: the one for persons trains on other sums.
    asked = {"accountant": "auto", "average": 0.0, "max_grad_norm": 10.0}
    by_rows, by_persons = (last_of(**asked).fit(X, Y, groups=g).privacy_ for g in (None, GROUPS))
    assert by_rows.parts[0].last_iterate is not None
    assert by_persons.parts[0].last_iterate is None


@pytest.mark.proof("persons", "Projected SGD")
@pytest.mark.parametrize("form", FORMS)
def test_projected_sgd_takes_persons(form: str) -> None:
    model = OutputPerturbationSVC(
        delta=1e-5, solver="psgd", loss="softmax_margin", adjacency="replace_one"
    )
    model.set_params(classes=range(3), random_state=0)

    def fitted(order: Any = slice(None), **owners: Any) -> Any:
        return clone(model).fit(FORMS[form](X[order]), Y[order], **owners)

    ids = np.random.default_rng(0).permutation(len(X))
    # Rounding of up to 1024 rows a person is paid for, and nearly nothing.
    np.testing.assert_allclose(fitted().coef_, fitted(groups=ids).coef_, rtol=1e-4)
    # Every row twice or thrice is the same person; rows behind the first 1024 are none.
    often = [np.repeat(np.arange(600), times) for times in (2, 3)]
    twice, thrice = (fitted(rows, groups=rows).coef_ for rows in often)
    np.testing.assert_allclose(twice, thrice, rtol=1e-4)
    ids, rows = np.append(np.arange(600), np.full(1200, 600)), np.arange(1800) % 600
    for first, unseen in ((600 + 1024, True), (600 + 1023, False)):
        other = np.where(np.arange(1800) < first, rows, 0)
        assert same(fitted(rows, groups=ids), fitted(other, groups=ids)) == unseen
    by_persons = fitted(groups=GROUPS)
    assert by_persons.privacy_.descent.n_samples == 60
    assert same(by_persons, fitted(groups=np.char.add("p", GROUPS.astype(str))))
    order = np.argsort(np.tile(np.arange(10), 60), kind="stable")
    assert same(by_persons, fitted(order, groups=GROUPS[order]))
    # A row of weight 0 keeps its turn, as does the one that it may have replaced.
    weights = np.where(np.arange(600) % 3, 1.0, 0.0)
    assert fitted(sample_weight=weights).privacy_.descent.n_samples == 600
    private = clone(model).set_params(random_state=None).fit(X, Y, groups=GROUPS).privacy_
    assert private.unit == "person"
    assert verify(private).ok
    more = replace(private.descent, n_samples=600)
    assert not verify(replace(private, descent=more)).ok


@pytest.mark.parametrize("name", ALL)
def test_no_id_survives_the_fit(name: str) -> None:
    ids = np.array([f"secret-{g}" for g in GROUPS])
    fitted = clone(ALL[name]).fit(X, Y, groups=ids)
    assert b"secret" not in pickle.dumps(fitted)
    assert "secret" not in repr(vars(fitted))


@pytest.mark.sampled
@pytest.mark.proof("persons", "Gaussian noise")
@pytest.mark.parametrize("name", OF_MEANS)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_statement_of_rows_is_none_of_persons(name: str, adjacency: str) -> None:
    model = clone(ALL[name]).set_params(random_state=None, adjacency=adjacency)
    rows, persons = model.fit(X, Y).privacy_, model.fit(X, Y, groups=GROUPS).privacy_
    if persons.objective.sigma is None:
        assert not verify(replace(rows, unit="person")).ok
    else:
        with pytest.raises(InvalidParameterError, match="unit"):
            replace(rows, unit="person")
        assert not verify(replace(persons, unit="row")).ok
    assert persons.objective.regularization > rows.objective.regularization
    little = replace(persons.objective, jacobian=0.99 * persons.objective.jacobian)
    assert not verify(replace(persons, objective=little)).ok


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_statements_name_persons_and_hold(name: str, adjacency: str) -> None:
    model = clone(ALL[name]).set_params(random_state=None, adjacency=adjacency)
    if adjacency == "replace_one" and "max_samples" in model.get_params():
        model.set_params(max_samples=None)
    statement = model.fit(X, Y, groups=GROUPS).privacy_
    assert statement.unit == "person"
    assert "persons.md" in statement.theorem
    assert verify(statement).ok
    assert clone(ALL[name]).fit(X, Y).privacy_.unit == "row"


def test_a_ledger_of_rows_refuses_persons() -> None:
    for unit, groups in (("row", GROUPS), ("person", None)):
        ledger = PrivacyLedger(epsilon=3.0, delta=1e-3, unit=unit)
        svc = PrivateLinearSVC(delta=1e-5, bounds=(-3, 3), classes=range(3), ledger=ledger)
        with pytest.raises(InvalidParameterError):
            svc.fit(X, Y, groups=groups)
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


def searched(**changes: Any) -> PrivateGridSearch:
    model = PrivateLinearSVC(classes=range(3))
    settings = {"epsilon": 4.0, "delta": 1e-5, "random_state": 0} | changes
    return PrivateGridSearch(model, {"margin": [0.0, 1.0]}, **settings)


@pytest.mark.proof("persons", "Searches")
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_a_search_keeps_the_rows_of_a_person_in_one_part(adjacency: str) -> None:
    search = searched(adjacency=adjacency).set_params(estimator__adjacency=adjacency).checked()
    ids = np.random.default_rng(0).permutation(np.repeat(np.arange(200), 3))
    rows = SearchRows(search, np.column_stack([X, ids]), Y, ids.astype(str), None)
    rows.read()
    plan = search.plan(rows.facts)
    sources = noise_sources(_core.NoiseSource(0), seeded=True)
    parts = assigned_parts(rows.n_rows, 2, 0.2, sources, counted=adjacency == "replace_one")
    persons = [set(rows.some(part).X[:, -1]) for part in parts]
    assert rows.n_rows == 200
    assert sum(map(len, persons)) == len(set.union(*persons)) == 200
    assert sum(len(rows.some(part).y) for part in parts) == 600
    assert plan.budgets.selection.sensitivity == 256


@pytest.mark.proof("persons", "Searches")
@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=6),
    weighted=st.booleans(),
    balanced=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@tries(100)
def test_a_person_moves_a_score_by_its_sensitivity_at_most(
    sizes: list[int], weighted: bool, balanced: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    counted = Scoring(*(("balanced_errors", {0: 3.0, 1: 1.0}) if balanced else ("errors", None)))
    counted = counted.of_persons(2.0)
    n = sum(sizes)
    part = Part(
        np.zeros((n, 1)),
        rng.integers(0, 2, n),
        np.repeat(np.arange(len(sizes)), sizes),
        rng.random(n) * 4 if weighted else None,
    )
    predicted = np.where(rng.random(n) < rng.random(), 1 - part.y, part.y)
    kept = slice(0, n - sizes[-1])
    fewer = Part(*(None if a is None else a[kept] for a in part))
    whole, rest = counted.score(predicted, part), counted.score(predicted[kept], fewer)
    assert 0 <= whole - rest <= counted.sensitivity == 256


@pytest.mark.proof("persons", "Searches")
def test_a_person_who_is_wrong_everywhere_counts_once() -> None:
    part = Part(np.zeros((7, 1)), np.zeros(7), np.array([0, 1, 1, 1, 1, 1, 1]))
    for wrong, score in ((slice(0, 7), 512), (slice(1, 7), 256), (slice(1, 4), 128)):
        predicted = np.zeros(7)
        predicted[wrong] = 1.0
        assert Scoring("errors", None).of_persons(1.0).score(predicted, part) == score


def test_a_search_over_persons_of_one_row_is_one_over_rows() -> None:
    by_rows = searched().fit(X, Y)
    by_persons = searched().fit(X, Y, groups=np.random.default_rng(0).permutation(600))
    assert np.array_equal(by_rows.best_estimator_.coef_, by_persons.best_estimator_.coef_)
    for statement in (by_persons.privacy_, by_persons.best_estimator_.privacy_):
        assert statement.unit == "person"


@pytest.mark.parametrize(
    "mechanism", ["gradient", pytest.param("objective", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "strategy", ["partition", pytest.param("random_stopping", marks=pytest.mark.slow)]
)
def test_pipelines_are_searched_with_persons_and_weights(strategy: str, mechanism: str) -> None:
    ledger = PrivacyLedger(4.0, 1e-5, unit="person")
    linear = PrivateLinearSVC(classes=range(2), mechanism=mechanism)
    model = make_pipeline(PrivateCenter(), Normalizer(), linear)
    ids = np.array([f"patient-{g}" for g in np.arange(600) // 2])
    search = PrivateGridSearch(
        model, {"privatelinearsvc__margin": [0.0, 1.0]}, epsilon=4.0, delta=1e-5, ledger=ledger
    ).set_params(strategy=strategy, mean_runs=2.0)
    search.fit(X, Y > 0, groups=ids, sample_weight=np.linspace(0.0, 1.0, 600))
    assert search.privacy_.unit == "person"
    assert verify(search.privacy_).ok
    assert len(ledger.history) > 0
    assert b"patient-" not in pickle.dumps(search)


@pytest.mark.parametrize(
    ("inside", "given"),
    [
        (DeclaredTrainer(lambda X, y: None, ()), "groups"),
        (DeclaredTrainer(lambda X, y: None, ()), "sample_weight"),
    ],
)
def test_a_search_refuses_candidates_that_protect_rows(inside: Any, given: str) -> None:
    ledger = PrivacyLedger(4.0, 1e-5, unit="person" if given == "groups" else "row")
    search = PrivateGridSearch(inside, [{}], epsilon=4.0, delta=1e-5, ledger=ledger)
    with pytest.raises(InvalidParameterError) as caught:
        search.fit(X, Y, **{given: np.ones(600)})
    assert caught.value.parameter == given
    assert ledger.history == ()


def test_a_search_has_one_largest_weight() -> None:
    search = searched().set_params(param_grid={"max_weight": [1.0, 2.0]})
    with pytest.raises(InvalidParameterError) as caught:
        search.fit(X, Y, sample_weight=np.ones(600))
    assert caught.value.parameter == "max_weight"


@pytest.mark.parametrize("first", [PrivateCenter(max_weight=2.0), PrivateCenter()])
def test_transformers_in_a_search_have_its_largest_weight(first: Any) -> None:
    linear = PrivateLinearSVC(classes=range(2), max_weight=3.0 - first.max_weight)
    ledger = PrivacyLedger(4.0, 1e-5)
    search = PrivateGridSearch(
        make_pipeline(first, linear), [{}], epsilon=4.0, delta=1e-5, ledger=ledger
    )
    with pytest.raises(InvalidParameterError, match="transformers too") as caught:
        search.fit(X, Y > 0, sample_weight=np.ones(600))
    assert caught.value.parameter == "max_weight"
    assert ledger.history == ()


def test_a_search_gives_weights_to_transformers_that_take_them() -> None:
    """Rows of a tenth of the largest weight count as a tenth each."""
    scaler = PrivateStandardScaler(bounds=(-9, 9))
    linear = PrivateLinearSVC(classes=range(2), mechanism="output")
    search = PrivateGridSearch(
        make_pipeline(scaler, PrivateCenter(data_norm=9.0), linear), [{}], epsilon=900.0, delta=0.1
    )
    search.fit(X, Y > 0, sample_weight=np.full(600, 0.1))
    scaled, centre, _ = search.best_estimator_
    assert verify(search.privacy_).ok
    assert centre.n_samples_ == pytest.approx(60.0, rel=0.2)
    assert scaled.n_samples_seen_ == pytest.approx(60.0, rel=0.2)


@pytest.mark.sampled
@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("grouped", [False, True])
def test_weighted_transformers_promise_and_are_saved(
    name: str, adjacency: str, grouped: bool, tmp_path: Path
) -> None:
    unit = "person" if grouped else "row"
    ledger = PrivacyLedger(3.0, 1e-3, adjacency, unit=unit)
    model = clone(ALL[name]).set_params(random_state=None, ledger=ledger, max_weight=2.0)
    own: dict[str, Any] = {"groups": GROUPS} if grouped else {}
    model.set_params(adjacency=adjacency).fit(X, sample_weight=np.linspace(0.0, 3.0, 600), **own)
    statement = model.privacy_
    assert (statement.unit, total_privacy(model).unit) == (unit, unit)
    assert verify(statement).ok
    assert "max_weight" in statement.occasion.parameters
    assert len(ledger.history) == 1
    # The noise is that of rows without weights.
    plain = clone(model).set_params(ledger=None, max_weight=1.0).fit(X, **own)
    assert plain.privacy_.parts == statement.parts
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded.max_weight == 2.0
    assert same(loaded, model)


def test_a_centre_with_weights_is_their_mean() -> None:
    weights = np.where(X[:, 0] > 0.0, 3.0, 1.0)
    centre = PrivateCenter(1e4, 0.5, data_norm=9.0, max_weight=4.0)
    found = centre.fit(X, sample_weight=weights)
    assert found.n_samples_ == pytest.approx(weights.sum() / 4.0, rel=1e-2)
    np.testing.assert_allclose(found.mean_, np.average(X, axis=0, weights=weights), atol=0.01)
    # The number of rows is public, and the mean is drawn to zero.
    found = clone(centre).set_params(adjacency="replace_one").fit(X, sample_weight=weights)
    assert found.n_samples_ == 600.0
    np.testing.assert_allclose(found.mean_, weights @ X / 2400.0, atol=0.01)


def test_a_scaler_with_weights_has_their_moments() -> None:
    weights = np.where(X[:, 0] > 0.0, 3.0, 1.0)
    scaler = PrivateStandardScaler(1e4, 0.5, bounds=(-2, 3), max_weight=4.0, random_state=0)
    rows = np.clip(X, -2, 3)
    mean = np.average(rows, axis=0, weights=weights)
    variance = np.average((rows - mean) ** 2, axis=0, weights=weights)
    found = scaler.fit(X, sample_weight=weights)
    assert found.n_samples_seen_ == pytest.approx(weights.sum() / 4.0, rel=1e-2)
    np.testing.assert_allclose(found.mean_, mean, atol=0.01)
    np.testing.assert_allclose(found.var_, variance, rtol=0.02)
    # Persons of several rows count with their weighted means.
    of_persons = clone(scaler).fit(X, groups=np.arange(600) // 2, sample_weight=weights)
    shares = weights / np.maximum(np.add.reduceat(weights, np.arange(0, 600, 2)).repeat(2), 4.0)
    np.testing.assert_allclose(of_persons.n_samples_seen_, shares.sum(), rtol=0.01)
    np.testing.assert_allclose(
        of_persons.mean_, np.average(rows, axis=0, weights=shares), atol=0.01
    )
    # The number of rows is public; the rest of each weight counts in the middle of the bounds.
    found = clone(scaler).set_params(adjacency="replace_one").fit(X, sample_weight=weights)
    assert found.n_samples_seen_ == 600.0
    both = np.concatenate([rows, np.full_like(rows, 0.5)])
    rest = np.concatenate([weights, 4.0 - weights])
    mean = np.average(both, axis=0, weights=rest)
    np.testing.assert_allclose(found.mean_, mean, atol=0.01)
    variance = np.average((both - mean) ** 2, axis=0, weights=rest)
    np.testing.assert_allclose(found.var_, variance, rtol=0.02)


def test_pipelines_route_weights_to_transformers() -> None:
    weights = np.linspace(0.2, 1.0, 600)
    with sklearn.config_context(enable_metadata_routing=True):
        centre = clone(TRANSFORMERS["centre"]).set_fit_request(sample_weight=True, groups=False)
        linear = clone(CLASSIFIERS["linear"]).set_fit_request(sample_weight=True, groups=False)
        steps = [("centre", centre), ("svc", linear)]
        fitted = PrivatePipeline(steps).fit(X, Y, sample_weight=weights)
    by_hand = clone(TRANSFORMERS["centre"]).fit(X, sample_weight=weights)
    assert same(fitted[0], by_hand)
    assert not same(by_hand, clone(TRANSFORMERS["centre"]).fit(X))


def test_a_pipeline_of_persons_promises_about_persons() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        scaler = PrivateCenter(delta=1e-5).set_fit_request(groups=True)
        linear = PrivateLinearSVC(delta=1e-5, classes=range(3))
        linear.set_fit_request(groups=True, sample_weight=False)
        fitted = PrivatePipeline([("centre", scaler), ("svc", linear)]).fit(X, Y, groups=GROUPS)
    assert fitted.privacy_.unit == total_privacy(fitted).unit == "person"
    assert verify(fitted.privacy_).ok
    with pytest.raises(InvalidParameterError):
        total_privacy([fitted[0], clone(linear).fit(X, Y)])


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


def test_searches_and_validations_route_groups() -> None:
    rows, labels, ids = np.repeat(X, 2, axis=0), np.repeat(Y, 2), np.repeat(np.arange(600), 2)
    given = {"groups": ids, "sample_weight": np.linspace(0.5, 1.0, 1200)}
    folds = GroupKFold(2)
    linear = PrivateLinearSVC(20.0, 1e-5, bounds="unit_norm", classes=range(3))
    search = PrivateGridSearch(linear, {"margin": [0.0, 1.0]}, epsilon=20.0, delta=1e-5)
    asked = {"groups": True, "sample_weight": True}
    with sklearn.config_context(enable_metadata_routing=True):
        for model in (linear, search):
            model.set_fit_request(**asked).set_score_request(sample_weight=False)
            found = cross_validate(
                model, rows, labels, cv=folds, params=given, return_estimator=True
            )
            assert [fit.privacy_.unit for fit in found["estimator"]] == ["person", "person"]
        public = GridSearchCV(linear, {"margin": [0.0, 1.0]}, cv=folds).fit(rows, labels, **given)
        assert public.best_estimator_.privacy_.unit == "person"
        steps = make_pipeline(PublicScaler((-9, 9)), linear).fit(rows, labels, **given)
        assert steps[-1].privacy_.unit == "person"
    # Without routing the folds alone are told of persons: a ledger of persons refuses such fits.
    by_rows = cross_validate(linear, rows, labels, cv=folds, groups=ids, return_estimator=True)
    assert [fit.privacy_.unit for fit in by_rows["estimator"]] == ["row", "row"]
    linear.set_params(ledger=PrivacyLedger(99.0, 1e-3, unit="person"))
    with pytest.raises(InvalidParameterError) as caught:
        cross_validate(linear, rows, labels, cv=folds, groups=ids, error_score="raise")
    assert caught.value.parameter == "ledger"
    assert linear.ledger.history == ()


def test_audits_sample_the_model_with_its_weights_of_classes() -> None:
    model = ObjectivePerturbationSVC(50.0, 1e-5, C=1.0, classes=[0, 1], n_threads=1)
    rows, labels = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), np.array([0, 1, 0])
    means = []
    for weights in (None, {0: 1.0, 1: 1e-6}):
        world = world_of(clone(model).set_params(class_weight=weights), rows, labels)
        means.append(np.mean(world.draw(60, _core.NoiseSource(3)), axis=0))
    # Without the row of class 1 nothing pulls along its axis that way.
    assert means[0][1] > 0.2 > means[1][1]


@pytest.mark.sampled
@pytest.mark.proof("persons", "Gaussian noise")
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("loss", ["huber", "softmax_margin"])
@pytest.mark.parametrize(("epsilon", "delta"), [(100.0, 1e-6), (1e-6, 9e-4)])
def test_extreme_budgets_of_persons_are_planned_and_confirmed(
    epsilon: float, delta: float, loss: str, relation: str
) -> None:
    # The noise has a least size, far below which no tail is computed; curvature may cost more than
    # a tiny epsilon where delta pays for it.
    model = ObjectivePerturbationSVC(
        epsilon, delta, loss=loss, adjacency=relation, classes=range(3), random_state=0
    )
    statement = model.fit(X, Y, groups=GROUPS).privacy_
    found = verify(statement.in_private())
    assert found.ok, str(found)
    noise = statement.objective
    assert noise is not None
    assert noise.sigma is not None
    less = replace(noise, sigma=noise.sigma * 0.98)
    assert not verify(replace(statement.in_private(), objective=less)).ok
