"""google/differential-privacy's privacy loss distributions (pip install dp-accounting).

The same event as ours: a Gaussian sum with noise multiplier z over a Poisson sample with rate q,
composed over T steps, add or remove one. Everything at its defaults: the losses are discretised at
1e-4, pessimistically, and a calibration stops at a tolerance of 1e-6 in z.
"""

from __future__ import annotations

import importlib
from typing import Any


class Accountant:
    """Epsilon and calibration of sampled Gaussian sums."""

    def __init__(self) -> None:
        self.events: Any = importlib.import_module("dp_accounting")
        self.pld: Any = importlib.import_module("dp_accounting.pld.pld_privacy_accountant")

    def _event(self, noise_multiplier: float, sampling_rate: float, n_steps: int) -> Any:
        """T sampled Gaussian sums."""
        one = self.events.GaussianDpEvent(noise_multiplier)
        sampled = self.events.PoissonSampledDpEvent(sampling_rate, one)
        return self.events.SelfComposedDpEvent(sampled, n_steps)

    def epsilon(
        self, noise_multiplier: float, sampling_rate: float, n_steps: int, delta: float
    ) -> float:
        """Epsilon at delta."""
        accountant = self.pld.PLDAccountant()
        accountant.compose(self._event(noise_multiplier, sampling_rate, n_steps))
        return float(accountant.get_epsilon(delta))

    def noise_multiplier(
        self, epsilon: float, delta: float, sampling_rate: float, n_steps: int
    ) -> float:
        """The smallest z for (epsilon, delta)."""
        found = self.events.calibrate_dp_mechanism(
            self.pld.PLDAccountant,
            lambda z: self._event(z, sampling_rate, n_steps),
            epsilon,
            delta,
        )
        return float(found)


def load() -> Accountant | None:
    """The accountant, or None where it is not installed."""
    try:
        return Accountant()
    except ImportError:
        return None
