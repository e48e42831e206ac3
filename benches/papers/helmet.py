"""Settings and methods of Distributed DP-Helmet, for its figures 3 and 4 and its table 2.

Blind averaging: every user trains alone, adds its share of the noise, and one secure sum follows.
Beside it federated gradient descent as the paper has it, and one curator whom all trust. delta =
1e-5, relation replace_one everywhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from benches.papers.cells import accuracy, cells
from benches.papers.parties_features import Features
from benches.tables import Row, as_rows
from dpsvm_fast import GradientPerturbationSVC, PrivateLinearSVC, verify
from dpsvm_fast.accounting import (
    gaussian_epsilon,
    gaussian_sigma,
    subsampled_gaussian_epsilon,
    subsampled_gaussian_noise_multiplier,
)
from dpsvm_fast.federated import FederatedSpec, simulate

DATA = ("mnist", "cifar10_simclr")
DELTA = 1e-5
POINTS, ALL_POINTS = 50, 50_000
# The epsilon of figure 4.
EPSILON = 0.5885
HONEST = 0.5
RELATION = "replace_one"
COPIES = 5
# Local learners: the paper's two, and exact minimisers of ours.
LEARNERS: dict[str, dict[str, Any]] = {
    "SVM_SGD": {"local": "svm_sgd"},
    "Softmax_SLP_SGD": {"local": "softmax_slp_sgd"},
    "exact softmax": {"local": "exact", "loss": "softmax_margin"},
}
CURATOR, NOT_PRIVATE = "PrivateLinearSVC, one curator", "not private"

# Federated gradient descent with the constants of appendix E: expected batch, passes, clip norm,
# learning rate; and two other rates, of which the best on the test part may be taken.
BATCH, PASSES, CLIP, RATE = 1024, 40, 0.1, 4.0
OTHER_RATES = (1.0, 16.0)
FEDERATED = "DP-FL"
BEST = f"{FEDERATED}, best of {len(OTHER_RATES) + 1} rates"
# The noise of a sum is named by a pair of its own: at this delta every epsilon is above 0.
SMALL_DELTA = 1e-12
PLACE = ("data", "setting", "users", "points", "epsilon", "method")

COMMON_PROTOCOL = (
    "MNIST on 64 components of USPS, rows of norm 1, shows the shape of the curves. The paper's "
    "data, CIFAR-10 with features of a network trained on ImageNet, are not measured.",
    "The relation is `replace_one`. Half of the users are assumed to collude, as in the paper; a "
    "single user trusts itself.",
    "Regularisation and radius follow our public rules; the paper takes the best of a grid by "
    "measured accuracy. Accuracies are means of 3 draws of the rows, on the official test part; "
    "the paper has five times six folds.",
)
FEDERATED_PROTOCOL = (
    "DP-FL is the paper's baseline with its printed constants (rate 4, clip norm 0.1, batches of "
    "1024, 40 passes). The server is not trusted: each user's noise protects that user alone, so "
    "the sum has √users times the noise. It runs as one descent with that noise, as in the paper.",
    f"{BEST}: the best test accuracy of learning rates 1, 4 and 16, to the baseline's benefit.",
)

Party = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True)
class Setting:
    """One point of a figure: so many users with so many points each.

    Parameters
    ----------
    name : {"points", "spread", "one class"}
    users, points : int
    epsilon : float
    multiplier : int, default=1
        Data sets so many times larger are imitated by as much less noise.
    """

    name: str
    users: int
    points: int
    epsilon: float
    multiplier: int = 1

    @property
    def copies(self) -> int:
        """How often every user takes part: a sum refuses noise too small for its secrecy."""
        return 1 if self.multiplier == 1 else COPIES

    @property
    def noise_epsilon(self) -> float:
        """Epsilon at which the noise is that of the setting."""
        if self.multiplier == 1:
            return self.epsilon
        less = self.multiplier / self.copies
        return float(gaussian_epsilon(DELTA, gaussian_sigma(self.epsilon, DELTA) / less))

    @property
    def columns(self) -> dict[str, object]:
        """What a row says of it."""
        return {
            "setting": self.name,
            "users": self.users,
            "points": self.points,
            "epsilon": self.epsilon,
        }


def points(users: int, epsilon: float) -> Setting:
    """50 points a user."""
    return Setting("points", users, POINTS, epsilon)


def spread(users: int, epsilon: float) -> Setting:
    """50,000 points over all users."""
    return Setting("spread", users, ALL_POINTS // users, epsilon)


def parties_of(data: Features, setting: Setting, repeat: int) -> list[Party]:
    """Rows of each user; of one class each where the setting asks for it."""
    rng = np.random.default_rng([repeat, setting.users, setting.points])
    drawn = rng.permutation(len(data.y))[: setting.users * setting.points]
    if setting.name == "one class":
        drawn = drawn[np.argsort(data.y[drawn], kind="stable")]
        # A user at the border of two classes keeps to the first.
        return [_of_one_class(data, part) for part in np.split(drawn, setting.users)]
    return [(data.X[part], data.y[part]) for part in np.split(drawn, setting.users)]


def _of_one_class(data: Features, part: NDArray[np.intp]) -> Party:
    """Rows of the first label of ``part``, as many as it has."""
    label = data.y[part[0]]
    own = part[data.y[part] == label]
    others = np.setdiff1d(np.flatnonzero(data.y == label), own)[: len(part) - len(own)]
    rows = np.concatenate([own, others])
    return data.X[rows], data.y[rows]


def blind(data: Features, setting: Setting, learner: str, parties: Sequence[Party]) -> Any:
    """The average of all users' models."""
    spec = FederatedSpec.dp_helmet(
        n_users=setting.users * setting.copies,
        honest_fraction=HONEST if setting.users > 1 else 1.0,
        epsilon=setting.noise_epsilon,
        delta=DELTA,
        n_features=data.X.shape[1],
        classes=range(data.n_classes),
        min_records=setting.points,
        max_records=setting.points,
        **LEARNERS[learner],
    )
    return simulate(spec, list(parties) * setting.copies, n_threads=1)


