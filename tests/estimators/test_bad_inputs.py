"""Bad and odd training sets: a typed error that names the argument, or the documented result.

Never numbers that are not finite, never a panic, never a release without noise, and no budget spent
where no fit took place.
"""

from __future__ import annotations

import time
import zlib
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from dpsvm_fast import InvalidParameterError, PrivacyLeakWarning, PrivacyLedger
from dpsvm_fast.estimators.inputs import check_room
from dpsvm_fast.pipelines import takes
from oracles.odd_inputs import X, Y, every_estimator, frame, model, with_value
from oracles.odd_rows import ACCEPTED, REFUSED, Case, secrets
from oracles.subjects import (
    CLASSIFIERS,
    MAIN,
    SUBJECTS,
    TRANSFORMERS,
    assert_refused,
    chained_text,
    every_classifier,
    every_subject,
    every_transformer,
    known,
    made,
    outputs,
    released,
    spent,
)
from oracles.watching import fitted_names

# Promised: 0.1 s. Machines that run tests are busy: only a multiple of it is a failure.
SECONDS_TO_REFUSE = 3.0


def applies(subject: str, case: Case) -> bool:
    """Whether the case says something to a subject."""
    if case.about_labels and not SUBJECTS[subject].classifier:
        return False
    if len(case.settings.get("classes", ())) > 1000 and SUBJECTS[subject].variant:
        return False
    return known(subject, case.settings)


# Seconds each.
LARGE = (("splines", "more features than rows"), ("ellipsoids", "ten thousand classes"))


def pairs(cases: dict[str, Case], subjects: Any) -> list[Any]:
    """Subjects and names of cases: by day one recipe of each class, and of what fits a half."""

    def marks(subject: str, name: str) -> Any:
        if SUBJECTS[subject].slow or (subject, name) in LARGE:
            return pytest.mark.slow
        every = 8 if SUBJECTS[subject].variant else 2 if cases is ACCEPTED else 1
        by_day = zlib.crc32(f"{subject} {name}".encode()) % every == 0
        return () if by_day else pytest.mark.nightly

    return [
        pytest.param(subject, name, marks=marks(subject, name))
        for subject in subjects
        for name, case in cases.items()
        if applies(subject, case)
    ]


@pytest.mark.sampled(times=3)
@pytest.mark.parametrize(("subject", "name"), pairs(REFUSED, MAIN))
def test_refused_data_cost_nothing(subject: str, name: str) -> None:
    case = REFUSED[name]
    fitting = made(subject)
    start = time.process_time()
    dense_only = sparse.issparse(case.rows) and SUBJECTS[subject].dense_only
    words = "^X: got a sparse matrix" if dense_only else case.words
    error = assert_refused(lambda: fitting.fit(case.rows, case.labels), fitting, words)
    assert time.process_time() - start < SECONDS_TO_REFUSE
    text = chained_text(error)
    # Nor the number of rows, which is private when one may be added or removed.
    assert not {secret for secret in {*secrets(case), "(12,"} if secret in text}


@every_subject
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_data_are_checked_whatever_scikit_learn_is_told(subject: str, value: float) -> None:
    """What is not finite would reach the sums otherwise, once the budget is spent."""
    fitting = made(subject)
    with config_context(assume_finite=True):
        assert_refused(lambda: fitting.fit(with_value(value), Y), fitting, "^X: contains")


@every_subject
@pytest.mark.parametrize("value", [1e308, 5e-324, 1e-200])
def test_numpy_says_nothing_of_numbers_beyond_the_floats(subject: str, value: float) -> None:
    """Whatever it is told to do about them: whether there are any depends on the rows."""
    fitting = made(subject)
    with np.errstate(all="raise"):
        fitting.fit(with_value(value), Y)
        if hasattr(fitting, "transform"):
            fitting.transform(with_value(value))


@every_classifier
def test_masked_labels_are_refused(subject: str) -> None:
    """The numbers behind a mask are no labels."""
    fitting = made(subject)
    masked = np.ma.masked_array(Y, mask=np.arange(len(Y)) == 2)
    assert_refused(lambda: fitting.fit(X, masked), fitting, "^y: masked arrays")


def test_a_lack_of_memory_does_not_tell_the_number_of_rows() -> None:
    texts = set()
    for n_rows in (2**50, 2**50 + 1, 2**60):
        with pytest.raises(MemoryError) as caught:
            check_room(n_rows)
        texts.add(str(caught.value))
    assert len(texts) == 1


@every_subject
def test_refused_data_leave_no_earlier_fit(subject: str) -> None:
    """Negative control of ``fitted_names``, and of a fit that is not half forgotten."""
    fitting = made(subject).fit(X, Y)
    assert len(fitted_names(fitting)) > 0
    with pytest.raises(ValueError, match="NaN"):
        fitting.fit(with_value(np.nan), Y)
    left = fitted_names(fitting)
    # Transformers that learn nothing keep what they had, as a whole.
    assert left == [] if SUBJECTS[subject].private else fitting.transform(X).shape[0] == 12


