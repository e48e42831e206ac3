"""Plans: all steps of a fit, decided by public facts before private values are read."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast.certificates import PrivacyStatement
from dpsvm_fast.exceptions import CertificationError, InvalidTypeError
from dpsvm_fast.mechanisms.rows import compiled_rows

if TYPE_CHECKING:
    from dpsvm_fast.certificates import PrivacyEvent
    from dpsvm_fast.losses import Loss
    from dpsvm_fast.mechanisms.noise import NoisySum
    from dpsvm_fast.mechanisms.rows import FourierFeatures, PublicMap

Array = NDArray[np.float64]
OnStep = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Public facts about the rows of a fit.

    Parameters
    ----------
    n_features : int >= 1 or None
        None if it is not known yet, as for a later step of a Pipeline. Budgets hardly depend on it:
        the noise also covers the rounding of wider sums.
    n_classes : int >= 2
        Number of classes.
    n_samples : int >= 1 or None
        Number of rows, or of persons; None if it is private.
    sparse : bool
    feature_names : tuple of str or None
        Column names, if any.
    unit : {"row", "person"}
        What neighbouring data sets differ by.
    weighted : bool
        Whether rows or classes have weights.
    in_parts : bool
        Whether rows are outside this process, in parts with integer sums.
    """

    n_features: int | None = None
    n_classes: int = 2
    n_samples: int | None = None
    sparse: bool = False
    feature_names: tuple[str, ...] | None = None
    unit: str = "row"
    weighted: bool = False
    in_parts: bool = False

    @property
    def n_columns(self) -> int:
        """Number of features; 1 if it is not known yet."""
        return self.n_features or 1


