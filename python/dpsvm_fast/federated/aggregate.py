"""From sums to a classifier: arithmetic on released numbers, without randomness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.estimators._training_data import public_classes
from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated._contributions import ROOT_TWO, matrix_of
from dpsvm_fast.federated._parameters import loss_of
from dpsvm_fast.federated._statement import statement_of
from dpsvm_fast.federated.classifier import FederatedLinearSVC
from dpsvm_fast.federated.encoding import whole_numbers
from dpsvm_fast.federated.errors import InconsistentSumError, SecureSumAborted
from dpsvm_fast.federated.plans import RoundPlan
from dpsvm_fast.federated.secsum import SumResult
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["finalize", "mean_of", "public_state"]

Array = NDArray[np.float64]


def checked_sum(spec: FederatedSpec, plan: RoundPlan, result: SumResult) -> tuple[Array, int]:
    """The sum of contributions in their own unit, and the number of records behind it.

    Raises
    ------
    SecureSumAborted
        Fewer parties than the guarantee asks for.
    InconsistentSumError
        Another length, or numbers that no such parties can have sent.
    """
    survivors = result.survivors
    if survivors < spec.survivors_needed:
        raise SecureSumAborted("finalize", survivors, spec.survivors_needed)
    total = plan.codec.wrap(whole_numbers(result.total))
    if total.size != plan.length or survivors > spec.n_users:
        raise InconsistentSumError("sum: another length than was agreed on, or too many parties")
    n_records = int(total[-2])
    if spec.params["weighting"] == "records":
        least, most = spec.params["min_records"], spec.params["max_records"]
    else:
        least = most = 0
    if total[-1] != survivors or not least * survivors <= n_records <= most * survivors:
        raise InconsistentSumError(
            "sum: its check numbers are wrong: a party with another version of the protocol, or a "
            "sum of other parties than said"
        )
    return plan.codec.decode_sum(total[:-2], survivors), n_records


def mean_of(spec: FederatedSpec, plan: RoundPlan, result: SumResult) -> Array:
    """Average of what parties contributed, by their weights: divided once."""
    total, n_records = checked_sum(spec, plan, result)
    return total / float(n_records if n_records else result.survivors)


def public_state(spec: FederatedSpec, results: Mapping[str, SumResult]) -> Array | None:
    """What the next round takes from the sums so far: post-processing of released numbers.

    Parameters
    ----------
    spec : FederatedSpec
    results : mapping of round names to SumResult
        Of all rounds so far.

    Returns
    -------
    ndarray of shape (n_components, n_features), or None
        Components, before the second round of ``fed_dpdr``.

    Raises
    ------
    SecureSumAborted, InconsistentSumError
        A sum is of too few parties, or no sum of what parties may contribute.

    Examples
    --------
    >>> from dpsvm_fast.federated import FederatedSpec, public_state
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> public_state(spec, {}) is None  # its one round takes nothing
    True
    """
    first = spec.rounds[0]
    if spec.algorithm == "dp_helmet" or first.name not in results:
        return None
    k, d = spec.params["n_components"], spec.n_features
    if first.name == "gram":
        total, _ = checked_sum(spec, first, results[first.name])
        return np.asarray(_core.symmetric_eigen(matrix_of(total, d, ROOT_TWO), k)[1])
    mean = mean_of(spec, first, results[first.name])
    if spec.params["aggregation"] == "eigenvectors":
        return mean.reshape(k, d)
    return np.asarray(_core.symmetric_eigen(matrix_of(mean, d, 1.0), k)[1])


def finalize(
    results: Mapping[str, SumResult],
    spec: FederatedSpec,
    *,
    trust: str = "secure_sum",
    random_source: str = "operating_system",
    not_private_reasons: tuple[str, ...] = (),
) -> FederatedLinearSVC:
    """The classifier out of the sums of all rounds.

    Parameters
    ----------
    results : mapping of round names to SumResult
    spec : FederatedSpec
    trust : {"secure_sum", "trusted_curator"}
        How the sums were made.
    random_source : {"operating_system", "seed"}
    not_private_reasons : tuple of str

    Returns
    -------
    FederatedLinearSVC
        The same for the same sums, to the last bit.

    Raises
    ------
    InvalidParameterError
        A round is missing.
    SecureSumAborted, InconsistentSumError
        As :func:`public_state`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.federated import FederatedSpec, TrustedSum, finalize, local_update
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(20, 50, 2))
    >>> vectors = [
    ...     local_update(own, (own[:, 0] > 0).astype(int), spec, "model").vector for own in X
    ... ]
    >>> total = TrustedSum(spec.survivors_needed).sum(vectors)
    >>> finalize({"model": total}, spec, trust="trusted_curator").coef_.shape
    (1, 2)
    """
    missing = sorted({part.name for part in spec.rounds} - set(results))
    if missing:
        raise InvalidParameterError(f"results: no sum of rounds {missing}")
    plan = spec.round("model")
    total, n_records = checked_sum(spec, plan, results["model"])
    survivors = results["model"].survivors
    loss = loss_of(spec.params, len(spec.classes))
    weights = (total / float(n_records if n_records else survivors)).reshape(loss.n_scores, -1)
    facts: dict[str, Any] = {}
    components = public_state(spec, results)
    if components is not None:
        facts["components_"] = components
        k = components.shape[0]
        weights = np.hstack([weights[:, :k] @ components, weights[:, k:]])
    statement = statement_of(spec, trust, random_source, not_private_reasons)
    return FederatedLinearSVC(spec)._released(
        weights,
        spec.params["intercept_scaling"],
        classes_=public_classes(list(spec.classes)),
        n_features_in_=spec.n_features,
        n_survivors_=survivors,
        n_records_=n_records or None,
        privacy_=statement,
        _fitted_loss=loss,
        **facts,
    )
