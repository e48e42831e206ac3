"""``dpsvm-fast fit``, ``tune`` and ``evaluate``: what spends on the rows of a file."""

from __future__ import annotations

import dataclasses
import difflib
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from dpsvm_fast import validation as check
from dpsvm_fast.certificates import PrivacyEvent
from dpsvm_fast.certificates.events import STOPPING_LAWS
from dpsvm_fast.certificates.statement import CHOICES, STRATEGIES
from dpsvm_fast.cli.budget import opened_budget
from dpsvm_fast.cli.files import Draft, certificate_text, reserved
from dpsvm_fast.cli.predict import (
    decorated,
    format_option,
    model_and_table,
    model_options,
    person_option,
)
from dpsvm_fast.cli.screen import (
    FAILED,
    FILE,
    FILE_OR_STREAM,
    INTERRUPTED,
    OVERSPENT,
    CommandError,
    OneOf,
    Real,
    Screen,
    Whole,
    example,
    note,
    pass_screen,
    typed,
    unexpected,
)
from dpsvm_fast.data import Partitions, Table, TableSchema, open_table, partitioned
from dpsvm_fast.data.schema import ROLES, read_record
from dpsvm_fast.estimators import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateGaussianMarginClassifier,
    PrivateKernelSVC,
    PrivateLinearSVC,
)
from dpsvm_fast.estimators.fit import private_fit
from dpsvm_fast.exceptions import (
    BudgetExceededError,
    CertificationError,
    InvalidParameterError,
    LedgerError,
    PartitionError,
    TableError,
)
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.mechanisms.pipeline import TRAINERS as MECHANISMS_OF_PIPELINES
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.mechanisms.rows import KERNELS as FOURIER_KERNELS
from dpsvm_fast.metrics import TABLES, EvaluatedRows, Evaluation, PrivateEvaluation
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.model_selection.search import RESERVED
from dpsvm_fast.persist import save_model
from dpsvm_fast.pipelines import planned_events, takes
from dpsvm_fast.preprocessing import PublicImageFeatures, PublicScaler, PublicSplines
from dpsvm_fast.validation import ADJACENCIES

# The estimators that the command line trains, and how each takes its rows.


PIPELINES: dict[str, Any] = {"linear": PrivateLinearSVC, "kernel": PrivateKernelSVC}

TRAINERS: dict[str, Any] = {
    "output": OutputPerturbationSVC,
    "objective": ObjectivePerturbationSVC,
    "gradient": GradientPerturbationSVC,
    "gaussian": PrivateGaussianMarginClassifier,
}

MODELS = (*PIPELINES, *TRAINERS)
# Models with a weight for every pair of features.
DENSE_ONLY = ("gaussian",)

MECHANISMS = ("auto", *MECHANISMS_OF_PIPELINES)

KERNELS = ("auto", *FOURIER_KERNELS, "linear")
# Of a trainer, behind its public scaling.
STEP = "svc"
# The public map before it.
MAP = "map"


def made(
    model: str,
    mechanism: str | None,
    schema: Any,
    *,
    kernel: str | None = None,
    splines: int | None = None,
    image: tuple[int, ...] | None = None,
    **settings: Any,
) -> Any:
    """An estimator for rows of a schema.

    Parameters
    ----------
    model : {"linear", "kernel", "output", "objective", "gradient", "gaussian"}
    mechanism : str or None
        Of "linear" and "kernel" alone.
    schema : TableSchema
        With classes, and a name for every column.
    kernel : str or None, default=None
        Of "kernel" alone.
    splines : int or None, default=None
        Number of knots of each column with bounds.
    image : tuple of int or None, default=None
        Height, width and perhaps channels of the image that a row is.
    **settings
        Parameters that all estimators have.

    Returns
    -------
    estimator
        It maps rows by the schema's public bounds before anything else.

    Raises
    ------
    CommandError
        ``mechanism`` for a model that is one already, ``kernel`` for one that has none; two maps.
    """
    classes = list(schema.classes)
    mapping = _public_map(schema, splines, image, model)
    kind = (PIPELINES | TRAINERS)[model]
    for name in ("class_weight", "max_weight"):
        if settings.get(name) is None:
            settings.pop(name, None)
        elif name not in kind().get_params(deep=False):
            raise CommandError(
                f"--{name.replace('_', '-')}: rows have no weights with --model {model}; take "
                "--model linear"
            )
    if kernel is not None and model != "kernel":
        raise CommandError(
            f"--kernel: got {kernel!r} with --model {model}, expected --model kernel"
        )
    if model in PIPELINES:
        given = {"mechanism": mechanism, "kernel": kernel}
        chosen = {name: value for name, value in given.items() if value is not None}
        bounds = schema.bounds if mapping is None else (None if splines is None else (0, 1))
        svc = PIPELINES[model](bounds=bounds, classes=classes, **chosen, **settings)
        return svc if mapping is None else Pipeline([(MAP, mapping), (STEP, svc)])
    if mechanism is not None:
        raise CommandError(
            f"--mechanism: got {mechanism!r} with --model {model}, expected it left out, or "
            "--model linear or kernel"
        )
    trainer = TRAINERS[model]
    if settings.get("delta") == 0.0 and model != "gradient":
        settings["noise"] = "gamma"
    first = ("scaler", PublicScaler(schema.bounds)) if mapping is None else (MAP, mapping)
    svc = trainer(classes=classes, **settings)
    return Pipeline([first, ("normalizer", Normalizer()), (STEP, svc)])


def _public_map(
    schema: Any, splines: int | None, image: tuple[int, ...] | None, model: str
) -> PublicSplines | PublicImageFeatures | None:
    """The public map of rows that is asked for.

    Raises
    ------
    CommandError
        Two are, or the schema has another number of features than an image has pixels.
    """
    if splines is not None and image is not None:
        raise CommandError("--splines and --image: expected one of them")
    if image is not None:
        if math.prod(image) != schema.n_features:
            raise CommandError(
                f"--image: got {'x'.join(map(str, image))}, expected as many pixels as the schema "
                f"has features, {schema.n_features}"
            )
        return PublicImageFeatures(image)
    if splines is None:
        return None
    columns = [column for column in schema.features for _ in range(column.width)]
    # Of numbers; other columns are left as they are.
    knots = [splines if column.is_number else 1 for column in columns]
    log = [place for place, column in enumerate(columns) if column.log]
    dense = model in DENSE_ONLY
    return PublicSplines(schema.bounds, knots, log=log, sparse_output=not dense)


