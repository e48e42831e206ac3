"""The kernel pipeline's rule and budget, as functions of public numbers and of a released count."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import pytest

from dpsvm_fast.accounting import composed_delta
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.losses import Loss
from dpsvm_fast.mechanisms.pipeline import NoisyCount, PrivateKernel, PrivateLinear
from oracles.plans import plan_of

RELATIONS = ("add_remove", "replace_one")
LOSS = Loss(name="softmax_margin", n_classes=4, margin=0.0)
HUBER = Loss(name="huber", n_classes=2, smoothing=0.5, margin=1.0)


BASE: dict[str, Any] = {"loss": LOSS, "delta": 1e-5, "n_features": 10}
linear, plan = partial(plan_of, PrivateLinear, **BASE), partial(plan_of, PrivateKernel, **BASE)


def pure(**changes: Any) -> PrivateKernel:
    given = {"epsilon": 0.1, "delta": 0.0, "trainer": "objective", "loss": HUBER, "n_features": 5}
    return plan(**given | {"n_components": 100} | changes)


def training_mu(mechanism: PrivateKernel, count: float) -> float:
    rule = mechanism.training(count).rule
    assert rule is not None
    return rule.mu


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("whiten", [True, False])
def test_the_number_that_the_rule_judges_by(adjacency: str, whiten: bool) -> None:
    mechanism = plan(adjacency=adjacency, whiten=whiten)
    mu = training_mu(mechanism, 5e4) / (1.0 if adjacency == "add_remove" else 2.0)
    choice = mechanism.choice(5e4)
    # As many as the features if whitened, as the classes otherwise.
    assert choice.signal == pytest.approx(5e4 * mu / (10 if whiten else 4), rel=1e-12)
    assert choice.gamma == pytest.approx(min(1.0, max(0.25, math.sqrt(choice.signal / 1000))))
    rule = mechanism.training(5e4).rule
    assert rule is not None
    assert (rule.c, rule.n_features) == ((0.5, 2000) if whiten else (0.7, 2000))


def test_little_signal_stays_linear() -> None:
    mechanism = plan(whiten=False)
    mu = training_mu(mechanism, 1e5)
    threshold = 40.0 * 4 / mu
    assert mechanism.choice(1.001 * threshold).kernel == "rbf"
    assert mechanism.choice(0.999 * threshold).kernel == "linear"
    assert mechanism.choice(0.999 * threshold).gamma is None
    # The smallest gamma just above, the largest far above.
    assert mechanism.choice(1.001 * threshold).gamma == 0.25
    assert mechanism.choice(1000.0 * threshold).gamma == 1.0


def test_few_unwhitened_rows_a_feature_stay_linear() -> None:
    wide = {"n_features": 400, "epsilon": 8.0}
    assert plan(**wide, whiten=False).choice(3999.0).kernel == "linear"
    assert plan(**wide, whiten=False).choice(4001.0).kernel == "rbf"
    # Whitened rows are judged by the signal alone.
    narrow = plan(n_features=400, epsilon=1000.0, whiten=True)
    assert narrow.choice(3999.0).kernel == "rbf"


def test_a_named_kernel_is_taken_whatever_the_count() -> None:
    for kernel in ("rbf", "laplacian", "linear"):
        assert plan(kernel=kernel).choice(3.0).kernel == kernel
    # Where nearly orthogonal rows have the same kernel, by the law of large numbers.
    one, two = (plan(kernel=k, whiten=False).choice(1e5).gamma for k in ("rbf", "laplacian"))
    assert one is not None
    assert two == pytest.approx(one * math.sqrt(math.pi / 10))
    assert plan(kernel="rbf", gamma=3.5).choice(2.0).gamma == 3.5


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("count", [2.0, 300.0, 1e6])
@pytest.mark.parametrize("whiten", ["auto", True, False])
def test_a_linear_choice_is_the_linear_pipeline(count: float, whiten: Any) -> None:
    here = plan(kernel="linear", whiten=whiten).training(count)
    there = linear(whiten=whiten).training(count)
    assert here == there
    assert plan(kernel="linear").events == linear().events


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("kernel", ["auto", "rbf", "linear"])
@pytest.mark.parametrize("count", [3.0, 2e3, 1e6])
def test_the_squares_add_up_on_every_path(
    adjacency: str, normalize: bool, kernel: str, count: float
) -> None:
    mechanism = plan(adjacency=adjacency, normalize=normalize, centred=normalize, kernel=kernel)
    budget = math.fsum(e.mu**2 for e in mechanism.events if isinstance(e, GaussianEvent))
    assert budget <= mechanism.mu**2 * (1.0 + 1e-12)
    events = mechanism.training(count).events
    spent = math.fsum(e.mu**2 for e in events if isinstance(e, GaussianEvent))
    assert spent == pytest.approx(budget, rel=1e-9)
    assert composed_delta(events, 1.0) <= 1e-5 * (1.0 + 1e-9)
    names = [part.name for part in mechanism.training(count).sums]
    assert ("centre" in names) == normalize
    assert ("count" in names) == (not normalize and adjacency == "add_remove")
    assert names[-1] == "training"


@pytest.mark.proof("random_features", "The rule and its budget")
def test_the_count_costs_what_it_says() -> None:
    mechanism = plan(centred=False, normalize=False)
    assert mechanism.count is not None
    event = mechanism.count.event
    assert isinstance(event, GaussianEvent)
    assert event.sensitivity == 1.0
    assert event.mu**2 == pytest.approx(0.02 * mechanism.mu**2, rel=1e-9)
    alone = pure(centred=False, normalize=False)
    assert alone.events[0] == PureEvent(0.02 * 0.1, "add_remove")
    # So large a noise has a grid coarser than whole numbers, and rounding costs.
    coarse = NoisyCount(noise_grid="exact", mu=1e-13).sum
    assert coarse.grid is not None
    assert coarse.grid > 1.0
    assert coarse.rounding >= coarse.grid
    # A larger one would have more steps than are drawn exactly.
    with pytest.raises(InvalidParameterError, match=r"^epsilon: the Gaussian parameter of"):
        _ = NoisyCount(noise_grid="exact", mu=1e-16).sum


@pytest.mark.proof("random_features", "The rule and its budget")
def test_nothing_is_released_that_no_choice_needs() -> None:
    free = {"centred": False, "normalize": False}
    assert pure(**free, kernel="linear").count is None
    assert pure(**free, kernel="rbf", gamma=1.0).count is None
    assert pure(**free, kernel="rbf").count is not None
    assert pure(**free, kernel="auto", gamma=1.0).count is not None
    assert pure(**free, adjacency="replace_one").count is None
    # The descent needs one whatever the kernel is.
    assert plan(**free, kernel="linear").count is not None
    assert plan().count is None


def test_the_pure_rule() -> None:
    mechanism = pure(centred=False, normalize=False)
    n_weights = 201
    mu = 0.98 * 0.1 / math.sqrt(n_weights + 1.0)
    assert mechanism.choice(2e5).signal == pytest.approx(2e5 * mu / 2.0, rel=1e-9)
    assert mechanism.choice(2e5).kernel == "rbf"
    assert mechanism.choice(40.0 * 2.0 / mu * 0.999).kernel == "linear"
    # Fewer frequencies than twenty a feature cannot do what the linear model does.
    assert dataclasses.replace(mechanism, n_features=5).choice(2e9).kernel == "rbf"
    assert dataclasses.replace(mechanism, n_features=6).choice(2e9).kernel == "linear"


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("centred", [True, False])
def test_pure_paths_cost_the_same(adjacency: str, centred: bool) -> None:
    """Epsilons add up whatever the law of the second release is, if its epsilon is fixed."""
    mechanism = pure(adjacency=adjacency, centred=centred, normalize=centred)
    linear, lifted = mechanism.training(2.0), mechanism.training(1e9)
    assert mechanism.choice(2.0).kernel == "linear"
    assert mechanism.choice(1e9).kernel == "rbf"
    assert linear.events == lifted.events == mechanism.events
    total = math.fsum(e.epsilon for e in mechanism.events if isinstance(e, PureEvent))
    assert 0.09999 <= total <= 0.1
    assert lifted.solver is not None
    assert lifted.solver.n_features == 200


@pytest.mark.proof("random_features", "The rule and its budget")
def test_gaussian_noise_in_the_objective_has_one_path() -> None:
    """Two laws with the same epsilon and delta differ elsewhere: no released number may choose."""
    shape = {"trainer": "objective", "loss": HUBER}
    with pytest.raises(InvalidParameterError, match=r"^kernel: got .auto."):
        plan(**shape)
    mechanism = plan(**shape, kernel="rbf", n_components=20, whiten=False)
    assert mechanism.training(50.0).events == mechanism.training(1e6).events == mechanism.events
    plain = linear(**shape, whiten=False)
    assert plan(**shape, kernel="linear", whiten=False).events == plain.events


@pytest.mark.proof("random_features", "The rule and its budget")
@pytest.mark.parametrize("count", [2.0, 1e5])
def test_noise_on_the_weights_fits_what_is_left(count: float) -> None:
    loss = Loss(name="crammer_singer", n_classes=4, margin=1.0)
    mechanism = plan(trainer="output", loss=loss)
    assert composed_delta(mechanism.training(count).events, 1.0) <= 1e-5 * (1.0 + 1e-9)
    assert composed_delta(mechanism.events, 1.0) <= 1e-5 * (1.0 + 1e-9)


def test_features_are_described_by_public_numbers() -> None:
    mechanism = plan(n_features=70)
    choice = mechanism.choice(1e6)
    features = mechanism.features(choice, 5)
    assert features is not None
    assert features == dataclasses.replace(features)
    assert (features.structure, features.centre, features.seed) == ("fast", "sphere", 5)
    assert (features.n_features, features.n_components) == (70, 1000)
    ball = plan(normalize=False, centred=False, orthogonal=False).features(choice, 5)
    assert ball is not None
    assert (ball.structure, ball.centre) == ("independent", "ball")
    assert mechanism.features(plan(kernel="linear").choice(1e6), 5) is None
    assert "kernel auto" in mechanism.summary()
