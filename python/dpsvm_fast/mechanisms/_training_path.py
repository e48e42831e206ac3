"""The path that a private pipeline takes once its first release is there."""

from __future__ import annotations

from dataclasses import dataclass

from dpsvm_fast.accounting import PrivacyEvent
from dpsvm_fast.mechanisms._descent_rule import DescentRule
from dpsvm_fast.mechanisms._noisy_sum import NoisySum
from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import OutputPerturbation

__all__ = ["Solver", "Training"]

Solver = ObjectivePerturbation | OutputPerturbation


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is done after the first release, as that decides.

    Parameters
    ----------
    whitened : bool
    rule : DescentRule or None
        The private descent.
    solver : ObjectivePerturbation, OutputPerturbation or None
        The solver with its noise, of one release; exactly one of the two.
    n_releases : int >= 1
        How often the solver's weights are released: each minimiser is regularised towards the
        release before it.
    sums : tuple of NoisySum
        All noisy sums of this path, in their order.
    reserved : tuple of PrivacyEvent
        Paid for though this path does not release it. A released number chose the path, so what
        the fit costs is what its dearest path does.
    """

    whitened: bool
    rule: DescentRule | None
    solver: Solver | None
    sums: tuple[NoisySum, ...]
    n_releases: int = 1
    reserved: tuple[PrivacyEvent, ...] = ()

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Everything that is released on this path, and what is reserved."""
        own = () if self.solver is None else self.n_releases * self.solver.events
        return tuple(part.event for part in self.sums) + own + self.reserved
