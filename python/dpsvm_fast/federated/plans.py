"""What parties do in each round, and what it costs: plans, all of them public."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dpsvm_fast._rounding import add_up
from dpsvm_fast.accounting import PrivacyEvent, Sensitivity
from dpsvm_fast.accounting._federated_parts import SecureRound
from dpsvm_fast.federated.encoding import FixedPointCodec
from dpsvm_fast.federated.noise import COMPUTATIONAL, SMOOTHING, SumNoise
from dpsvm_fast.federated.training import LocalTraining
from dpsvm_fast.mechanisms._settings import RELATION_FACTOR

__all__ = ["RoundPlan", "sensitivity_record"]

# Numbers of a vector behind those of the contribution: records of the party, and the number 1.
CHECKS = 2


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """One vector of each party, and their sum.

    Parameters
    ----------
    name : {"model", "gram", "components"}
    what : str
        What is summed up, for people.
    size : int
        p: numbers of a contribution. A vector has two more, without noise: the party's records (0
        where parties count alike) and the number 1.
    codec : FixedPointCodec
    noise : SumNoise or None
        None where parties release their own noisy numbers, and the sum only hides who said what.
    clip_norm : float or None
        Of ``"gram"``: bound of the norm of one row's outer product with itself.
    local_events : tuple of PrivacyEvent
        What a party's own noise costs.
    """

    name: str
    what: str
    size: int
    codec: FixedPointCodec
    noise: SumNoise | None = None
    clip_norm: float | None = None
    local_events: tuple[PrivacyEvent, ...] = ()

    @property
    def length(self) -> int:
        """Numbers of a vector."""
        return self.size + CHECKS

    @property
    def sigma_steps(self) -> int:
        """Parameter of each party's discrete Gaussian noise in the sum; 0 for none."""
        return 0 if self.noise is None else self.noise.sigma_steps

    @cached_property
    def _statements(self) -> dict[str, SecureRound]:
        """By trust."""
        return {trust: self._stated(trust) for trust in ("secure_sum", "trusted_curator")}

    def secure_round(self, trust: str) -> SecureRound | None:
        """The sum as the statement has it; None without noise in it."""
        return None if self.noise is None else self._statements[trust]

    def events(self, trust: str = "secure_sum") -> tuple[PrivacyEvent, ...]:
        """What a ledger is charged for this round."""
        summed = self.secure_round(trust)
        return (*(() if summed is None else summed.events), *self.local_events)

    def _stated(self, trust: str) -> SecureRound:
        """The record of the sum."""
        noise = self.noise
        assert noise is not None
        return SecureRound(
            name=self.name,
            what=self.what,
            size=self.size,
            clip_norm=self.clip_norm,
            exact=noise.distance,
            grid=noise.step,
            parties=noise.n_affected,
            rounding=noise.rounding,
            total=noise.total,
            sigma_steps=noise.sigma_steps,
            honest_survivors=noise.honest_survivors,
            smoothing=SMOOTHING,
            sigma=noise.sigma,
            discreteness=noise.discreteness,
            overflow=noise.overflow,
            computational=COMPUTATIONAL if trust == "secure_sum" else 0.0,
            range_steps=noise.bound_steps,
        )


def sensitivity_record(training: LocalTraining, noise: SumNoise) -> Sensitivity:
    """What one row changes in one party's weighted model, factor by factor."""
    rounding = noise.codec.rounding(noise.size)
    return Sensitivity(
        lipschitz=training.loss.lipschitz,
        C=training.C,
        data_norm=training.data_norm,
        intercept_scaling=training.intercept_scaling,
        row_norm=training.row_norm,
        relation_factor=RELATION_FACTOR["replace_one"],
        exact=training.by_record,
        solver_radius=training.solver_radius,
        rounding=rounding,
        total=add_up(training.by_record, 2.0 * training.solver_radius, rounding),
    )
