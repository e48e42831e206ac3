"""PrivateCenter and PrivateWhitener: what they release, spend, refuse and transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import dpsvm_fast as dp
from dpsvm_fast.exceptions import InvalidParameterError
from oracles.odd_inputs import X as ROWS
from oracles.subjects import made

ALPHA = 1e-6
KINDS: dict[str, Any] = {"centre": dp.PrivateCenter, "whitening": dp.PrivateWhitener}
each = pytest.mark.parametrize("kind", KINDS)
RNG = np.random.default_rng(0)
X: NDArray[np.float64] = RNG.normal(size=(500, 6)) * np.geomspace(0.05, 1.0, 6) + 0.3


def shortened(rows: NDArray[np.float64], bound: float) -> NDArray[np.float64]:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, bound / norms)


PUBLISHED: dict[str, set[str]] = {
    "centre": {"mean_", "n_samples_", "data_norm_"},
    "whitener": {"whitening_", "data_norm_"},
    "pca": {
        "components_", "eigenvalues_", "explained_variance_ratio_", "scales_", "centre_",
        "n_components_", "data_norm_",
    },
    "standard scaler": {
        "mean_", "scale_", "var_", "n_samples_seen_", "data_norm_", "bounds_",
    },
}  # fmt: skip


@pytest.mark.parametrize("subject", PUBLISHED)
def test_transformers_publish_what_is_listed_and_forget_it(subject: str) -> None:
    model = made(subject).fit(ROWS)
    own = set(vars(model)) - set(model.get_params())
    assert own == PUBLISHED[subject] | {"n_features_in_", "privacy_"}
    model.epsilon = -1.0
    with pytest.raises(InvalidParameterError) as told:
        model.fit(ROWS)
    assert told.value.parameter == "epsilon"
    for name in ("transform", "inverse_transform"):
        if hasattr(model, name):
            with pytest.raises(NotFittedError):
                getattr(model, name)(ROWS)


def test_the_centre_is_the_mean_of_clipped_rows() -> None:
    fitted = dp.PrivateCenter(1e4, data_norm=0.9).fit(X)
    assert np.allclose(fitted.mean_, shortened(X, 0.9).mean(axis=0), atol=1e-3)
    assert fitted.n_samples_ == pytest.approx(500.0, abs=1.0)
    assert np.allclose(fitted.transform(X), shortened(X, 0.9) - fitted.mean_)
    assert dp.PrivateCenter(adjacency="replace_one").fit(X).n_samples_ == 500.0


def test_a_pure_centre_has_no_delta() -> None:
    fitted = dp.PrivateCenter(5.0, 0.0).fit(X)
    assert dp.verify(fitted.privacy_)
    assert fitted.privacy_.delta == 0.0
    assert fitted.privacy_.parts[0].distribution == "gamma"
    with pytest.raises(InvalidParameterError, match="delta"):
        dp.PrivateWhitener(5.0, 0.0).fit(X)


@pytest.mark.proof("auto_pipeline", "Rows, sums, centre, whitening")
@pytest.mark.statistical
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_the_noise_in_the_mean_has_the_stated_law(adjacency: str) -> None:
    """Sums of squares over sigma^2 are chi-square; without the factor of the relation they fail."""
    rows = np.zeros((400, 3000))
    rows[:, 0] = 1.0
    fitted = dp.PrivateCenter(200.0, 1e-5, adjacency=adjacency).fit(rows)
    sigma = fitted.privacy_.parts[0].sigma
    # Undo what is post-processing: the first coordinate holds nearly all that is not noise.
    kept = np.linalg.norm(fitted.mean_ * fitted.n_samples_) / np.sqrt(400.0**2 + 3000 * sigma**2)
    noise = fitted.mean_[1:] * fitted.n_samples_ / kept
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], df=2999)
    # The shrinkage is known to about sigma / 400.
    assert low * 0.99 <= float(((noise / sigma) ** 2).sum()) <= high * 1.01
    assert not low * 0.99 <= float(((noise / (0.8 * sigma)) ** 2).sum()) <= high * 1.01


def test_whitening_makes_directions_alike_and_rows_no_longer() -> None:
    centred = X - X.mean(axis=0)
    fitted = dp.PrivateWhitener(1e4, data_norm=4.0).fit(centred)
    out = fitted.transform(centred)
    values = np.linalg.eigvalsh(out.T @ out)
    assert values[-1] / values[0] < 1.5
    assert np.linalg.cond(centred.T @ centred) > 50.0
    assert (np.linalg.norm(out, axis=1) <= np.linalg.norm(centred, axis=1) + 1e-12).all()
    assert np.allclose(out, shortened(centred, 4.0) @ fitted.whitening_)


def test_sparse_rows_are_made_dense_on_request() -> None:
    given = sparse.csr_matrix(X * (X > 0.5))
    fitted = dp.PrivateCenter(8.0).fit(given)
    with pytest.raises(TypeError, match="dense_output"):
        fitted.transform(given)
    fitted.set_params(dense_output=True)
    out = fitted.transform(given)
    assert np.allclose(out, fitted.transform(given.toarray()))
    assert dp.PrivateWhitener(8.0).fit(given).transform(given).shape == X.shape


def test_names_of_columns() -> None:
    frame = pd.DataFrame(X, columns=list("abcdef"))
    assert list(dp.PrivateCenter().fit(frame).get_feature_names_out()) == list("abcdef")
    names = dp.PrivateWhitener().fit(frame).get_feature_names_out()
    assert list(names[:2]) == ["privatewhitener0", "privatewhitener1"]
    shown = dp.PrivateCenter().set_output(transform="pandas").fit_transform(frame)
    assert list(shown.columns) == list("abcdef")


def test_a_pipeline_spends_one_ledger() -> None:
    labels = (X[:, 0] > 0.3).astype(int)
    ledger = dp.PrivacyLedger(6.0, 1e-4)
    shared: dict[str, Any] = {"ledger": ledger, "delta": 1e-5}
    steps = (
        Normalizer(),
        dp.PrivateCenter(1.0, **shared),
        Normalizer(),
        dp.PrivateWhitener(1.0, **shared),
        Normalizer(),
        dp.OutputPerturbationSVC(3.0, classes=[0, 1], **shared),
    )
    fitted = clone(make_pipeline(*steps)).fit(X, labels)
    assert len(ledger.history) == 3
    assert fitted.score(X, labels) > 0.5