def out_of_reach(subject: str, rows: Any) -> str:
    """Words of the refusal of rows of this form, "" where there is none."""
    recipe = SUBJECTS[subject]
    if sparse.issparse(rows) and recipe.dense_only:
        return "^X: got a sparse matrix"
    wide = len(np.shape(rows)) == 2 and np.shape(rows)[1] > recipe.max_features
    return "^X: got 100000 features, expected" if wide else ""


@pytest.mark.sampled(times=2)
@pytest.mark.parametrize(("subject", "name"), pairs(ACCEPTED, SUBJECTS))
def test_accepted_data_give_a_noisy_result(subject: str, name: str) -> None:
    case = ACCEPTED[name]
    fitting = made(subject, **case.settings)
    words = out_of_reach(subject, case.rows)
    if words:
        assert_refused(lambda: fitting.fit(case.rows, case.labels), fitting, words)
        return
    first = released(fitting.fit(case.rows, case.labels))
    events = spent(fitting)
    found = outputs(fitting, case.rows)
    for published in (first, {k: v for k, v in found.items() if v.dtype.kind == "f"}):
        assert all(np.isfinite(value).all() for value in published.values())
    if SUBJECTS[subject].classifier:
        assert set(found["predict"]) <= set(fitting.classes_)
    if not SUBJECTS[subject].private:
        return
    second = released(fitting.fit(case.rows, case.labels))
    assert spent(fitting) == 2 * events > 0
    weights = first.keys() & {"coef_", "ellipsoids_"}
    assert all((first[name] != second[name]).mean() > 0.9 for name in weights)
    # A single feature is whitened by the number 1, whatever is known about it.
    constant = subject == "whitener" and first["whitening_"].size == 1
    assert constant or any((first[name] != second[name]).any() for name in first)


@every_estimator
def test_scores_beyond_the_floats_keep_their_order(estimator: str) -> None:
    fitted = model(estimator, classes=range(3)).fit(X, Y)
    fitted.coef_ = np.array([[4.0, 4.0, 4.0], [5.0, 5.0, 5.0], [-6.0, 3.0, 3.0]])
    rows = np.array([[1e308] * 3, [-1e308] * 3, [0.5, 0.25, 0.0]])
    for form in (rows, sparse.csr_matrix(rows)):
        np.testing.assert_array_equal(fitted.predict(form)[:2], [1, 2])
        scores = fitted.decision_function(form)
        assert np.isfinite(scores).all()
        np.testing.assert_array_equal(np.sign(scores[:2, :2]), [[1, 1], [-1, -1]])
        expected = rows[2] @ fitted.coef_.T + fitted.intercept_
        np.testing.assert_allclose(scores[2], expected, rtol=1e-14)


METHODS = {"predict", "decision_function", "predict_proba", "mahalanobis", "transform"}


def methods_of(fitted: Any) -> list[Any]:
    """Everything that maps rows."""
    return [getattr(fitted, name) for name in sorted(METHODS) if hasattr(fitted, name)]


@every_subject
def test_use_before_and_after_fits(subject: str) -> None:
    fitting = made(subject)
    if subject in ("public scaler", "splines"):
        # Those that know everything beforehand.
        assert len(fitting.transform(X)) == len(X)
    else:
        for method in methods_of(fitting):
            with pytest.raises(NotFittedError):
                method(X)
    fitting.fit(X, Y)
    events = spent(fitting)
    for method in methods_of(fitting):
        for bad in (X[:, :2], X[:0], X[0], with_value(np.nan), X + 0j):
            with pytest.raises(ValueError):
                method(bad)
        assert len(method(X[:1])) == 1
    fitting.fit(X[:, :2], Y)
    assert fitting.n_features_in_ == 2
    assert all(len(method(X[:, :2])) == 12 for method in methods_of(fitting))
    assert spent(fitting) == 2 * events


@every_subject
def test_a_false_number_of_features_is_an_error(subject: str) -> None:
    fitted = made(subject).fit(X, Y)
    fitted.n_features_in_ = 4
    for method in methods_of(fitted):
        with pytest.raises(ValueError, match="features"):
            method(X)


@every_classifier
def test_unknown_labels_are_never_right(subject: str) -> None:
    fitted = made(subject).fit(X, Y)
    assert fitted.score(X, Y + 10) == 0.0
    assert 0.0 <= fitted.score(X, Y) <= 1.0


@every_subject
def test_repeated_feature_names_are_refused_or_kept(subject: str) -> None:
    """scikit-learn's releases differ; the budget is spent in the second case only."""
    fitted = made(subject)
    try:
        fitted.fit(pd.DataFrame(X, columns=["a", "a", "b"]), Y)
    except ValueError as error:
        assert "unique" in str(error)  # noqa: PT017
        assert spent(fitted) == 0
    else:
        assert all(np.isfinite(value).all() for value in released(fitted).values())


@every_subject
def test_parameters_round_trip_through_clone(subject: str) -> None:
    original = made(subject)
    twin = clone(original)
    assert twin.get_params() == original.get_params()
    assert getattr(twin, "ledger", None) is getattr(original, "ledger", None)
    assert twin.set_params(**original.get_params()).get_params() == original.get_params()
    for name in ("groups", "honest_fraction", "Epsilon"):
        with pytest.raises(ValueError, match=f"Invalid parameter '{name}'"):
            original.set_params(**{name: 0.5})


