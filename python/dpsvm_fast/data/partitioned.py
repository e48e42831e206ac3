"""Fits on partitions: the estimator's own fit, with rows outside this process."""

from __future__ import annotations

import dataclasses
import os
import secrets
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast import validation as check
from dpsvm_fast.arithmetic import in_usual_arithmetic
from dpsvm_fast.data.executors import (
    Change,
    ClassCounts,
    ClusterExecutor,
    DescentStep,
    Executor,
    LocalExecutor,
    Moments,
    Operation,
    Persons,
    Recipe,
    Share,
    Sums,
)
from dpsvm_fast.data.partitions import Partitions
from dpsvm_fast.estimators.fit import private_fit
from dpsvm_fast.estimators.gradient import GradientPerturbationSVC
from dpsvm_fast.estimators.inputs import COUNT_UNIT, class_factors
from dpsvm_fast.estimators.kernel import PrivateKernelSVC
from dpsvm_fast.estimators.linear import PrivateLinearSVC
from dpsvm_fast.exceptions import InvalidParameterError, InvalidTypeError, PartitionError
from dpsvm_fast.mechanisms.plan import Facts, OnStep, checked_on_step
from dpsvm_fast.mechanisms.rows import FourierFeatures, PublicMap
from dpsvm_fast.preprocessing import (
    PrivateCenter,
    PrivatePCA,
    PrivateStandardScaler,
    PrivateWhitener,
)

# Out-of-core stand-in for X and its records.


Array = NDArray[np.float64]

# Beyond, doubles no longer add rows exactly.
MAX_ROWS = 2**32 - 1
# Persons that are compared at a time: their digests take 64 MiB.
MAX_DIGESTS = 2**22