def trainer_of(estimator: Any) -> Any:
    """The estimator that makes the release; it has the statement once it is fitted."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def needs_all_rows(estimator: Any) -> bool:
    """Return whether training passes over all rows repeatedly."""
    trainer = trainer_of(estimator)
    if not isinstance(trainer, (PrivateLinearSVC, PrivateKernelSVC)):
        return not isinstance(trainer, GradientPerturbationSVC)
    pure = trainer.mechanism == "auto" and trainer.delta == 0.0
    return pure or trainer.mechanism not in ("auto", "gradient")


# Options of commands that read data, and what they stand for.


# Options that name files to be read, of fit and of tune.
INPUTS = ("data", "schema", "budget", "test_data", "grid_file")

UNITS = {"": 1, "B": 1}

for _power, _letter in enumerate("KMGT", start=1):
    UNITS |= {f"{_letter}B": 1000**_power, f"{_letter}IB": 1024**_power, _letter: 1024**_power}

DECLARE_CLASSES = (
    "{path}: the classes are not declared, and are not read from private data; write a line such "
    'as classes = ["no", "yes"] at the top of the file'
)


class MemorySize(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes with a unit: 512MiB, 2GB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number and its unit."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([A-Za-z]*)\s*", str(value))
        unit = UNITS.get(found[2].upper()) if found else None
        if found is None or unit is None or float(found[1]) <= 0.0:
            self.fail(f"got {str(value)!r}, expected a size such as 512MiB or 2GB", param, ctx)
        return int(float(found[1]) * unit)


class Shape(click.ParamType):  # type: ignore[type-arg]
    """Height, width and perhaps channels of an image: 28x28."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read two or three whole numbers."""
        found = re.fullmatch(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}", str(value))
        if found is None:
            self.fail(f"got {str(value)!r}, expected HEIGHTxWIDTH such as 28x28", param, ctx)
        return tuple(map(int, str(value).split("x")))


def map_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that trains the options of public maps of rows."""
    options = (
        click.option(
            "--splines",
            type=Whole(2),
            metavar="K",
            help="Make K piecewise linear functions of each column with bounds.",
        ),
        click.option(
            "--image",
            type=Shape(),
            metavar="HxW",
            help="Rows are images, HxW or HxWxC: train on directions of edges.",
        ),
    )
    return decorated(function, options)


def table_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command DATA and the options that say how it is read."""
    options = (
        click.argument("data", type=FILE_OR_STREAM, metavar="DATA"),
        click.option(
            "--schema",
            type=FILE,
            metavar="FILE",
            help="TOML or JSON: columns with public bounds or categories, labels, classes.",
        ),
        click.option(
            "--target", metavar="COLUMN", help="Column of the labels, if FILE does not say it."
        ),
        person_option,
        click.option("--weight-column", "weight", metavar="COLUMN", help="Weights of rows."),
        click.option(
            "--max-weight",
            type=Real(0.0),
            metavar="W",
            help="Public; larger ones are cut, and this one counts as one row.  [default: 1]",
        ),
        click.option(
            "--class-weight",
            metavar="CLASS=W,...",
            help="Public weights of classes, others 1; or balanced, by counts that are paid for.",
        ),
        format_option,
        click.option(
            "--max-memory",
            type=MemorySize(),
            default="2GiB",
            show_default=True,
            metavar="SIZE",
            help="Memory of the whole program; what does not fit goes to a temporary folder.",
        ),
        click.option(
            "--temp", type=FILE, metavar="DIR", help="Where that folder is made.  [default: TMPDIR]"
        ),
    )
    return decorated(function, options)


def budget_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say what may be spent, and where that is written down."""
    options = (
        click.option("--epsilon", type=Real(0.0), metavar="E", help="Privacy parameter."),
        click.option(
            "--delta",
            type=Real(0.0, includes_low=True),
            default=1e-6,
            metavar="D",
            help="Far below one over the number of rows; 0 is pure.  [default: 1e-6]",
        ),
        click.option(
            "--adjacency",
            type=OneOf(ADJACENCIES),
            help="What one record may change.  [default: that of the budget, or add_remove]",
        ),
        click.option(
            "--budget", type=FILE, metavar="FILE", help="Spend from a file of 'budget create'."
        ),
        click.option(
            "--periods",
            metavar="NAMES",
            help="Of the budget: those of the rows, with commas; only they are charged.",
        ),
        click.option(
            "--seed", "random_state", type=Whole(0), help="Repeatable noise: NOT PRIVATE."
        ),
        click.option("--threads", "n_threads", type=Whole(1), help="[default: all cores]"),
    )
    return decorated(function, options)


def model_file_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command that trains the options that name its results."""
    options = (
        click.option("-o", "--output", type=FILE, metavar="FILE", help="The model, JSON."),
        click.option("--certificate", type=FILE, metavar="FILE", help="Its statement, for verify."),
        click.option(
            "--test-data",
            type=FILE,
            metavar="FILE",
            help="PUBLIC rows to measure accuracy on: what is printed about them is not protected.",
        ),
        click.option("--force", is_flag=True, help="Replace files that exist."),
    )
    return decorated(function, options)


def declared_schema(options: dict[str, Any]) -> TableSchema:
    """The schema that the user declared, with labels and classes.

    Raises
    ------
    CommandError, InvalidParameterError
        There is none, or something in it is missing or wrong. No data were read.
    """
    path = options["schema"]
    if path is None:
        raise CommandError(
            "--schema is missing: bounds and classes are declared, never read from private data; "
            "write a template with --write-schema FILE, fill it in and give it with --schema FILE"
        )
    roles = {role: options[role] for role in ROLES if options[role] is not None}
    schema = dataclasses.replace(TableSchema.load(path), **roles)
    if schema.classes is None:
        raise CommandError(DECLARE_CLASSES.format(path=path))
    return schema


# Training rows of a command: whole in memory where they fit, else decoded to a private folder.
#
# Every cell is checked here, before anything is spent. Sizes are judged by public facts and by the
# size of the file, which whoever runs the command can see.


MIB = 1 << 20
# Of the whole program before it has read anything, where the system does not tell.
PROGRAM = 200 * MIB
# Below, there is no use in cutting rows into parts.
LEAST_ROOM = 16 * MIB
# Blocks of rows in double precision, and what allocators keep.
TEMPORARIES = 72 * MIB
# Of a number of a dense row: as it is decoded, and as records are packed.
NUMBER = 4
# Of a stored entry of a sparse row: number and column.
ENTRY = 12
# Copies of a part of the rows while its sums are made, and more than anyone gains by.
PART_COPIES = 6

MOST_ROWS_OF_PART = 131_072
# A compressed file says nothing of its size; this is for the estimate of the disk alone.
USUAL_COMPRESSION = 5


