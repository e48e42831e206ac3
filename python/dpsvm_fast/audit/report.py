"""What an audit found, for people and for files."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._validation import check_fraction
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["AuditReport", "alpha_of", "histogram_of"]

FORMAT, VERSION = "dpsvm_fast.audit_report", 1
METHOD_NAMES = {
    "clopper_pearson": "counts alone (Clopper and Pearson)",
    "gaussian": "Gaussian trade-off curve (Clopper and Pearson, Nasr et al. 2023)",
    "profile": "the claimed law with its noise unknown (Clopper and Pearson)",
    "one_run": "one run with many canaries (Steinke et al. 2023, Mahloujifar et al. 2025)",
    "one_run_gaussian": "one run, Gaussian trade-off curve (Mahloujifar et al. 2025)",
    "one_run_profile": "one run, the claimed law with its noise unknown (Mahloujifar et al. 2025)",
    "density": "exact densities, no sampling",
}


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """A certified lower bound of epsilon beside the claim.

    Parameters
    ----------
    mechanism : str
        What was audited.
    adjacency : {"add_remove", "replace_one"}
        Neighbouring relation of the two data sets and of the claim.
    epsilon, delta : float
        The claim.
    certified : float
        Lower bound of the epsilon that the program really has, at the claim's delta.
    method : {"gaussian", "profile", "clopper_pearson", "density", or one of these with
        "one_run" before it; "one_run" alone takes nothing to be known}
        How counts became a bound; what each assumes is in docs/auditing.md.
    confidence : float
        Probability, over the program's own noise, with which the bound is right.
    n_trials : int
        Counted runs of each world (canaries, for one run; 0 for densities).
    n_pilot : int
        Runs of each world on which statistic and event were chosen, not counted.
    seconds : float
        Wall-clock time.
    statistic : str
        The number of a release that was looked at.
    threshold : float
        Where it was cut.
    counts : tuple of two ints
        Runs beyond the cut in the world in which it was expected more often, and in the other.
    histogram : dict
        ``edges`` (n_bins + 1 floats), ``first`` and ``second`` (n_bins ints): the statistic in the
        counted runs of both worlds.
    """

    mechanism: str
    adjacency: str
    epsilon: float
    delta: float
    certified: float
    method: str
    confidence: float
    n_trials: int
    n_pilot: int = 0
    seconds: float = 0.0
    statistic: str = ""
    threshold: float = 0.0
    counts: tuple[int, int] = (0, 0)
    histogram: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    @property
    def exceeds_claim(self) -> bool:
        """Whether the program was caught: what is certified is more than what is claimed."""
        return self.certified > self.epsilon * (1.0 + 1e-9)

    def to_dict(self) -> dict[str, Any]:
        """All fields with the format's name and version; numbers of JSON only."""
        fields = dataclasses.asdict(self) | {"counts": list(self.counts)}
        return {"format": FORMAT, "version": VERSION, **fields, "exceeds_claim": self.exceeds_claim}

    def to_json(self, *, indent: int | None = 2) -> str:
        """``to_dict`` as text."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        """A verdict in prose."""
        verdict = (
            "REFUTED: the program is not as private as it claims"
            if self.exceeds_claim
            else "consistent with the claim"
        )
        runs = "" if self.method == "density" else f", {self._runs()}"
        bound = f"epsilon >= {self.certified:.4g} at confidence {_shown(self.confidence)}"
        return (
            f"{self.mechanism} ({self.adjacency})\n"
            f"  claimed    epsilon {self.epsilon:.4g}, delta {self.delta:.3g}\n"
            f"  certified  {bound}\n"
            f"  by         {METHOD_NAMES[self.method]}{runs}\n"
            f"  {verdict}"
        )

    def _runs(self) -> str:
        if self.method.startswith("one_run"):
            return f"{self.n_trials} canaries in {self.seconds:.1f} s"
        return f"{self.n_trials} runs of each world in {self.seconds:.1f} s"


def _shown(confidence: float) -> str:
    """A confidence without nines lost to rounding."""
    return "1" if confidence == 1.0 else f"1 - {1.0 - confidence:.2g}"


def alpha_of(confidence: float) -> float:
    """What is left of 1: the probability that a bound is wrong.

    Raises
    ------
    InvalidParameterError, TypeError
        A confidence outside (0, 1).
    """
    alpha = 1.0 - check_fraction("confidence", confidence)
    if alpha <= 0.0:
        raise InvalidParameterError.of("confidence", got=confidence, accepted="a number below 1")
    return alpha


def histogram_of(
    first: NDArray[np.float64], second: NDArray[np.float64], n_bins: int = 80
) -> dict[str, list[float]]:
    """Counts in bins that both worlds share; two in a thousand runs lie beyond them."""
    low, high = np.quantile(np.concatenate([first, second]), [0.001, 0.999])
    if not low < high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, n_bins + 1)
    counts = [np.histogram(v, edges)[0].tolist() for v in (first, second)]
    return {"edges": edges.tolist(), "first": counts[0], "second": counts[1]}
