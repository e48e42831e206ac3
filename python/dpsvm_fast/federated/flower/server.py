"""The server app: waits for the parties, runs the rounds, hands out the classifier."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Context
from flwr.serverapp import ServerApp
from numpy.typing import NDArray

from dpsvm_fast._validation import check_integer, check_non_negative, check_positive
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.aggregate import finalize, public_state
from dpsvm_fast.federated.classifier import FederatedLinearSVC
from dpsvm_fast.federated.errors import SecureSumAborted
from dpsvm_fast.federated.flower._round import sum_of_parties
from dpsvm_fast.federated.flower.harden import harden
from dpsvm_fast.federated.flower.terms import terms_of_rounds
from dpsvm_fast.federated.secsum import SumResult
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["make_server_app", "run_secure_round", "run_training"]

Seconds: TypeAlias = "float | Callable[[Context], float]"

# Between two looks at who is there.
POLL_SECONDS = 1.0


def make_server_app(
    spec: FederatedSpec | Callable[[Context], FederatedSpec],
    *,
    on_result: Callable[[FederatedLinearSVC, Context], None],
    timeout: Seconds = 120.0,
    wait: Seconds = 300.0,
    attempts: int = 2,
) -> Any:
    """Make the server app of a training.

    Parameters
    ----------
    spec : FederatedSpec or callable
        Or a function of Flower's context that reads it. Parties with another one refuse.
    on_result : callable
        Takes the fitted classifier and Flower's context, and keeps it somewhere.
    timeout : float or callable, default=120.0
        Seconds to wait in every stage of a secure sum.
    wait : float or callable, default=300.0
        Seconds to wait for all parties; afterwards those who are there have to be enough.
    attempts : int, default=2
        How often to begin a round while no party has sent its vector.

    Returns
    -------
    flwr.serverapp.ServerApp
        Raises out of its main function whatever goes wrong, so that Flower reports the run as
        failed: :class:`SecureSumAborted` with stage and number of parties left,
        ``InconsistentSumError`` for a sum that is none.

    Raises
    ------
    HardeningError
        Flower's secure aggregation cannot be made safe here.
    """
    harden()
    check_integer("attempts", attempts, 1)
    app = ServerApp()

    def main(grid: Any, context: Context) -> None:
        agreed = spec if isinstance(spec, FederatedSpec) else spec(context)
        pause = check_non_negative("wait", wait(context) if callable(wait) else wait)
        seconds = check_positive("timeout", timeout(context) if callable(timeout) else timeout)
        parties = _parties(grid, agreed, pause)
        model = run_training(grid, agreed, parties, timeout=seconds, attempts=attempts)
        on_result(model, context)

    app.main()(main)
    return app


def run_training(
    grid: Any,
    spec: FederatedSpec,
    node_ids: Sequence[int],
    *,
    timeout: float = 120.0,
    attempts: int = 2,
) -> FederatedLinearSVC:
    """Run all rounds of a training.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    spec : FederatedSpec
    node_ids : sequence of int
        Parties; those that vanish in one round are asked again in the next.
    timeout, attempts
        As of :func:`run_secure_round`.

    Returns
    -------
    FederatedLinearSVC
        With its statement, ``privacy_``.

    Raises
    ------
    SecureSumAborted, InconsistentSumError, HardeningError
        As :func:`run_secure_round`.
    """
    results: dict[str, SumResult] = {}
    for plan in spec.rounds:
        results[plan.name] = run_secure_round(
            grid,
            spec,
            plan.name,
            node_ids,
            public=public_state(spec, results),
            timeout=timeout,
            attempts=attempts,
        )
    return finalize(results, spec)


def run_secure_round(
    grid: Any,
    spec: FederatedSpec,
    round_name: str,
    node_ids: Sequence[int],
    *,
    public: NDArray[np.float64] | None = None,
    timeout: float = 120.0,
    attempts: int = 2,
) -> SumResult:
    """Run one round of a training: one secure sum.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    spec : FederatedSpec
    round_name : str
        A name of ``spec.rounds``.
    node_ids : sequence of int
        Parties that are asked.
    public : ndarray of float64 or None
        What the round takes from earlier ones; goes to every party.
    timeout : float, default=120.0
        Seconds to wait in each stage.
    attempts : int, default=2
        How often to begin before any party has sent its vector.

    Returns
    -------
    SumResult
        Exact integers, and the number of parties in them.

    Raises
    ------
    SecureSumAborted
        Too few parties were left; never a plain sum instead.
    InconsistentSumError
        The numbers are no sum of the parties that were counted.
    HardeningError
        Flower's secure aggregation cannot be made safe here.
    """
    terms = terms_of_rounds(spec)
    if round_name not in terms:
        accepted = "one of " + ", ".join(map(repr, terms))
        raise InvalidParameterError.of("round_name", got=round_name, accepted=accepted)
    return sum_of_parties(
        grid, terms[round_name], node_ids, public=public, timeout=timeout, attempts=attempts
    )


def _parties(grid: Any, spec: FederatedSpec, wait: float) -> list[int]:
    """Wait for the parties."""
    end = time.monotonic() + wait
    while True:
        present = sorted(grid.get_node_ids())
        if len(present) >= spec.n_users or time.monotonic() >= end:
            break
        time.sleep(min(POLL_SECONDS, max(0.0, end - time.monotonic())))
    if len(present) > spec.n_users:
        raise InvalidParameterError.of(
            "parties", got=len(present), accepted=f"at most {spec.n_users}, as agreed on"
        )
    if len(present) < spec.survivors_needed:
        raise SecureSumAborted("waiting", len(present), spec.survivors_needed)
    return present