class ShardedRows:
    """Raw rows of all partitions, as the rows of a fit.

    Nothing is loaded before records or sums are requested, which a fit does after the charge. Rows
    with owners are an exception: they are read to count persons and to check that no person has
    rows in two partitions.

    Parameters
    ----------
    executor : Executor
    partitions : Partitions
    estimator : PrivateEstimator
        With checked parameters.
    on_step : callable or None, default=None
        Called after each step of a descent with the numbers of finished and of all steps.
    """

    # Rows held elsewhere need no memory here.
    n_here = 0
    low_memory = False
    X: Any = None
    codes: Any = None
    loss_weights: Any = None
    owners: Any = None

    def __init__(
        self,
        executor: Executor,
        partitions: Partitions,
        estimator: Any,
        on_step: OnStep | None = None,
    ) -> None:
        classes = estimator.classes if isinstance(estimator, CLASSIFIERS) else None
        class_weight = getattr(estimator, "class_weight", None)
        max_weight = float(getattr(estimator, "max_weight", 1.0))
        self.executor, self._partitions = executor, partitions
        self._recipe = Recipe(
            partitions.n_features,
            partitions.sparse,
            classes,
            owners=partitions.owners,
            max_weight=max_weight,
            counted=estimator.adjacency == "replace_one",
        )
        # True: rows are not counted one by one.
        self._owned = bool(partitions.owners) or max_weight != 1.0
        self._counted, self._n_persons = False, 0
        self._n_rows: float | None = None if self._owned else partitions.n_rows
        self._records: ShardedRecords | None = None
        self.n_threads: int = estimator.n_threads
        self.verbose = bool(getattr(estimator, "verbose", False))
        self.on_step = checked_on_step(on_step, verbose=self.verbose)
        self._factors: Array | None = None
        if isinstance(class_weight, dict) and classes is not None:
            self._factors = class_factors(class_weight, classes)
        self.published: dict[str, Any] = {"n_features_in_": partitions.n_features}
        if partitions.feature_names is not None:
            self.published["feature_names_in_"] = np.array(partitions.feature_names, dtype=object)
        if classes is not None:
            self.published["classes_"] = classes

    @property
    def facts(self) -> Facts:
        """Return the public facts; a public number of persons must be counted."""
        recipe = self._recipe
        if recipe.counted:
            self.read()
        return Facts(
            n_features=recipe.n_features,
            n_classes=2 if recipe.classes is None else recipe.classes.size,
            n_samples=int(self.n_rows) if recipe.counted else None,
            sparse=recipe.sparse,
            feature_names=self._partitions.feature_names,
            unit="person" if "groups" in recipe.owners else "row",
            weighted="sample_weight" in recipe.owners,
            in_parts=True,
        )

    def read(self) -> None:
        """Read persons and weights, if any; tasks check everything else that they load.

        Raises
        ------
        InvalidParameterError
            A person has rows in two partitions. Nothing was spent.
        PartitionError
            A partition cannot be loaded or is not as declared. Nothing was spent.
        """
        if self._counted or not self._owned:
            return
        grouped, key = "groups" in self._recipe.owners, secrets.token_bytes(32)
        most = self._partitions.n_rows
        if not most or not grouped:
            most = self.summed(self._recipe, Persons(key, 0, 0), spent=False).n_persons
        n_parts = -(-most // MAX_DIGESTS)
        for part in range(n_parts if grouped else 0):
            share = self.summed(self._recipe, Persons(key, part, n_parts), spent=False)
            digests = np.sort(np.concatenate(share.digests))
            if (digests[1:] == digests[:-1]).any():
                raise InvalidParameterError(
                    "groups: got a person in several partitions, expected one; use "
                    "Partitions.from_arrays, or sort rows by person before splitting. Nothing was "
                    "spent"
                )

    @property
    def n_rows(self) -> float:
        """Number of rows, or of persons; if it is private, the sum of their weights.

        Raises
        ------
        InvalidParameterError
            The number is needed before the budget is spent, but is not known.
        """
        if self._n_rows is None:
            if self._records is None:
                raise InvalidParameterError(
                    "n_rows: got None, expected the number of rows (Partitions.from_loaders(..., "
                    "n_rows=...)): adjacency='replace_one' and accountant='last_iterate' need it "
                    "before the budget is spent"
                )
            self.summed(self._records.recipe, Sums())
        assert self._n_rows is not None
        return self._n_persons if self._recipe.counted and self._owned else self._n_rows

    @property
    def n_persons(self) -> int:
        """Number of persons, regardless of weight; without groups each row is a person."""
        n_rows = self.n_rows
        return self._n_persons if self._owned else int(n_rows)

    def class_counts(self) -> Array:
        """Return exact class counts; the shares of a person's rows sum to at most 1."""
        (units,) = self.summed(self._recipe, ClassCounts(self.facts.n_classes)).parts
        return np.asarray(units * COUNT_UNIT)

    def balance(self, factors: Array) -> None:
        """Set class weights from released counts."""
        self._factors = factors

    def weigh(self, records: ShardedRecords) -> None:
        """Weight each row by its class."""
        if self._factors is not None:
            records.change(Change("weigh", self._factors))

    def records(self, public: PublicMap, *, averaged: int = 0) -> ShardedRecords:
        """Return an out-of-core stand-in for the records of the mapped rows."""
        known: Any = {"public": public, "n_classes": self.facts.n_classes, "averaged": averaged}
        recipe = dataclasses.replace(self._recipe, **known)
        self._records = ShardedRecords(self, recipe)
        return self._records

    def column_moments(self, public: PublicMap) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return exact sums of the entries of bounded columns, of their squares, and of weights."""
        assert public.offset is not None
        assert public.scale is not None
        moments = Moments(public.offset, public.scale)
        first, second, weight = self.summed(self._recipe, moments).parts
        return first, second, weight

    def lift(self, records: ShardedRecords, features: FourierFeatures, *, stored: bool) -> None:
        """Replace records by their random features, computed where the rows are."""
        records.change(Change("lift", features, stored))

    def descend(
        self,
        records: ShardedRecords,
        descent: _core.Descent,
        options: dict[str, Any],
        source: _core.NoiseSource,
        n_steps: int,
        on_step: OnStep | None = None,
    ) -> None:
        """Run steps of a descent: sums are computed on the workers, noise is added in this process.

        Parameters
        ----------
        records : ShardedRecords
        descent : Descent
            Descent, whose state is advanced.
        options : dict
            Settings of the descent.
        source : NoiseSource
            Noise source, which never leaves this process.
        n_steps : int
        on_step : callable, optional
            Callback for steps.
        """
        # Batches are drawn for each partition, sums over all rows are one.
        together = options["sampling_rate"] == 1.0
        records.recipe = self.executor.stored(records.recipe, together=together)
        run = _core.ShardedRun(descent, source, n_steps)
        for step in range(n_steps):
            operation = DescentStep(options, run.weights, run.key, step)
            (total,) = self.summed(records.recipe, operation).parts
            run.advance(total)
            if on_step is not None:
                on_step(step + 1, n_steps)

    def summed(self, recipe: Recipe, operation: Operation, *, spent: bool = True) -> Share:
        """Return exact sums over all partitions. Private.

        Partitions that changed, and invalid numbers of rows, are refused; the message says whether
        the budget is ``spent``.
        """
        share = self.executor.run(recipe, operation)
        if share.failure is not None:
            raise PartitionError(*share.failure, spent=spent)
        expected = ""
        if share.n_rows == 0 or share.n_persons > MAX_ROWS:
            expected = f"1 to {MAX_ROWS} rows in all"
        elif self._n_rows is not None and share.n_rows != self._n_rows:
            known = "before" if self._counted else "declared"
            expected = f"as many rows as {known}; a loader must return the same rows at every call"
        if expected:
            budget = "The budget is spent" if spent else "Nothing was spent"
            raise InvalidParameterError(f"partitions: expected {expected}. {budget}")
        self._n_rows, self._n_persons, self._counted = share.n_rows, share.n_persons, True
        return share


class ShardedRecords:
    """Records of all partitions, with the methods of ``_core.Records`` that fits use.

    Sums are exact integers, so they are bit-identical to those of records in one process.

    Parameters
    ----------
    rows : ShardedRows
    recipe : Recipe
        Recipe with a map.
    """

    def __init__(self, rows: ShardedRows, recipe: Recipe) -> None:
        self._rows, self.recipe = rows, recipe

    def sums(self, n_threads: int) -> Array:
        """Return the sum of the rows."""
        return np.asarray(self._rows.summed(self.recipe, Sums(("sums",))).parts[0])

    def gram(self, n_threads: int) -> Array:
        """Return the sum of the outer products of rows with themselves."""
        (parts,) = self._rows.summed(self.recipe, Sums(("gram_parts",))).parts
        return _core.Records.gram_from_parts(parts)

    def centre(self, point: Array, n_threads: int) -> None:
        """Subtract a released point from the rows."""
        self.change(Change("centre", point))

    def transform(self, matrix: Array, n_threads: int) -> None:
        """Multiply the rows by a released matrix."""
        self.change(Change("transform", matrix))

    def change(self, change: Change) -> None:
        """Apply another map to the rows."""
        changes = (*self.recipe.changes, change)
        self.recipe = dataclasses.replace(self.recipe, changes=changes)


CLASSIFIERS = (PrivateLinearSVC, PrivateKernelSVC, GradientPerturbationSVC)

TRANSFORMERS = (PrivatePCA, PrivateCenter, PrivateWhitener, PrivateStandardScaler)

WHOLE = (
    "its solver needs all rows in one process. Use gradient descent (PrivateLinearSVC, "
    "PrivateKernelSVC, GradientPerturbationSVC), or average models of parts (dpsvm_fast.federated)"
)

Fitted = TypeVar("Fitted")


@in_usual_arithmetic
def fit(
    estimator: Fitted,
    partitions: Partitions,
    *,
    client: Any = None,
    n_threads: int | None = None,
    resident: bool | int = False,
    scratch: str | os.PathLike[str] | None = None,
    on_step: OnStep | None = None,
) -> Fitted:
    """Fit an estimator on partitions; it releases what ``estimator.fit`` on all rows would.

    Parameters
    ----------
    estimator : estimator
        `PrivateLinearSVC` or `PrivateKernelSVC` with gradient training, `GradientPerturbationSVC`,
        `PrivatePCA`, `PrivateCenter`, `PrivateWhitener` or `PrivateStandardScaler`.
    partitions : Partitions
    client : distributed.Client or None, default=None
        Cluster that loads and sums; None uses this process, one partition after another.
    n_threads : int or None, default=None
        Number of threads within one partition. None takes the estimator's number in this process
        and 1 in a worker, which runs several tasks at a time. Never changes the result.
    resident : bool or int, default=False
        Whether records are kept in memory after the first sum, packed to 4 bytes per number (8 per
        nonzero entry of sparse rows); each worker keeps those of its partitions. If False, every
        partition is loaded for every sum, of which a descent makes a hundred or more, and a thread
        holds one partition at a time. In this process an int is accepted too: the number of
        partitions to keep. Never changes the result.
    scratch : str, path or None, default=None
        Empty folder for a descent on dense rows, in this process only and not for random features.
        Mapped rows of partitions that are not resident are written there once, 4 bytes per number,
        instead of being mapped again for every step; up to four partitions are read into memory at
        a time. The files contain private rows, and the caller must remove them. With a folder all
        rows, also resident ones, are rounded differently: weights change by up to about 1e-5 of the
        largest. So the choice whether to use a folder must not depend on private rows or their
        number.
    on_step : callable or None, default=None
        Called in this thread after each step of a descent with the numbers of finished and of all
        steps, both public, for a progress bar.

    Returns
    -------
    estimator
        The given estimator, fitted.

    Raises
    ------
    TypeError, InvalidParameterError
        A parameter is outside its range, or the estimator cannot be fitted on partitions; nothing
        was loaded or spent. Or a person has rows in two partitions; nothing was spent.
    BudgetExceededError
        The ledger refuses. Nothing was loaded or spent.
    ClusterError
        The cluster has no workers, or workers of different kinds; nothing was spent. Or it lost too
        many workers; then the budget is spent.
    PartitionError
        A partition could not be loaded, or is not finite rows of ``n_features`` numbers with labels
        in ``classes``. The budget is spent and nothing is released; but with persons or weights
        nothing is spent if the first load finds this.
    KeyboardInterrupt
        Tasks are cancelled; the budget is spent and nothing is released.

    Notes
    -----
    Guarantees: those of ``estimator.fit`` for the union of all partitions, with the same noise
    distribution. The noise is drawn once, in this process. The result of a task depends on its
    arguments only, so a cluster may repeat it. The budget is charged before any partition is
    loaded, because loaders may read whole files. Only rows with persons or weights are loaded once
    before the charge, to refuse a person with rows in two partitions. Rows are checked and clipped
    by the task that loads them.

    Released numbers are bit-identical for every partitioning and executor, because exact sums do
    not depend on their order. With the same noise they equal those of ``estimator.fit`` for
    centres, whitening, components and scalers, and for full-batch descents on sparse rows. On dense
    rows ``estimator.fit`` sums in single precision, which changes a noisy sum by a relative 1e-7.
    Descents with ``sampling_rate < 1`` draw different batches from the same distribution.

    With a cluster, its machines and connections are trusted, as the statement says.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast import PrivateLinearSVC
    >>> from dpsvm_fast.data import Partitions, fit
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 5))
    >>> parts = Partitions.from_arrays(X, (X[:, 0] > 0).astype(int), rows_per_partition=250)
    >>> model = fit(PrivateLinearSVC(1.0, classes=[0, 1]), parts, resident=True)
    >>> model.coef_.shape
    (1, 5)
    """
    _check_kind(estimator, partitions)
    if client is None and not isinstance(resident, (bool, np.bool_)):
        kept = check.check_integer("resident", resident, 0)
    else:
        kept = len(partitions) if check.check_bool("resident", resident) else 0
    folder = None if scratch is None else Path(check.check_path("scratch", scratch))
    if folder is not None and client is not None:
        raise InvalidParameterError("scratch: got a folder with a client, expected None")
    whole: Any = estimator
    # Before anything else: an estimator is fitted as a whole or not at all.
    whole._forget()
    checked: Any = whole.checked()
    _check_settings(checked)
    threads = check.check_n_threads("n_threads", 1 if n_threads is None else n_threads)
    executor: Executor
    if client is None:
        own = checked.n_threads if n_threads is None else threads
        executor = LocalExecutor(partitions.loaders, own, resident=kept, scratch=folder)
    else:
        executor = ClusterExecutor(client, partitions.loaders, threads, resident=kept > 0)
    try:
        found = private_fit(checked, ShardedRows(executor, partitions, checked, on_step))
    finally:
        executor.close()
    occasion = dataclasses.replace(found["privacy_"].occasion, cluster=executor.cluster)
    statement = dataclasses.replace(found["privacy_"], occasion=occasion)
    vars(estimator).update(found | {"privacy_": statement})
    return estimator


def sums_suffice(estimator: Any) -> bool:
    """Return whether an estimator can learn from sums over parts of the rows."""
    if not isinstance(estimator, CLASSIFIERS):
        return isinstance(estimator, TRANSFORMERS)
    mechanism = getattr(estimator, "mechanism", "gradient")
    return mechanism == "gradient" or (mechanism == "auto" and estimator.delta > 0.0)


def _check_kind(estimator: object, partitions: object) -> None:
    """Refuse estimators that cannot be fitted from sums over partitions."""
    known = (*CLASSIFIERS, *TRANSFORMERS)
    if not isinstance(estimator, known):
        private = type(estimator).__module__.startswith("dpsvm_fast.estimators")
        reason = f"expected one of {', '.join(kind.__name__ for kind in known)}"
        reason = WHOLE if private else reason
        raise InvalidTypeError(f"estimator: got {type(estimator).__name__}; {reason}")
    accepted = "a Partitions, for example Partitions.from_arrays(X, y)"
    given: Partitions = check.check_type("partitions", partitions, Partitions, accepted)
    if isinstance(estimator, CLASSIFIERS) and not given.labelled:
        raise InvalidParameterError("partitions: got rows without labels, expected labels")


def _check_settings(estimator: Any) -> None:
    """Refuse settings that need all rows at once."""
    if not isinstance(estimator, CLASSIFIERS):
        return
    if estimator.classes is None:
        raise InvalidParameterError(
            "classes: got None, expected the public label set, which is not read from partitions"
        )
    if not sums_suffice(estimator):
        got = estimator.mechanism
        raise InvalidParameterError(f"mechanism: got {got!r}, expected 'gradient': {WHOLE}")
