"""A budget of 1000 is not worse than one of 4; without today's rules it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from dpsvm_fast import GradientPerturbationSVC, PrivateKernelSVC
from dpsvm_fast.mechanisms import gradient, pipeline

Patch = pytest.MonkeyPatch
# What one model at 1000 may lose to one at 4; without the rules they lose more.
AUROC, LOG_LOSS = 0.01, 0.1
pytestmark = pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")


def noisy_classes(n_classes: int) -> tuple[Any, Any]:
    """Classes in directions of small variance, beside as many that tell nothing."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 12))
    y = (X[:, 6 : 6 + n_classes] + 0.7 * rng.normal(size=(3000, n_classes))).argmax(axis=1)
    return X * np.where(np.arange(12) < 6, 1.0, 0.3), y


def losses(kind: Any, n_classes: int, **settings: Any) -> tuple[float, float]:
    """What the larger budget loses in AUROC and in log-loss."""
    X, y = noisy_classes(n_classes)
    figures = []
    for epsilon in (4.0, 1000.0):
        model = kind(epsilon=epsilon, delta=1e-5, classes=range(n_classes), random_state=0)
        model.set_params(n_threads=1, **settings).fit(X[:2000], y[:2000])
        scores = model.decision_function(X[2000:])
        if hasattr(model, "predict_proba"):
            likely = model.predict_proba(X[2000:])
        else:
            scores = np.column_stack([-scores, scores]) / 2.0 if n_classes == 2 else scores
            likely = np.exp(scores - scores.max(axis=1, keepdims=True))
            likely /= likely.sum(axis=1, keepdims=True)
        order = likely[:, 1] if n_classes == 2 else likely
        area = roc_auc_score(y[2000:], order, multi_class="ovr")
        figures.append((area, log_loss(y[2000:], likely)))
    (area, loss), (area_then, loss_then) = figures
    return area - area_then, loss_then - loss


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_kernel_does_not_lose_by_budget(n_classes: int, monkeypatch: Patch) -> None:
    settings = {"bounds": (-4, 4), "kernel": "rbf", "n_components": 200}
    area, loss = losses(PrivateKernelSVC, n_classes, **settings)
    assert area < AUROC
    assert loss < LOG_LOSS
    monkeypatch.setattr(pipeline, "LONGEST_LIFTED_PATH", np.inf)
    monkeypatch.setattr(pipeline, "LARGEST_WHITENED_GAMMA", 1.0)
    area, loss = losses(PrivateKernelSVC, n_classes, **settings)
    assert area > 2.0 * AUROC
    assert loss > 1.5 * LOG_LOSS


@pytest.mark.parametrize("n_classes", [2, 3])
def test_samples_of_unknown_size_do_not_lose_by_budget(n_classes: int, monkeypatch: Patch) -> None:
    settings = {"optimizer": "sgd", "data_norm": 4.0}
    area, loss = losses(GradientPerturbationSVC, n_classes, **settings)
    assert area < AUROC
    assert loss < LOG_LOSS
    # Then no step is too long.
    monkeypatch.setattr(gradient, "LONGEST_STEP_UNKNOWN_N", np.inf)
    _, loss = losses(GradientPerturbationSVC, n_classes, **settings)
    assert loss > 1.5 * LOG_LOSS


def test_adam_does_not_lose_by_budget() -> None:
    area, loss = losses(GradientPerturbationSVC, 2, optimizer="adam", data_norm=4.0)
    assert area < AUROC
    assert loss < LOG_LOSS