class Rows(Protocol):
    """Training rows with their labels, in memory, in files or on a cluster.

    Their shape is available before they are read. Everything except ``facts`` and ``published`` is
    private: a plan adds noise to results of these methods before a release.
    """

    n_threads: int
    low_memory: bool
    # True: show the plan.
    verbose: bool
    # Called with the number of steps done, and the total; both are public.
    on_step: OnStep | None
    # For plans whose solver needs all rows at once.
    X: Any
    codes: NDArray[np.int64]
    # The person and the weight of each row; None without persons and weights.
    owners: Any
    # Attributes about them: number and names of the features, the label set.
    published: dict[str, Any]

    @property
    def facts(self) -> Facts:
        """Return the public facts; no values are read if classes are given."""

    def read(self) -> None:
        """Check all values of rows in this process; other rows are checked when they are summed.

        Raises
        ------
        ValueError, TypeError
            The rows are invalid; the message does not quote them.
        """

    @property
    def n_rows(self) -> float:
        """Number of rows; of persons if those are protected; sum of weights, if any."""

    @property
    def n_here(self) -> int:
        """Number of rows in this process; 0 for rows elsewhere, which send sums only."""

    @property
    def n_persons(self) -> int:
        """Number of persons, regardless of weight; without groups each row is a person."""

    def records(self, public: PublicMap, *, averaged: int = 0) -> Any:
        """Return the mapped rows, whose sums are exact.

        With ``averaged``, at most that many rows per person are used, as separate rows weighted by
        their shares.
        """

    def column_moments(
        self, public: PublicMap
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return exact sums of each mapped column, of its squares, and of the weights."""

    @property
    def loss_weights(self) -> NDArray[np.float64] | None:
        """Factors of the rows' losses, summing to at most 1 per person; None if all are 1."""

    def class_counts(self) -> Array:
        """Return exact class counts; the shares of a person's rows sum to at most 1."""

    def balance(self, factors: Array) -> None:
        """Set class weights from released counts."""

    def weigh(self, records: Any) -> None:
        """Weight each row by its class, before training."""

    def lift(self, records: Any, features: FourierFeatures, *, stored: bool) -> None:
        """Replace the records by their random features."""

    def descend(
        self,
        records: Any,
        descent: _core.Descent,
        options: dict[str, Any],
        source: _core.NoiseSource,
        n_steps: int,
        on_step: OnStep | None = None,
    ) -> None:
        """Run descent steps on records; noise is drawn from ``source`` in this process."""


DataclassT = TypeVar("DataclassT")


def filled(kind: type[DataclassT], *owners: object, **more: Any) -> DataclassT:
    """Return a dataclass whose fields are attributes of ``owners`` with the same names.

    ``more`` has precedence, then the first owner, then the next.
    """
    for owner in owners:
        for field in fields(kind):  # type: ignore[arg-type]
            if field.init and field.name not in more and hasattr(owner, field.name):
                more[field.name] = getattr(owner, field.name)
    return kind(**more)


# Copies of what a fit learns that its solver may need at a time.
COPIES = 8


class Plan(ABC):
    """All releases of one fit, as a frozen record of public numbers.

    A subclass has ``run``, which makes the releases, and ``statement``, which returns their privacy
    statement; where a fit may take several paths, the releases tell which one it took.
    """

    # True: the events are those of rows of the last period, of the one before, and so on.
    by_age: ClassVar[bool] = False

    @property
    @abstractmethod
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Events that a ledger records before anything is drawn."""

    @abstractmethod
    def run(self, rows: Rows, source: _core.NoiseSource) -> Any:
        """Make the releases and return only noisy numbers."""

    @abstractmethod
    def summary(self) -> str:
        """Return a one-line summary of public facts."""

    @property
    def weighed_training(self) -> Any:
        """Plan of the training: this plan, unless class counts precede it."""
        return self

    def n_numbers(self, n_rows: int) -> int:
        """Return how many numbers a fit in this process needs room for, at least.

        Copies of what it learns, and what it keeps for each row; 0 if fits inside it check theirs.
        """
        return 0

    def check_rows(self, rows: Rows) -> None:  # noqa: B027
        """Refuse rows that the guarantee does not cover, before anything is spent."""


@dataclass(frozen=True, kw_only=True)
class LinearPlan(Plan):
    """Plan that releases weights of scores linear in the rows or in maps of them.

    Parameters
    ----------
    epsilon : float > 0
    delta : float in [0, 1)
    adjacency : {"add_remove", "replace_one"}
    noise_grid : {"exact", "float"}
        Exact sampling of rounded Gaussians on power-of-two grids, or floating-point noise.
    loss : Loss
        Loss of the training, with its number of classes.
    n_features : int
        Number of features of the mapped rows.
    """

    epsilon: float
    delta: float
    adjacency: str
    noise_grid: str
    loss: Loss
    n_features: int

    def n_numbers(self, n_rows: int) -> int:
        """Return the room for copies of the weights and the constant of every class."""
        return COPIES * self.loss.n_classes * (self.n_features + 1)


@dataclass(frozen=True, kw_only=True)
class SumsPlan(Plan):
    """Plan that releases noisy sums over all rows and nothing else.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism in statements.
    epsilon : float > 0
    delta : float in [0, 1)
    adjacency : {"add_remove", "replace_one"}
    """

    mechanism: str
    epsilon: float
    delta: float
    adjacency: str

    @property
    @abstractmethod
    def sums(self) -> tuple[NoisySum, ...]:
        """All releases, in order."""

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """Events, one per sum."""
        return tuple(one.event for one in self.sums)

    def n_numbers(self, n_rows: int) -> int:
        """Return the room for copies of the released values."""
        return COPIES * sum(one.size for one in self.sums)

    def summary(self) -> str:
        """Return a one-line summary of public facts."""
        return f"{sum(one.size for one in self.sums)} noisy numbers"

    def statement(self, released: Any = None, **occasion: Any) -> PrivacyStatement:
        """Return the statement; ``occasion`` holds the fields about the fit."""
        parts = tuple(one.part for one in self.sums)
        return filled(PrivacyStatement, self, loss="none", parts=parts, **occasion)


# Descent sums dense rows in single precision and in random order, or exactly and as they lie. The
# latter is faster beyond so many rows, unless so many weights take longer than memory: measured
# with 8 to 784 columns.
MANY_ROWS, FEW_WEIGHTS = 1e5, 2500


def sums_exactly(n_rows: float, n_weights: int) -> bool:
    """Return whether exact sums are faster, by public or released numbers."""
    return n_rows > MANY_ROWS and n_weights <= FEW_WEIGHTS


def certified(
    solver: str, X: Any, codes: NDArray[np.int64], *owners: NDArray[Any] | None, **options: Any
) -> Array:
    """Return weights certified by a compiled solver. Private: never store them.

    Parameters
    ----------
    solver : str
        Name of the compiled function.
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    codes : ndarray of shape (n_samples,)
    *owners : ndarray or None
        Factors of the losses, and first rows of persons, if the solver takes them.
    **options
        Options of the solver.

    Raises
    ------
    CertificationError
        ``max_iter`` was reached, or rounding kept the certificate above the tolerance.
    """
    found, _ = getattr(_core, solver)(compiled_rows(X), codes, *owners, **options)
    if found is None:
        raise refused_certificate(limited=options["max_iter"] is not None)
    return np.asarray(found)


def refused_certificate(*, limited: bool) -> CertificationError:
    """Return the error for a missing certificate: nothing is released, and how to avoid it."""
    reason, remedy = (
        ("max_iter: reached before the minimum was certified", "max_iter=None avoids it")
        if limited
        else (
            "tol: the minimum could not be certified in double precision",
            "a larger tol, a smaller C or a larger smoothing avoids it",
        )
    )
    return CertificationError(
        f"{reason}; nothing is released and the budget is spent. This error depends on the data "
        f"and is not covered by the guarantee; {remedy}"
    )


WIDTH = 40


def checked_on_step(on_step: Any, *, verbose: bool) -> OnStep | None:
    """Check a callback for steps; the default draws a progress bar if the fit is verbose."""
    if on_step is None:
        return show_step if verbose else None
    if not callable(on_step):
        raise InvalidTypeError.of("on_step", on_step, "a function or None")
    found: OnStep = on_step
    return found


def show_step(done: int, n_steps: int) -> None:
    """Draw a progress bar in plain text; without a terminal, only the final state."""
    on_terminal = sys.stdout.isatty()
    if on_terminal or done == n_steps:
        filled = WIDTH * done // n_steps
        bar = "#" * filled + "." * (WIDTH - filled)
        start, end = "\r" if on_terminal else "", "\n" if done == n_steps else ""
        sys.stdout.write(f"{start}[{bar}] step {done} of {n_steps}{end}")
        sys.stdout.flush()