def descent(setting: Setting, n_classes: int, rate: float) -> GradientPerturbationSVC:
    """Federated gradient descent: each user's noise is enough for itself, and all add up."""
    n = setting.users * setting.points
    sampled = min(1.0, BATCH / n)
    n_steps = round(PASSES / sampled)
    own = subsampled_gaussian_noise_multiplier(setting.epsilon, DELTA, sampled, n_steps, RELATION)
    of_sum = subsampled_gaussian_epsilon(
        own * math.sqrt(setting.users), sampled, n_steps, SMALL_DELTA, RELATION
    )
    return GradientPerturbationSVC(
        of_sum,
        SMALL_DELTA,
        loss="softmax_margin",
        margin=0.0,
        adjacency=RELATION,
        classes=range(n_classes),
        optimizer="sgd" if sampled < 1.0 else "gd",
        sampling_rate=sampled,
        expected_batch_size=sampled * n,
        n_steps=n_steps,
        max_grad_norm=CLIP,
        learning_rate=rate,
        average=0.0,
        n_threads=1,
    )


def curator(setting: Setting, n_classes: int) -> PrivateLinearSVC:
    """Our pipeline on all rows, by somebody whom all trust."""
    return PrivateLinearSVC(setting.epsilon, DELTA, classes=range(n_classes), adjacency=RELATION)


def not_private() -> LogisticRegression:
    """A linear model without noise."""
    return LogisticRegression(C=100.0, max_iter=200)


def averages(
    data: Features, setting: Setting, repeat: int, parties: Sequence[Party], *, check: bool
) -> Iterator[dict[str, object]]:
    """Blind averages of each learner."""
    for learner in LEARNERS:
        begin = time.perf_counter()
        model = blind(data, setting, learner, parties)
        yield {
            **setting.columns,
            "method": learner,
            "repeat": repeat,
            "accuracy": float(model.score(data.X_test, data.y_test)),
            "seconds": time.perf_counter() - begin,
            "holds": verify(model.privacy_).ok if check else None,
        }


def pooled(
    data: Features,
    setting: Setting,
    repeat: int,
    parties: Sequence[Party],
    *,
    curated: bool,
    noiseless: bool,
) -> Iterator[dict[str, object]]:
    """Methods that see all rows at once, or behave as if they did."""
    models: dict[str, Any] = {
        f"{FEDERATED}, rate {rate:g}": descent(setting, data.n_classes, rate)
        for rate in (RATE, *OTHER_RATES)
    }
    if curated:
        models[CURATOR] = curator(setting, data.n_classes)
    if noiseless:
        models[NOT_PRIVATE] = not_private()
    X, y = (np.concatenate(parts) for parts in zip(*parties, strict=True))
    for name, model in models.items():
        begin = time.perf_counter()
        model.fit(X, y)
        yield {
            **setting.columns,
            "method": name,
            "repeat": repeat,
            "accuracy": float(model.score(data.X_test, data.y_test)),
            "seconds": time.perf_counter() - begin,
            "holds": None,
        }


def analyse(rows: Sequence[Row]) -> list[Row]:
    """Mean accuracy of each cell; of the baseline the printed rate and the best one."""
    summary = [
        dict(zip(PLACE, place, strict=True))
        | accuracy(members)
        | {"holds": "False" not in [row["holds"] for row in members]}
        for place, members in cells(rows, PLACE).items()
    ]
    table = as_rows(summary)
    found: list[Row] = []
    for members in cells(table, PLACE[:-1]).values():
        rated = [row for row in members if row["method"].startswith(f"{FEDERATED}, rate")]
        found += [row for row in members if row not in rated]
        found += [
            row | {"method": FEDERATED}
            for row in rated
            if row["method"] == f"{FEDERATED}, rate {RATE:g}"
        ]
        if rated:
            found.append(max(rated, key=lambda row: float(row["accuracy"])) | {"method": BEST})
    return found


def failures(table: Sequence[Row], name: str) -> list[str]:
    """Certificates that do not hold."""
    return [
        f"{name}: {row['data']}, {row['setting']}, {row['users']} users, {row['method']} at "
        f"{row['epsilon']}: the certificate does not hold"
        for row in table
        if row["holds"] != "True"
    ]


def at(table: Sequence[Row], setting: str, epsilon: float | None = None) -> list[Row]:
    """Rows of one setting, at one epsilon if given."""
    return [
        row
        for row in table
        if row["setting"] == setting and epsilon in (None, float(row["epsilon"]))
    ]


def so_many_users(number: int) -> str:
    """A heading."""
    return f"{number:,} user{'s' * (number != 1)}"