@every_classifier
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
def test_a_column_of_labels_is_flattened(subject: str) -> None:
    fitted = made(subject).fit(X, Y[:, None])
    assert fitted.predict(X).shape == (12,)


@every_classifier
def test_unknown_classes_are_read_from_y_with_a_warning(subject: str) -> None:
    fitted = made(subject, classes=None)
    with pytest.warns(PrivacyLeakWarning):
        fitted.fit(X, Y)
    events = spent(fitted)
    assert not fitted.privacy_.private
    with pytest.warns(PrivacyLeakWarning), pytest.raises(ValueError, match="one class"):
        fitted.fit(X, np.zeros(12, int))
    assert spent(fitted) == events
    assert fitted_names(fitted) == []


BAD_WEIGHTS: dict[str, Any] = {
    "length": np.ones(3),
    "columns": np.ones((12, 1)),
    "negative": np.where(Y == 1, -1.0, 1.0),
    "infinite": np.where(Y == 1, np.inf, 1.0),
    "NaN": np.where(Y == 1, np.nan, 1.0),
    "zeros": np.zeros(12),
    "words": ["heavy"] * 12,
    "digits": ["1"] * 12,
    "dates": np.arange(12).astype("datetime64[D]"),
    "complex": np.ones(12, dtype=complex),
    "masked": np.ma.masked_equal(np.where(Y == 1, 2.0, 1.0), 2.0),
    "missing": pd.array([None, *[1.0] * 11], dtype="Float64"),
}


@every_subject
def test_bad_weights_of_rows_are_refused(subject: str) -> None:
    fitting = made(subject)
    # Public transformers and the scaler have no such argument.
    kind = InvalidParameterError if "sample_weight" in takes(fitting) else TypeError
    if SUBJECTS[subject].classifier:
        assert kind is InvalidParameterError
    for weights in BAD_WEIGHTS.values():
        with pytest.raises(kind, match="sample_weight") as caught:
            fitting.fit(X, Y, sample_weight=weights)
        assert getattr(caught.value, "parameter", "sample_weight") == "sample_weight"
    assert spent(fitting) == 0
    assert fitted_names(fitting) == []


BAD_GROUPS: dict[str, Any] = {
    "length": np.arange(3),
    "NaN": np.where(Y == 1, np.nan, 1.0),
    "None": [None] * 12,
    "tuples": [(1, 2)] * 12,
    "several kinds": ["4711", *range(11)],
    "masked": np.ma.masked_equal(np.arange(12), 3),
}


@every_subject
def test_bad_groups_are_refused(subject: str) -> None:
    whose = {"ledger": PrivacyLedger(1e4, 0.5, unit="person", strict=False)}
    if SUBJECTS[subject].settings.get("adjacency") == "replace_one":
        whose["ledger"] = PrivacyLedger(1e4, 0.5, "replace_one", unit="person", strict=False)
    private = SUBJECTS[subject].private
    fitting = made(subject, **whose if private else {})
    for groups in BAD_GROUPS.values():
        if not private:
            # Public maps learn nothing from rows, whoever owns them.
            with pytest.raises(TypeError, match="groups"):
                fitting.fit(X, Y, groups=groups)
            continue
        error = assert_refused(lambda: fitting.fit(X, Y, groups=groups), fitting, "^groups: ")  # noqa: B023
        assert isinstance(error, InvalidParameterError)
        assert error.parameter == "groups"
        assert "4711" not in chained_text(error)


@every_classifier
def test_bad_weights_of_classes_are_refused(subject: str) -> None:
    for weights in ("even", {9: 1.0}, {0: -1.0}, {0: 0.0}, {}, {0: np.inf}):
        fitting = made(subject, class_weight=weights)
        error = assert_refused(lambda: fitting.fit(X, Y), fitting, "^class_weight: ")  # noqa: B023
        assert isinstance(error, TypeError if weights == "even" else InvalidParameterError)


@every_transformer
def test_entries_come_back_without_names(subject: str) -> None:
    """What a transformer gave out is an array, whatever the rows were; no warning about names."""
    fitted = made(subject).fit(frame(), Y)
    if not hasattr(fitted, "inverse_transform"):
        pytest.skip("has no inverse")
    mapped = fitted.transform(frame())
    assert fitted.inverse_transform(mapped).shape == (12, 3)
    with pytest.raises(ValueError, match=r"^X: got 2 "):
        fitted.inverse_transform(mapped[:, :2])


def test_every_class_of_the_library_is_asked() -> None:
    import dpsvm_fast

    # A Pipeline reads nothing itself: its steps do. Images have one shape, and tests of their own.
    kinds = {SUBJECTS[name].kind.__name__ for name in (*CLASSIFIERS, *TRANSFORMERS)}
    kinds |= {"PrivatePipeline", "PublicImageFeatures"}
    public = {name for name in dpsvm_fast.__all__ if hasattr(getattr(dpsvm_fast, name), "fit")}
    assert kinds == public