class Room:
    """Memory left for rows.

    Parameters
    ----------
    max_memory : int
        Bytes of the whole program.

    Raises
    ------
    CommandError
        The program itself needs more.
    """

    def __init__(self, max_memory: int) -> None:
        self._max_memory = max_memory
        if self.left < LEAST_ROOM:
            least = -(-(max_memory - self.left + LEAST_ROOM) // MIB)
            raise CommandError(
                f"--max-memory: got {max_memory // MIB} MiB, expected at least {least} MiB: the "
                "program itself takes most of that"
            )

    @property
    def left(self) -> int:
        """Bytes that are left now."""
        return self._max_memory - _resident_size() - TEMPORARIES

    @property
    def reading(self) -> int:
        """Bytes for the reading of files."""
        return max(LEAST_ROOM // 4, self.left // 2)

    def holds(self, n_bytes: float, copies: int) -> bool:
        """Return whether so many copies of so many bytes fit."""
        return n_bytes * copies <= self.left

    def part(self, n_features: int) -> int:
        """Rows of a part with which half of the room is left to what is kept."""
        fitting = self.left // (2 * PART_COPIES * NUMBER * n_features)
        return int(min(MOST_ROWS_OF_PART, max(1, fitting)))

    def kept_parts(self, n_bytes: int, n_parts: int) -> int:
        """Return how many equal parts fit in memory beside the one being worked on."""
        size = -(-n_bytes // n_parts)
        return max(0, min(n_parts, self.left // size - PART_COPIES))


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Checked rows with labels.

    Parameters
    ----------
    partitions : Partitions
        The rows in parts.
    folder : Path or None
        Where they were decoded to; None where they are in memory.
    X : ndarray, CSR matrix or None
        The whole; None where it has not been put together.
    y : ndarray or None
    owners : dict of ndarrays
        Persons and weights, for ``fit``.
    """

    partitions: Partitions
    folder: Path | None = None
    X: Any = None
    y: Any = None
    owners: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def n_bytes(self) -> int:
        """Estimate the bytes of the records."""
        if self.X is not None and not sparse.issparse(self.X):
            return int(self.X.shape[0] * (self.X.shape[1] * NUMBER + 16))
        if self.folder is None:
            return int(self.X.nnz * ENTRY)
        return sum(file.stat().st_size for file in self.folder.iterdir())

    def whole(self) -> tuple[Any, Any]:
        """Return all rows and labels: in memory, mapped, or joined from parts."""
        if self.X is not None:
            return self.X, self.y
        parts = [loader() for loader in self.partitions.loaders]
        return sparse.vstack([X for X, _ in parts], "csr"), np.concatenate([y for _, y in parts])


@contextmanager
def training_rows(
    screen: Screen, table: Any, room: Room, copies: int, temp: Path | None
) -> Iterator[TrainingRows]:
    """Read and check all rows; a temporary folder is removed whatever happens.

    Parameters
    ----------
    screen : Screen
    table : Table
    room : Room
    copies : int
        Of the rows that a fit in memory needs.
    temp : Path or None
        Where the folder is made, if there is need of one.

    Raises
    ------
    TableError, CommandError, OSError
        A row is not what the schema says, or cannot be read. Nothing was spent.
    """
    size = _largest_size(table)
    if size is not None and room.holds(size, max(2, copies)):
        with _reading(screen, table) as bar:
            X, y, *own = table.read(on_bytes=bar.advance_to)
        if X.shape[0] == 0:
            raise CommandError(f"{table.path}: has no rows; name a file with rows to train on")
        owners = own[0] if own else {}
        rows = room.part(table.n_features)
        parts = Partitions.from_arrays(X, y, rows_per_partition=rows, **owners)
        yield TrainingRows(parts, X=X, y=y, owners=owners)
        return
    with _private_folder(temp, table) as folder:
        try:
            with _reading(screen, table) as bar:
                parts = table.to_partitions(
                    folder,
                    on_bytes=bar.advance_to,
                    rows_per_partition=room.part(table.n_features),
                )
        except OSError as error:
            if error.filename is None or folder in Path(str(error.filename)).parents:
                raise _about_folder(error, folder.parent, table) from None
            raise
        if table.sparse:
            yield TrainingRows(parts, folder)
            return
        names = ("X", "y", *table.owners)
        found = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in names}
        yield TrainingRows(parts, folder, found.pop("X"), found.pop("y"), found)


def _reading(screen: Screen, table: Any) -> Any:
    """A bar of bytes."""
    return screen.progress("Reading", table.n_bytes_total or None, unit="bytes")


def _largest_size(table: Any) -> float | None:
    """Bytes that decoded rows take at most; None where nobody knows."""
    n_rows = table.n_rows
    label = np.array(table.schema.classes or ()).itemsize
    if n_rows is None:
        # Arrow's files may be compressed, or have types whose values take no room at all.
        if _compressed(table) or table.format == "arrow" or table.n_bytes_total is None:
            return None
        if table.sparse:
            # An entry is four characters at least: 1:1 and a space. A row without any is two.
            return max(ENTRY / 4, (8 + label) / 2) * float(table.n_bytes_total)
        # A cell is one character at least: what separates it from the next.
        n_rows = table.n_bytes_total / len(table.schema.features)
    return float(n_rows * (table.n_features * NUMBER + label))


def _compressed(table: Any) -> bool:
    """Whether the size of the file says nothing about the size of its text."""
    return Path(table.path).suffix.lower() in (".gz", ".bz2", ".xz", ".zst")


def _usual_size(table: Any) -> float:
    """Bytes that decoded rows take where numbers have a few digits."""
    if table.n_rows is not None:
        return float(table.n_rows * table.n_features * NUMBER)
    size = (table.n_bytes_total or 0) * (USUAL_COMPRESSION if _compressed(table) else 1)
    return float(size * max(1.0, table.n_features / len(table.schema.features)))


def _about_folder(error: OSError, place: Path, table: Any) -> CommandError:
    """What to do where rows could not be decoded."""
    free = shutil.disk_usage(place).free
    return CommandError(
        f"{place}: rows could not be decoded there ({error.strerror or error}): about "
        f"{_megabytes(_usual_size(table))} are needed and {_megabytes(free)} are free; name "
        "another folder with --temp, or give more --max-memory"
    )


def _megabytes(n_bytes: float) -> str:
    """A size for people."""
    return f"{max(1, round(n_bytes / 1e6))} MB"


@contextmanager
def _private_folder(temp: Path | None, table: Any) -> Iterator[Path]:
    """A folder that nobody else can read, removed at the end.

    Raises
    ------
    CommandError
        It cannot be made, or has clearly too little room.
    """
    place = Path(tempfile.gettempdir() if temp is None else temp)
    try:
        folder = Path(tempfile.mkdtemp(prefix="dpsvm_fast-rows-", dir=place))
    except OSError as error:
        raise CommandError(
            f"{place}: no temporary folder can be made there ({error.strerror}); name another one "
            "with --temp"
        ) from None
    try:
        if shutil.disk_usage(folder).free < _usual_size(table) / 4:
            raise _about_folder(OSError("too little room"), place, table)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            note(f"warning: {folder}: could not be removed; it holds private rows, remove it")


def _resident_size() -> int:
    """Bytes of memory that this process holds."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        import resource

        return pages * resource.getpagesize()
    except (OSError, ImportError, ValueError, IndexError):
        pass
    if sys.platform == "darwin":
        import resource

        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return PROGRAM


# What a command spends: the budget file, and whether a failure came before or after the spend.


# Their texts are of this package and quote no data.
OURS = (
    InvalidParameterError,
    TableError,
    BudgetExceededError,
    PartitionError,
    CertificationError,
    LedgerError,
)
LESS_MEMORY = "; give a smaller --max-memory or use a machine with more of it"
# What is wrong with options and parameters, before there are rows that a text could quote.
TOLD = (*OURS, ValueError, TypeError)


class AskedLedger(PrivacyLedger):
    """A ledger that knows whether this process has asked it for anything."""

    asked = False

    def spend(
        self,
        event: PrivacyEvent | tuple[PrivacyEvent, ...],
        label: str = "",
        **how: Any,
    ) -> None:
        """Spend as ever."""
        self.asked = True
        super().spend(event, label, **how)


# Options of a command that spends.
SPENT = ("epsilon", "delta", "adjacency", "budget", "random_state", "periods")


def spending_of(options: dict[str, Any], schema: TableSchema) -> Spending:
    """What a command spends on a table: on its persons, where the schema names them."""
    unit = "row" if schema.person is None else "person"
    return Spending(*[*(options[name] for name in SPENT), unit])


class Spending:
    """The (epsilon, delta) of one command, and where it is written down.

    Parameters
    ----------
    epsilon : float or None
        As the user gave it.
    delta : float
    adjacency : str or None
        None takes that of the budget.
    path : Path or None
        The budget file; None for no other record than the model's statement.
    seed : int or None, default=None
        Of the noise, which no budget is spent on.
    periods : str or None, default=None
        Periods of the budget that all rows are of, separated by commas; None charges all.
    unit : {"row", "person"}, default="row"
        What is protected.

    Raises
    ------
    CommandError, InvalidParameterError
        A number is missing or outside its range, or the file is no budget for it.
    """

    def __init__(
        self,
        epsilon: float | None,
        delta: float,
        adjacency: str | None,
        path: Path | None,
        seed: int | None = None,
        periods: str | None = None,
        unit: str = "row",
    ) -> None:
        if seed is not None and path is not None:
            raise CommandError(
                "--seed: whoever knows it can remove the noise, so that --budget would be spent on "
                "nothing; leave out one of the two"
            )
        if epsilon is None:
            raise CommandError("--epsilon is missing; give the privacy parameter, such as 1")
        self.epsilon, self.delta = check.check_epsilon(epsilon), check.check_delta(delta)
        self.path, self.unit = path, unit
        if periods is not None and path is None:
            raise CommandError("--periods: they are those of a budget; give it with --budget")
        if path is None:
            self.adjacency = adjacency or "add_remove"
            # Asked like a file would be: it knows whether the spend has happened.
            budget = (self.epsilon, self.delta, self.adjacency)
            self.ledger = AskedLedger(*budget, unit=unit, strict=False)
        else:
            self.ledger = opened_budget(path, AskedLedger, to_spend=True)
            if periods is not None:
                self.ledger = self.ledger.for_periods(*periods.split(","))
            self.adjacency = adjacency or self.ledger.adjacency
            if self.adjacency != self.ledger.adjacency:
                raise CommandError(
                    f"--adjacency: got {self.adjacency!r}, expected {self.ledger.adjacency!r}, the "
                    f"relation of {path}; leave it out"
                )
            if unit != self.ledger.unit:
                raise CommandError(
                    f"--budget: {path} is for one {self.ledger.unit} as the unit, and this command "
                    f"protects a {unit}; make another one: dpsvm-fast budget create --unit {unit}"
                )
        self._before = len(self.ledger.history)
        # Set once there is a model.
        self.saved = False

    def check(
        self, estimator: Any, *, n_classes: int, sparse: bool, weighted: bool = False
    ) -> None:
        """Refuse a fit that the budget has no room for, before any data are read.

        Raises
        ------
        BudgetExceededError, InvalidParameterError, TypeError
            There is none, or a parameter is outside its range.
        """
        known: dict[str, Any] = {"n_classes": n_classes, "sparse": sparse, "weighted": weighted}
        events = planned_events(estimator, Facts(unit=self.unit, **known))
        self.ledger.check(events, unit=self.unit)

    @property
    def spent(self) -> bool:
        """Return whether this process has charged the ledger."""
        if not self.ledger.asked:
            return False
        own = os.getpid()
        return any(record.process == own for record in self.ledger.history[self._before :])

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Say of every failure inside whether the budget is spent."""
        try:
            with _terminated_like_interrupted():
                yield
        except BudgetExceededError as error:
            raise CommandError(self._refusal(error), OVERSPENT) from None
        except (CommandError, KeyboardInterrupt, MemoryError, OSError, *TOLD) as error:
            kept = (CommandError, InvalidParameterError, OSError)
            if isinstance(error, kept) and not self.spent:
                # The name of an argument is still to be put as that of an option.
                raise
            code = INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED
            raise CommandError(
                f"{_sentence(error)}; {self.what_is_spent()}"
                + (LESS_MEMORY if isinstance(error, MemoryError) else ""),
                getattr(error, "exit_code", code),
            ) from None

    @contextmanager
    def among_rows(self) -> Iterator[None]:
        """Hide texts of other packages while private rows are in memory: they may quote a cell.

        Raises
        ------
        CommandError
            In the place of an error of another package, or of one that nobody thought of.
        """
        try:
            yield
        except (CommandError, MemoryError, ImportError, *OURS):
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            sentence = unexpected(error)
        else:
            return
        # Raised here, so that the error does not travel along.
        raise CommandError(sentence if self.spent else f"{sentence}; {self.what_is_spent()}")

    def check_owners(self, table: Table, estimator: Any) -> None:
        """Refuse persons and weights that a training does not take, before any row is read."""
        taken = takes(estimator.checked())
        for role, name in zip(table.schema.owners, table.owners, strict=False):
            if name not in taken:
                raise CommandError(
                    f"--{role}-column: {type(estimator).__name__} with these options protects "
                    "single rows of equal weight; take --model linear, or leave the column out "
                    "(ignore = true in the schema)"
                )

    def what_is_spent(self) -> str:
        """The end of a sentence."""
        if not self.spent:
            return "nothing was spent"
        amount = f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"
        where = "" if self.path is None else f" of {self.path}"
        end = "" if self.saved else ", though there is no model"
        return f"the budget{where} is spent ({amount}){end}"

    def record(self) -> dict[str, Any] | None:
        """Return what is left in the budget file, for ``--json``."""
        if self.path is None:
            return None
        return {
            "file": str(self.path),
            "epsilon": self.ledger.epsilon,
            "delta": self.ledger.delta,
            "remaining_epsilon": self.ledger.remaining(),
        }

    def _refusal(self, error: BudgetExceededError) -> str:
        """What is left, and what to do."""
        ledger = self.ledger
        left = _rounded_down(ledger.remaining(), least=1e-3 * ledger.epsilon)
        if self.path is None:
            return str(error)
        have = (
            f"{self.path}: epsilon = {left:g} is left of {ledger.epsilon:g} at delta = "
            f"{ledger.delta:g}, and this command asks for epsilon = {self.epsilon:g}, delta = "
            f"{self.delta:g}; nothing was spent"
        )
        if self.delta > ledger.delta:
            return f"{have}; give --delta {ledger.delta:g} or less"
        if left > 0.0:
            return f"{have}; give --epsilon {left:g} or less"
        return f"{have}; these data cannot be used again within this budget"


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM and SIGHUP as a KeyboardInterrupt: no private rows stay on the disk."""
    names = ("SIGTERM", "SIGHUP")
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    # What was told to go on, as by nohup, goes on.
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: Any) -> None:
    """Signal handler."""
    raise KeyboardInterrupt


def _sentence(error: BaseException) -> str:
    """The text of an error without its full stop or the end that is said here."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        return f"{where}{error.strerror or error}"
    text = str(error).removesuffix(".").removesuffix("; the budget is spent")
    return text.removesuffix(". The budget is spent")


def _rounded_down(value: float, least: float) -> float:
    """Three digits, so that it can be typed; 0 where nobody can do anything with so little."""
    if value < least:
        return 0.0
    digits = 2 - math.floor(math.log10(value))
    return math.floor(value * 10.0**digits) / 10.0**digits


# One training: what it was asked for, what is opened for it, and how it ends.


@dataclass(frozen=True, kw_only=True)
class Task:
    """Settings of a training command before it reads a row.

    Parameters
    ----------
    screen : Screen
    options : dict
        Of a command with all options of ``_data_options``.
    spending : Spending
    drafts : list of Draft
        Of the model and, where asked for, its certificate.
    table : Table
        The private rows.
    tested : Table or None
        Public rows on which the model is tried.
    room : Room
    """

    screen: Screen
    options: dict[str, Any]
    spending: Spending
    drafts: list[Draft]
    table: Table
    tested: Table | None
    room: Room

    def finish(self, model: Any, statement: Any, **more: Any) -> None:
        """Write the fitted model and say what there is to say, ``more`` among it."""
        publish(model, self.table.schema, statement, self.drafts, self.spending)
        scored = None
        if self.tested is not None:
            scored = accuracy(self.screen, model, self.tested, self.options["output"])
        report(self, type(trainer_of(model)).__name__, statement, scored, more)


@contextmanager
def training(screen: Screen, options: dict[str, Any]) -> Iterator[Task]:
    """Prepare a training command; its failures say what was spent.

    Parameters
    ----------
    screen : Screen
    options : dict
        Of a command with all options of ``_data_options``.

    Raises
    ------
    CommandError, InvalidParameterError, TableError
        An option, the schema, the budget, a table or an output is missing or wrong. Nothing was
        spent.
    """
    if options["output"] is None:
        raise CommandError("--output is missing; name the model's file, such as -o model.json")
    schema = declared_schema(options)
    spending = spending_of(options, schema)
    outputs = (options["output"], options["certificate"])
    inputs = [options.get(name) for name in INPUTS]
    held = reserved(*outputs, force=options["force"], inputs=inputs)
    with held as drafts, spending.explained():
        room = Room(options["max_memory"])
        how: dict[str, Any] = {"format": options["data_format"], "max_memory": room.reading}
        table = open_table(options["data"], schema, owners=True, **how)
        if table.sparse and options["model"] in DENSE_ONLY:
            raise CommandError(
                f"--model: got {options['model']!r}, which takes dense rows only, expected another "
                "one for a LIBSVM file"
            )
        if table.sparse and options["splines"] is not None:
            raise CommandError("--splines: expected dense rows, no LIBSVM file and no text")
        yield Task(
            screen=screen,
            options=options,
            spending=spending,
            drafts=drafts,
            table=table,
            tested=public_rows(options, table.schema),
            room=room,
        )


# Copies of all rows that a fit needs, in the size in which they are decoded: rows and packed
# records; rows, mapped rows and the solver's; and the scalers' double precision besides.
DESCENT, SOLVER, PIPELINE = 2, 4, 8
# Components of a kernel, where they are chosen by its rule.
FEATURES = 1000
# With less, features of a kernel are computed anew for every step; they would take up to 256 MiB.
ROOM_FOR_FEATURES = 1024 * MIB


def growth_of(estimator: Any, n_features: int) -> int:
    """How many times the memory of rows their public map takes, at least 1."""
    first = estimator.steps[0][1] if isinstance(estimator, Pipeline) else None
    if isinstance(first, PublicImageFeatures):
        names = first.fit(np.zeros((1, n_features))).get_feature_names_out()
        return -(-len(names) // n_features)
    return 2 * ENTRY // NUMBER if isinstance(first, PublicSplines) else 1


def copies_of(estimator: Any, n_features: int) -> int:
    """Return how many copies of the rows a fit in memory holds."""
    growth = growth_of(estimator, n_features)
    if not needs_all_rows(estimator):
        return DESCENT * growth
    if isinstance(trainer_of(estimator), PrivateKernelSVC):
        # A sine and a cosine of each component.
        return SOLVER * -(-2 * FEATURES // n_features)
    return growth * (PIPELINE if isinstance(estimator, Pipeline) else SOLVER)


def train(screen: Screen, estimator: Any, rows: TrainingRows, room: Room) -> Any:
    """Fit an estimator on checked rows; its ledger is charged here.

    Parameters
    ----------
    screen : Screen
    estimator : estimator
        As of ``made``.
    rows : TrainingRows
    room : Room

    Returns
    -------
    estimator
        Fitted.

    Raises
    ------
    CommandError
        The rows do not fit into the memory that this training needs. Nothing was spent.
    """
    if not needs_all_rows(estimator):
        trainer = trainer_of(estimator)
        small = isinstance(trainer, PrivateKernelSVC) and room.left < ROOM_FOR_FEATURES
        if not small:
            return _by_sums(screen, estimator, rows, room)
        before = trainer.low_memory
        trainer.set_params(low_memory=True)
        _by_sums(screen, estimator, rows, room)
        # It is saved with the model, and how much room rows have left is theirs.
        trainer.set_params(low_memory=before)
        return estimator
    copies = copies_of(estimator, rows.partitions.n_features)
    if rows.folder is not None and not room.holds(rows.n_bytes, copies):
        raise CommandError(
            "--max-memory: this training needs all rows in memory, several times; give it more "
            "(see dpsvm-fast fit --help), or train by sums over parts of the rows: --model linear "
            "--mechanism gradient"
        )
    X, y = rows.whole()
    # Iterations of a solver depend on the rows: there is nothing to show but that it works.
    with screen.progress("Training", None):
        if not rows.owners:
            return estimator.fit(X, y)
        for step in _public_steps(estimator, X.shape[1]):
            X = step.transform(X)
        trainer_of(estimator).fit(X, y, **rows.owners)
        return estimator


def _public_steps(estimator: Any, n_features: int) -> list[Any]:
    """What comes before the trainer, fitted; it learns nothing from rows."""
    found, X = [], np.zeros((1, n_features))
    for _, step in estimator.steps[:-1] if isinstance(estimator, Pipeline) else ():
        found.append(step.fit(X))
        X = step.transform(X)
    return found


def _by_sums(screen: Screen, estimator: Any, rows: TrainingRows, room: Room) -> Any:
    """Descent by sums over parts of the rows, whose number of steps is public."""
    # Names would be asked for at every prediction; the schema has them.
    parts = dataclasses.replace(rows.partitions, feature_names=None)
    trainer = trainer_of(estimator)
    for step in _public_steps(estimator, parts.n_features):
        parts = parts.transformed(step)
    # Always a folder, also where nothing is written to it: rows are rounded the same way then,
    # however many of them there are.
    kept, scratch = len(parts), Path(tempfile.gettempdir())
    if rows.folder is not None:
        growth = growth_of(estimator, rows.partitions.n_features)
        kept = room.kept_parts(growth * rows.n_bytes, len(parts))
        scratch = rows.folder / "mapped"
        scratch.mkdir(mode=0o700)
    with screen.progress("Training", None) as bar:
        partitioned.fit(trainer, parts, resident=kept, scratch=scratch, on_step=bar.advance_to)
    return estimator


# After a fit: its files, and what the user is told.


def publish(
    model: Any, schema: TableSchema, statement: Any, drafts: list[Draft], spending: Spending
) -> None:
    """Write the model and, where asked for, its certificate, bound to that file by its digest.

    Raises
    ------
    CommandError
        A file could not be written to its place; the text says where the model is, because what
        it cost cannot be had back.
    """
    model_draft, *others = drafts
    try:
        save_model(model, model_draft.draft, schema=schema)
        model_draft.publish()
    except OSError as error:
        place = _rescued(model, schema)
        spending.saved = place is not None
        told = "nor anywhere else" if place is None else f"but is in {place}: move it"
        reason = error.strerror or str(error)
        raise CommandError(
            f"{model_draft.path}: the model cannot be written ({reason}), {told}"
        ) from None
    spending.saved = True
    for certificate in others:
        try:
            text = certificate_text(statement, model_draft.path)
            certificate.draft.write_text(text, encoding="utf-8")
            certificate.publish()
        except OSError as error:
            reason = error.strerror or str(error)
            raise CommandError(
                f"{certificate.path}: the certificate cannot be written ({reason}); the model is "
                f"saved as {model_draft.path}, and dpsvm-fast statement {typed(model_draft.path)} "
                "--certificate FILE writes it"
            ) from None


def _rescued(model: Any, schema: TableSchema) -> Path | None:
    """Save the model to a temporary folder, if that is possible."""
    try:
        path = Path(tempfile.mkdtemp(prefix="dpsvm_fast-model-")) / "model.json"
        save_model(model, path, schema=schema)
    except OSError:
        return None
    return path


def public_rows(options: dict[str, Any], schema: TableSchema) -> Any:
    """The table of ``--test-data``, or None.

    Raises
    ------
    CommandError
        It is the file that is trained on: what is printed about its rows would not be protected.
    """
    path = options["test_data"]
    if path is None:
        return None
    table = open_table(path, schema)
    if path.samefile(options["data"]):
        raise CommandError(
            f"--test-data: got {path}, whose rows are private as they are trained on, expected a "
            "file of public rows"
        )
    return table


def accuracy(screen: Screen, model: Any, table: Any, saved: Path) -> float:
    """Share of public rows whose label is predicted.

    Raises
    ------
    CommandError
        A row is not what the schema says.
    """
    right = total = 0
    try:
        with screen.progress("Testing", table.n_bytes_total or None, unit="bytes") as bar:
            for X, y in table.batches(on_bytes=bar.advance_to):
                right += int(np.count_nonzero(model.predict(X) == y))
                total += len(y)
    except TableError as error:
        raise CommandError(f"{error}; the model is saved as {saved}") from None
    if total == 0:
        raise CommandError(f"{table.path}: has no rows to test on; the model is saved as {saved}")
    return right / total


def report(
    task: Task, name: str, statement: Any, scored: float | None, more: dict[str, dict[str, Any]]
) -> None:
    """Say what was promised, what is where, and what can be done next."""
    screen, options, budget = task.screen, task.options, task.spending.record()
    output, data = options["output"], options["data"]
    screen.result(
        {
            "model": str(output),
            "certificate": None if options["certificate"] is None else str(options["certificate"]),
            "estimator": name,
            "private": statement.private,
            "epsilon": statement.epsilon,
            "delta": statement.delta,
            "adjacency": statement.adjacency,
            "unit": statement.unit,
            "budget": budget,
            "public_test_accuracy": scored,
            **more,
        }
    )
    private = "private" if statement.private else "NOT PRIVATE"
    screen.say(
        f"{output}: {name}, {private}, epsilon = {statement.epsilon:g}, delta = "
        f"{statement.delta:g} ({statement.adjacency}, for one {statement.unit})",
        style="bold",
    )
    for title, value in more.items():
        facts = ", ".join(f"{one} = {own}" for one, own in value.items())
        screen.say(f"{title.replace('_', ' ')}: {facts}")
    if scored is not None:
        screen.say(
            f"accuracy on the rows of {options['test_data']}: {scored:.4f} (these rows count as "
            "public: nothing protects them)"
        )
    if budget is not None:
        _say_left(screen, budget)
    screen.say(
        f"next: dpsvm-fast statement {typed(output)}\n"
        f"      dpsvm-fast predict {typed(output)} NEW{_suffixes(data)} -o predictions.csv"
    )


def _suffixes(data: Path) -> str:
    """How the name of a file says its format: .csv, or .csv.gz."""
    packed = data.suffix.lower() == ".gz"
    return f"{Path(data.stem).suffix}{data.suffix}" if packed else data.suffix


# ``dpsvm-fast fit``: train a private model on the rows of a file.


EXAMPLE = example(
    "dpsvm-fast fit people.csv --write-schema people.toml --target income",
    "dpsvm-fast fit people.csv --schema people.toml --epsilon 1 --delta 1e-6 -o model.json",
)


@click.command("fit", epilog=EXAMPLE)
@table_options
@click.option(
    "--write-schema",
    type=FILE,
    metavar="FILE",
    help="Write a schema to be filled in, from the names of the columns alone, and stop.",
)
@budget_options
@click.option(
    "--model",
    type=OneOf(MODELS),
    default="linear",
    show_default=True,
    help="The whole pipeline, linear or with a kernel; or one training of rows of norm 1.",
)
@click.option("--mechanism", type=OneOf(MECHANISMS), help="Where the noise goes.  [default: auto]")
@click.option("--kernel", type=OneOf(KERNELS), help="Of --model kernel.  [default: auto]")
@map_options
@model_file_options
@pass_screen
def fit_command(screen: Screen, **options: Any) -> None:
    """Train a private model on DATA: CSV, TSV, Parquet, Arrow, npz or LIBSVM text; - is stdin.

    Bounds, categories and classes are public facts that --schema declares; nothing is learned from
    the rows but what --epsilon and --delta pay for. All rows are checked before anything is spent.
    """
    if options["write_schema"] is not None:
        _write_schema(screen, options)
        return
    with training(screen, options) as task:
        _fit(task)


def _fit(task: Task) -> None:
    """Check everything, spend, train and save."""
    options, spending, table = task.options, task.spending, task.table
    estimator = made(
        options["model"],
        options["mechanism"],
        table.schema,
        kernel=options["kernel"],
        splines=options["splines"],
        image=options["image"],
        epsilon=spending.epsilon,
        delta=spending.delta,
        adjacency=spending.adjacency,
        random_state=options["random_state"],
        n_threads=options["n_threads"],
        ledger=spending.ledger,
        max_weight=options["max_weight"],
        class_weight=_class_weight(table.schema, options["class_weight"]),
    )
    n_classes = len(table.schema.classes or ())
    mapped = options["splines"] is not None and options["model"] not in DENSE_ONLY
    known: dict[str, Any] = {"n_classes": n_classes, "sparse": table.sparse or mapped}
    spending.check_owners(table, trainer_of(estimator))
    spending.check(estimator, weighted=table.schema.weight is not None, **known)
    copies = copies_of(estimator, table.n_features)
    read = training_rows(task.screen, table, task.room, copies, options["temp"])
    with spending.among_rows(), read as rows:
        train(task.screen, estimator, rows, task.room)
    task.finish(estimator, trainer_of(estimator).privacy_)


def _class_weight(schema: TableSchema, text: str | None) -> Any:
    """Weights by label.

    Raises
    ------
    CommandError
        One is no number, or of no class.
    """
    if text in (None, "balanced"):
        return text
    labels, found = {str(label): label for label in schema.classes or ()}, {}
    for one in text.split(","):
        name, _, weight = one.rpartition("=")
        try:
            found[labels[name.strip()]] = float(weight)
        except (KeyError, ValueError):
            raise CommandError(
                f"--class-weight: got {one!r}, expected CLASS=WEIGHT for classes of the schema, "
                f"such as {next(iter(labels))}=2"
            ) from None
    return found


def _write_schema(screen: Screen, options: dict[str, Any]) -> None:
    """Write a template of a schema; reads the header of the file alone."""
    data, path = options["data"], options["write_schema"]
    roles = {role: options[role] for role in ("target", "person")}
    text = TableSchema.template(data, format=options["data_format"], **roles)
    with reserved(path, force=options["force"], inputs=[data]) as (draft,):
        if path.suffix.lower() != ".toml":
            raise CommandError(
                f"--write-schema: got {path.name!r}, expected a name that ends in .toml; "
                "the end says how a schema is read"
            )
        draft.draft.write_text(text, encoding="utf-8")
        draft.publish()
    screen.say(
        f"{path}: fill in public bounds or categories of every column, the target and the classes, "
        f"then\n  dpsvm-fast fit {typed(data)} --schema {typed(path)} --epsilon 1 -o model.json"
    )
    screen.result({"schema": str(path)})


# ``dpsvm-fast tune``: choose parameters and train, within one budget.


# Rows, the rows of the parts, and what a fit of the largest of them needs.
COPIES = 10

TUNE_EXAMPLE = example(
    "dpsvm-fast tune people.csv --schema people.toml --epsilon 2 --model objective \\",
    "    --grid C=0.1,1,10 -o model.json",
)


@click.command("tune", epilog=TUNE_EXAMPLE)
@table_options
@budget_options
@click.option("--model", type=OneOf(MODELS), default="linear", show_default=True)
@map_options
@click.option(
    "--grid",
    "param_grid",
    multiple=True,
    metavar="NAME=A,B,...",
    help="Values of one parameter, which must not come from the data; several times for more.",
)
@click.option(
    "--grid-file", type=FILE, metavar="FILE", help="TOML or JSON, NAME = [A, B] for each."
)
@click.option("--strategy", type=OneOf(STRATEGIES), default="partition", show_default=True)
@click.option("--selection", type=OneOf(CHOICES), default="permute_and_flip", show_default=True)
@click.option("--stopping", type=OneOf(STOPPING_LAWS), default="geometric", show_default=True)
@click.option(
    "--refit-fraction",
    type=Real(0.0, includes_low=True),
    default=0.8,
    show_default=True,
    help="Share of the budget with which the winner is trained again on all rows.",
)
@model_file_options
@pass_screen
def tune_command(screen: Screen, **options: Any) -> None:
    """Choose parameters by a private search on DATA, and train with them.

    --epsilon and --delta are those of everything together: all candidates, the choice and the model
    that is saved. The rows have to fit into --max-memory.
    """
    with training(screen, options) as task:
        _tune(task)


def _tune(task: Task) -> None:
    """Check everything, search, spend and save."""
    search = _search(task.table.schema, task.spending, task.options)
    # Parameters, and whether the budget has room for all of it, before any data are read.
    task.spending.check_owners(task.table, search)
    weighted = task.table.schema.weight is not None
    task.spending.check(search, n_classes=2, sparse=False, weighted=weighted)
    read = training_rows(task.screen, task.table, task.room, COPIES, task.options["temp"])
    with task.spending.among_rows(), read as rows:
        if rows.folder is not None and not task.room.holds(rows.n_bytes, COPIES):
            raise CommandError(
                "--max-memory: a search needs all rows in memory, several times; give it more, or "
                "train without a search: dpsvm-fast fit"
            )
        X, y = rows.whole()
        with task.screen.progress("Searching", None):
            search.fit(X, y, **rows.owners)
    best = {name.rpartition("__")[2]: value for name, value in search.best_params_.items()}
    task.finish(search, search.privacy_, best_parameters=best)


def _search(schema: TableSchema, spending: Spending, options: dict[str, Any]) -> PrivateGridSearch:
    """The search over the user's grid."""
    estimator = made(
        options["model"],
        None,
        schema,
        splines=options["splines"],
        image=options["image"],
        delta=spending.delta,
        adjacency=spending.adjacency,
        n_threads=options["n_threads"],
        max_weight=options["max_weight"],
        class_weight=_class_weight(schema, options["class_weight"]),
    )
    names = ("strategy", "selection", "stopping", "refit_fraction", "random_state")
    return PrivateGridSearch(
        estimator,
        _grid(estimator, options),
        spending.epsilon,
        spending.delta,
        adjacency=spending.adjacency,
        ledger=spending.ledger,
        **{name: options[name] for name in names},
    )


def _grid(estimator: Any, options: dict[str, Any]) -> dict[str, list[Any]]:
    """Values of each parameter, under the names that the estimator has for them.

    Raises
    ------
    CommandError
        There are none, or a name is not a parameter of the model.
    """
    given: dict[str, list[Any]] = {}
    for text in options["param_grid"]:
        name, values = _parsed(text)
        if name in given:
            raise CommandError(
                f"--grid: {name!r} comes twice; write all its values at once: {name}=A,B,..."
            )
        given[name] = values
    path = options["grid_file"]
    if path is not None:
        found = read_record(path)
        if not all(isinstance(values, list) for values in found.values()):
            raise CommandError(f"{path}: expected a line NAME = [A, B] for each parameter")
        given = dict(found) | given
    if not given:
        raise CommandError("--grid is missing; give the values to choose from, such as C=0.1,1,10")
    for name, values in given.items():
        if len(set(map(repr, values))) < len(values):
            raise CommandError(f"--grid: {name!r} has a value twice, and each costs budget")
    trainer = trainer_of(estimator)
    known = sorted(set(trainer.get_params(deep=False)) - RESERVED)
    prefix = f"{STEP}__" if isinstance(estimator, Pipeline) else ""
    for name in given:
        if name in RESERVED:
            raise CommandError(
                f"--grid: {name!r} is the same for all candidates; give it as an option of its own "
                "where there is one (see dpsvm-fast tune --help)"
            )
        if name not in known:
            raise CommandError(_unknown(name, type(trainer).__name__, known))
    return {prefix + name: values for name, values in given.items()}


def _unknown(name: str, model: str, known: Sequence[str]) -> str:
    """What to write instead of a name that is none."""
    # Capitals make a difference: C, c.
    alike = {one.lower(): one for one in known}
    near = [alike[one] for one in difflib.get_close_matches(name.lower(), alike, n=1)]
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(known)}"
    return f"--grid: {model} has no parameter {name!r} (see --model); {hint}"


def _parsed(text: str) -> tuple[str, list[Any]]:
    """One NAME=A,B,..."""
    name, equals, values = text.partition("=")
    found = [_value(word.strip()) for word in values.split(",")]
    if not equals or not name.strip() or any(value == "" for value in found):
        raise CommandError(f"--grid: got {text!r}, expected NAME=A,B,... such as C=0.1,1,10")
    return name.strip(), found


def _value(word: str) -> Any:
    """A number, true or false; any other word is itself."""
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


# ``dpsvm-fast evaluate``: measure a model on private rows.


@click.command(
    "evaluate",
    epilog=example(
        "dpsvm-fast evaluate model.json test.csv --epsilon 1 --budget test.budget",
        "dpsvm-fast evaluate model.json test.csv --epsilon 1 --metric accuracy --metric roc",
    ),
)
@model_options
@click.option(
    "--metric",
    "metrics",
    type=OneOf(tuple(TABLES)),
    multiple=True,
    help="May be repeated; fewer have less noise.  [default: all that MODEL allows]",
)
@click.option("--positive", metavar="LABEL", help="Class of roc and calibration, of several ones.")
@person_option
@budget_options
@click.option("--certificate", type=FILE, metavar="FILE", help="Write what is promised.")
@pass_screen
def evaluate_command(screen: Screen, **options: Any) -> None:
    """Measure a saved MODEL on the private rows of DATA, with noise that --epsilon pays for.

    Every number comes with an interval that counts the noise and that the rows are a sample. The
    budget is that of the rows of DATA: rows that MODEL was trained on are charged a second time.
    Where the schema names persons, they are what is protected, and each counts once.
    """
    model, table = model_and_table(options, labelled=True)
    spending = spending_of(options, table.schema)
    inputs = [options[name] for name in ("model", "data", "schema", "key", "budget")]
    held = reserved(options["certificate"], force=options["force"], inputs=inputs)
    with held as drafts, spending.explained():
        evaluation = PrivateEvaluation(
            model,
            spending.epsilon,
            spending.delta,
            metrics=options["metrics"] or None,
            positive=_label(model, options["positive"]),
            adjacency=spending.adjacency,
            random_state=options["random_state"],
            ledger=spending.ledger,
            n_threads=options["n_threads"],
        ).checked()
        with spending.among_rows(), screen.progress("Evaluating", None):
            batches = ((X, y, *dict(*own).values()) for X, y, *own in table.batches())
            rows: Any = EvaluatedRows(evaluation, lambda: batches, grouped=bool(table.owners))
            found = Evaluation(**private_fit(evaluation, rows))
        spending.saved = True
        for draft in drafts:
            draft.draft.write_text(found.privacy_.to_json() + "\n", encoding="utf-8")
            draft.publish()
    screen.say(str(found))
    budget = spending.record()
    screen.result(
        {
            "model": str(options["model"]),
            "private": found.privacy_.private,
            "epsilon": found.privacy_.epsilon,
            "delta": found.privacy_.delta,
            "adjacency": found.privacy_.adjacency,
            "unit": found.privacy_.unit,
            "budget": budget,
            **found.to_dict(),
        }
    )
    if budget is not None:
        _say_left(screen, budget)


def _label(model: Any, text: str | None) -> Any:
    """The class that is written like this; the text itself where there is none."""
    labels = getattr(model, "classes_", np.empty(0)).tolist()
    return next((label for label in labels if str(label) == text), text)


def _say_left(screen: Screen, budget: dict[str, Any]) -> None:
    """Say what is left in the budget file."""
    screen.say(
        f"{budget['file']}: epsilon = {budget['remaining_epsilon']:.6g} is left of "
        f"{budget['epsilon']:g} at delta = {budget['delta']:g}"
    )
