r"""The private pipeline of a kernel classifier: the linear one, trained on random features.

Features of norm 1 make the noise in a score the same whatever their number, so a kernel costs
signal only, and no release beside those of :mod:`dpsvm_fast.mechanisms.pipeline`. With
:math:`\hat n` the released number of rows, :math:`\mu` the parameter of the training (halved under
``replace_one``) and K classes,

.. math:: q = \hat n \mu / B, \qquad B = \max(K, d) \text{ for whitened rows, else } K

measures the signal of one class against the noise. The model stays linear where q < 40, or where
there are fewer than 10 unwhitened rows a feature: there a kernel would bend around noise. Otherwise
:math:`\gamma = \sqrt{q / 1000}` between 1/4 and 1; for gamma near 0 the kernel without its constant
part is the linear one. Every choice is a function of public numbers and of released ones
(docs/proofs/random_features.md, sections "Choice of the kernel" and "Count").

Gamma noise of rate :math:`\epsilon'` on p weights has the root mean square
:math:`\sqrt{p + 1} / \epsilon'` in each, so without Gaussian noise :math:`\epsilon' / \sqrt{p + 1}`
takes the place of :math:`\mu`. Its noise does grow with the number of features, hence their default
is small, and too few of them cannot do what the linear model does: that needs twenty a dimension.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpsvm_fast import _core
from dpsvm_fast.certificates import PrivacyEvent
from dpsvm_fast.certificates.words import ROWS
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.mechanisms.noise import RELATION_FACTOR, NoisySum, grid_of_sums, share_of
from dpsvm_fast.mechanisms.pipeline import PrivateLinear, Training
from dpsvm_fast.mechanisms.rows import FourierFeatures, structure_of

# Share of the squared Gaussian parameter, or of epsilon, for the number of rows where no centre
# brings it. Where the rule turns to a kernel its noise is then a tenth of the number.
COUNT_SHARE = 0.02
# The rule.
SMALLEST_SIGNAL = 40.0

ROWS_A_FEATURE = 10.0
# Ten a feature lose 0.03 of accuracy where classes are linear, twenty up to 0.005.
COMPONENTS_A_FEATURE = 20.0

SIGNAL_OF_UNIT_GAMMA = 1000.0

SMALLEST_GAMMA, LARGEST_GAMMA = 0.25, 1.0
# c of the descent on features.
WHITENED_C, PLAIN_C = 0.5, 0.7


@dataclass(frozen=True, kw_only=True)
class NoisyCount:
    """Release of the number of rows alone, which one row more or fewer moves by 1.

    Parameters
    ----------
    noise_grid : {"exact", "float"}
        How Gaussian noise is drawn.
    mu : float > 0 or None
        Parameter of Gaussian noise.
    epsilon : float > 0 or None
        Of Gamma noise, here Laplace noise; exactly one of the two.
    """

    noise_grid: str
    mu: float | None = None
    epsilon: float | None = None

    @cached_property
    def sum(self) -> NoisySum:
        """The noise and what it covers."""
        grid, rounding = None, 0.0
        if self.mu is not None and self.noise_grid == "exact":
            grid, rounding = grid_of_sums(1.0, 2.0 / self.mu, 1)
        return NoisySum(
            name="count",
            what=ROWS,
            adjacency="add_remove",
            clip_norm=1.0,
            relation_factor=1.0,
            shape=(1,),
            mu=self.mu,
            epsilon=self.epsilon,
            grid=grid,
            rounding=rounding,
        )

    @property
    def event(self) -> PrivacyEvent:
        """What a ledger records."""
        return self.sum.event

    def release(self, n_rows: int, source: _core.NoiseSource, n_threads: int) -> float:
        """The noisy number of rows, at least 1."""
        noisy = self.sum.release(np.array([float(n_rows)]), source, n_threads)
        return max(1.0, float(noisy[0]))


@dataclass(frozen=True, kw_only=True)
class KernelChoice:
    """What the rule decides before the training.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "linear"}
    gamma : float > 0 or None
        None for "linear".
    signal : float or None
        q; None where no number of rows is known.
    """

    kernel: str
    gamma: float | None
    signal: float | None


@dataclass(frozen=True, kw_only=True)
class PrivateKernel(PrivateLinear):
    """All releases of one fit, known in full before any data are read.

    Parameters
    ----------
    kernel : {"auto", "rbf", "laplacian", "linear"}
    gamma : float > 0 or "auto"
    n_components : int >= 1
        Number D of frequencies.
    orthogonal : bool
    normalize : bool
        Whether rows have norm 1. Otherwise they have norm at most 1, and are never centred.
    data_norm : float > 0
        What raw rows were clipped to and divided by, without ``normalize``.
    lifted : bool
        Whether the training is on features; the rule decides, once the number of rows is released.

    Notes
    -----
    Guarantees: as :class:`PrivateLinear`; features of a row are a function of the row and of public
    and released numbers, and have norm at most 1.
    """

    kind: ClassVar[str] = "private_kernel"

    kernel: str = "auto"
    gamma: float | str = "auto"
    n_components: int = 1000
    orthogonal: bool = True
    normalize: bool = True
    data_norm: float = 1.0
    lifted: bool = False

    def __post_init__(self) -> None:
        """Refuses budgets without noise, and what would make the noise depend on the rule."""
        super().__post_init__()
        if self.kernel == "auto" and self.trainer == "objective" and not self.pure:
            raise InvalidParameterError.of(
                "kernel",
                got="auto",
                accepted="'rbf', 'laplacian' or 'linear' with mechanism='objective' and delta > 0, "
                "whose privacy loss would depend on the choice",
            )

    @property
    def n_columns(self) -> int:
        """Number of columns of the rows that are trained on."""
        return 2 * self.n_components if self.lifted else self.n_features

    @cached_property
    def count(self) -> NoisyCount | None:
        """Release of the number of rows where a choice needs it and no centre brings it."""
        chosen = self.kernel != "linear" and "auto" in (self.kernel, self.gamma)
        needed = self.trainer == "gradient" or chosen
        if self.centred or not needed or self.adjacency != "add_remove":
            return None
        return NoisyCount(
            noise_grid=self.noise_grid,
            mu=None if self.pure else share_of(self.mu, COUNT_SHARE),
            epsilon=COUNT_SHARE * self.epsilon if self.pure else None,
        )

    @property
    def _before(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger is charged before the training."""
        own = () if self.count is None else (self.count.event,)
        return own + super()._before

    @cached_property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger records; settings that the noise of features refuses are refused here."""
        own = super().events
        if self.kernel == "linear" or self.lifted:
            return own
        wide = dataclasses.replace(self, lifted=True).events
        return own if self.kernel == "auto" else wide

    def known_count(self, n_rows: int, source: _core.NoiseSource, n_threads: int) -> float | None:
        """Number of rows where it is public, or released apart from a centre."""
        if self.adjacency == "replace_one":
            return float(n_rows)
        return None if self.count is None else self.count.release(n_rows, source, n_threads)

    def training(self, count: float | None) -> Training:
        """The path that follows from the released, or public, number of rows."""
        whitened, sums, mu = self._path(count)
        if self.count is not None:
            sums = (self.count.sum, *sums)
        if self.choice(count).kernel == "linear":
            return self._training(count, sums, mu, whitened=whitened)
        wide = dataclasses.replace(self, lifted=True)
        c = WHITENED_C if whitened else PLAIN_C
        return wide._training(count, sums, mu, whitened=whitened, fixed_c=c)

    def choice(self, count: float | None) -> KernelChoice:
        """The kernel and its gamma: functions of public numbers and of the released ``count``."""
        whitened, _, mu = self._path(count)
        signal = None if count is None else self._signal(count, mu, whitened=whitened)
        kernel = self.kernel
        if kernel == "auto":
            kernel = "rbf" if self._worthwhile(count, signal, whitened=whitened) else "linear"
        if kernel == "linear":
            return KernelChoice(kernel=kernel, gamma=None, signal=signal)
        if self.gamma != "auto":
            return KernelChoice(kernel=kernel, gamma=float(self.gamma), signal=signal)
        assert signal is not None
        gamma = math.sqrt(signal / SIGNAL_OF_UNIT_GAMMA)
        gamma = min(LARGEST_GAMMA, max(SMALLEST_GAMMA, gamma))
        if kernel == "laplacian":
            # Rows of norm 1 that are nearly orthogonal have a squared distance of 2 and about
            # sqrt(4 d / pi) in the sum of absolute differences: there both kernels agree.
            gamma *= math.sqrt(math.pi / self.n_features)
        return KernelChoice(kernel=kernel, gamma=gamma, signal=signal)

    def _signal(self, count: float, mu: float, *, whitened: bool) -> float:
        """The rule's q."""
        if self.pure:
            wide = dataclasses.replace(self, lifted=True)
            n_weights = self.loss.n_scores * (wide.n_columns + self.fit_intercept)
            mu = self._pure_rest / math.sqrt(n_weights + 1.0)
        K = self.loss.n_classes
        scale = max(K, self.n_features) if whitened else K
        return count * mu / RELATION_FACTOR[self.adjacency] / scale

    def _worthwhile(self, count: float | None, signal: float | None, *, whitened: bool) -> bool:
        """Whether a kernel is expected to beat the linear model."""
        if count is None or signal is None or signal < SMALLEST_SIGNAL:
            return False
        if self.pure and self.n_components < COMPONENTS_A_FEATURE * self.n_features:
            return False
        return whitened or count >= ROWS_A_FEATURE * self.n_features

    def features(self, choice: KernelChoice, seed: int) -> FourierFeatures | None:
        """The public map for a choice; None for the linear model.

        Parameters
        ----------
        choice : KernelChoice
        seed : int
            Public, and independent of the data.
        """
        if choice.gamma is None:
            return None
        return FourierFeatures(
            n_features=self.n_features,
            n_components=self.n_components,
            gamma=choice.gamma,
            kernel=choice.kernel,
            structure=structure_of(choice.kernel, self.n_features, orthogonal=self.orthogonal),
            centre="sphere" if self.normalize else "ball",
            seed=seed,
        )

    def summary(self) -> str:
        """Public facts in one line."""
        features = f"{2 * self.n_components} features where it is not linear"
        return f"{super().summary()}; kernel {self.kernel}, {features}"
