"""No error of a fit quotes the data, anywhere in its chain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dpsvm_fast import PrivateKernelSVC, PrivatePCA
from dpsvm_fast.exceptions import CertificationError
from oracles.odd_inputs import every_estimator, model

SECRET = 0.123454321012345


def failing_fits(kind: str) -> dict[str, Callable[[], Any]]:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), rng.integers(0, 3, 60)
    X[7, 3] = SECRET
    bad = X.copy()
    bad[8, 2] = np.nan
    secret_labels = np.full(60, "s3cr3t-label")
    return {
        "not finite": lambda: model(kind).fit(bad, y),
        "unknown label": lambda: model(kind, classes=["a", "b"]).fit(X, secret_labels),
        "unknown number": lambda: model(kind).fit(X, np.where(y == 0, 987_654_321, y)),
        "lengths": lambda: model(kind).fit(X, y[:-1]),
        "rank": lambda: model(kind).fit(X[7], y),
        "passes": lambda: model(kind, C=10.0, max_iter=1).fit(X, y),
        "text": lambda: model(kind).fit(np.full((60, 5), "s3cr3t-text"), y),
        "object": lambda: model(kind).fit(np.full((60, 5), "s3cr3t-text", dtype=object), y),
        "complex": lambda: model(kind).fit(X * (1 + 1j), y),
    }


@every_estimator
@pytest.mark.parametrize("name", failing_fits("output"))
def test_errors_quote_no_data(estimator: str, name: str) -> None:
    fit = failing_fits(estimator)[name]
    with pytest.raises((ValueError, TypeError, CertificationError)) as caught:
        fit()
    # All that a traceback prints, chained exceptions included, source lines left out.
    text, error = "", caught.value
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        text += f"{type(error).__name__}: {error}\n"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)  # type: ignore[assignment]
    for secret in ("0.1234", "987654321", "987_654_321", "s3cr3t"):
        assert secret not in text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"gamma": 0.0}, r"^gamma: got 0\.0, expected 'auto' or a finite number >= "),
        ({"gamma": "scale"}, r"^gamma: got 'scale' of type str, expected 'auto' or a finite "),
        ({"n_components": 0}, r"^n_components: got 0, expected 'auto' or an integer in 1\.\."),
        ({"whiten": 1}, r"^whiten: got 1 of type int, expected 'auto' or True or False"),
        ({"bounds": 3}, r"^bounds: got int, expected None or a tuple \(low, high\)"),
        (
            {"bounds": ([0, 4], [1, 2])},
            r"^bounds: got low = 4 and high = 2 for feature 1, expected None or low < high",
        ),
    ],
)
def test_words_are_among_what_is_accepted(settings: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        PrivateKernelSVC(classes=[0, 1], **settings).fit(np.eye(2), [0, 1])


@pytest.mark.parametrize("rows", [[["a", "b"]], np.array([["one"]], dtype=object)])
def test_text_in_rows_is_said_to_be_in_X(rows: Any) -> None:
    with pytest.raises(ValueError, match=r"^X: expected numbers"):
        PrivatePCA(1).fit(rows)
