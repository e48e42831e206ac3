"""``dpsvm-fast fit``, and shared code of commands that spend budget on rows."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer, PolynomialFeatures

from dpsvm_fast import validation as check
from dpsvm_fast.certificates import PrivacyEvent
from dpsvm_fast.cli import screen as ui
from dpsvm_fast.cli.budget import opened_budget
from dpsvm_fast.cli.files import Draft, reserved
from dpsvm_fast.cli.plan import CLASSES, KERNEL, KERNELS, LINEAR, unfitted
from dpsvm_fast.cli.predict import format_option, person_option
from dpsvm_fast.data import Partitions, Table, TableSchema, open_table, partitioned
from dpsvm_fast.data.readers import is_compressed
from dpsvm_fast.data.schema import ROLES
from dpsvm_fast.estimators import PrivateKernelSVC
from dpsvm_fast.estimators.inputs import UNIT_NORM
from dpsvm_fast.exceptions import BudgetExceededError, InvalidParameterError, TableError
from dpsvm_fast.ledger import PrivacyLedger
from dpsvm_fast.mechanisms.pipeline import TRAINERS
from dpsvm_fast.mechanisms.plan import Facts
from dpsvm_fast.mechanisms.rows import PublicMap
from dpsvm_fast.persist import save_certificate, save_model
from dpsvm_fast.pipelines import planned_events, takes
from dpsvm_fast.preprocessing import PublicImageFeatures, PublicScaler, PublicSplines

# The estimators that the command line trains, and how each takes its rows.


# Models with a weight for every pair of features.
DENSE_ONLY = ("gaussian",)

MECHANISMS = ("auto", *TRAINERS)
# Step of the trainer, after its public scaling.
STEP = "svc"
# Step of the public map before it.
MAP = "map"
# With so few columns, rows get the constant of PrivateLinearSVC before they are scaled to norm 1:
# of one column only the sign would be left.
FEW_COLUMNS = 2
# Fields of a statement in the JSON object.
PROMISED = ("private", "epsilon", "delta", "adjacency", "unit")


def build(schema: TableSchema, spending: Spending, options: dict[str, Any], **settings: Any) -> Any:
    """Build an estimator for rows of a schema.

    Parameters
    ----------
    schema : TableSchema
        Schema with classes, and with every column named.
    spending : Spending
    options : dict
        Options of fit or tune.
    **settings
        More parameters of the estimator; None means the default.

    Returns
    -------
    estimator
        Estimator that first maps rows by the schema's public bounds.

    Raises
    ------
    CommandError
        The model does not have a setting, or two maps are requested.
    """
    model, given = options["model"], ("max_weight", "n_threads")
    mapping = _public_map(schema, options, model)
    settings |= {name: options[name] for name in given}
    settings |= {"class_weight": _class_weight(schema, options["class_weight"])}
    settings |= {"delta": spending.delta, "adjacency": spending.adjacency}
    settings["classes"] = list(schema.classes or ())
    if model in (LINEAR, KERNEL):
        mapped = (0, 1) if isinstance(mapping, PublicSplines) else UNIT_NORM
        svc = unfitted(model, bounds=schema.bounds if mapping is None else mapped, **settings)
        return svc if mapping is None else Pipeline([(MAP, mapping), (STEP, svc)])
    steps: list[tuple[str, Any]] = [(MAP, mapping)]
    if mapping is None:
        steps = [("scaler", PublicScaler(schema.bounds))]
        if schema.n_features <= FEW_COLUMNS:
            widths = np.ones(1 + schema.n_features)
            widths[0] /= PublicMap.lifted(*schema.bounds).constant
            steps += [
                ("constant", PolynomialFeatures(1)),
                ("size", PublicScaler((-widths, widths))),
            ]
    steps += [("normalizer", Normalizer()), (STEP, unfitted(model, **settings))]
    return Pipeline(steps)


def _public_map(
    schema: Any, options: dict[str, Any], model: str
) -> PublicSplines | PublicImageFeatures | None:
    """Build the requested public map of rows.

    Raises
    ------
    CommandError
        Two maps are requested, an order is given without an image, or the schema's number of
        features is not the number of pixels.
    """
    image, order = options["image"] or schema.image, options["image_order"]
    if image is None and order is not None:
        raise ui.CommandError("--image-order: expected --image too")
    splined = wants_splines(schema, options)
    if splined and image is not None:
        raise ui.CommandError("--splines and --image: expected only one of them")
    if image is not None:
        if math.prod(image) != schema.n_features:
            raise ui.CommandError(
                f"--image: got {'x'.join(map(str, image))}, expected as many pixels as the schema "
                f"has features, {schema.n_features}"
            )
        return PublicImageFeatures(image, order=order or 1)
    if not splined:
        return None
    columns = [column for column in schema.features for _ in range(column.width)]
    # Splines for numbers; other columns are left as they are.
    usual = options["splines"] or 1
    knots = [(column.knots or usual) if column.is_number else 1 for column in columns]
    log = [place for place, column in enumerate(columns) if column.log]
    dense = model in DENSE_ONLY
    return PublicSplines(schema.bounds, knots, log=log, sparse_output=not dense)


def wants_splines(schema: TableSchema, options: dict[str, Any]) -> bool:
    """Return whether columns become piecewise linear functions, by an option or by the schema."""
    return options["splines"] is not None or any(column.knots for column in schema.columns)


def trainer_of(estimator: Any) -> Any:
    """Return the estimator that makes the release and has the statement."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


# Options of commands that read data, and their meaning.


# Options that name files to be read, of fit and of tune.
INPUTS = ("data", "schema", "budget", "test_data")


class Shape(ui.Value):
    """Height, width and optionally channels of an image: 28x28."""

    name = "shape"
    accepted = "HEIGHTxWIDTH such as 28x28"

    def read(self, value: Any) -> tuple[int, ...]:
        """Parse two or three integers."""
        if not re.fullmatch(r"[1-9][0-9]{0,3}(x[1-9][0-9]{0,3}){1,2}", value):
            raise ValueError
        return tuple(map(int, value.split("x")))


# Public maps of rows.
map_options = ui.together(
    ui.option(
        "--splines",
        ui.Integer(2),
        "Replace each bounded column by K piecewise linear functions.",
        metavar="K",
    ),
    ui.option(
        "--image",
        Shape(),
        "Rows are images, HxW or HxWxC; train on histograms of edge directions.",
        metavar="HxW",
    ),
    ui.option(
        "--image-order",
        ui.Integer(1, 2),
        "2 adds edges of edges: better for tens of thousands of images.  [default: 1]",
        metavar="K",
    ),
)
# DATA, and how it is read.
table_options = ui.together(
    click.argument("data", type=ui.FILE_OR_STREAM, metavar="DATA"),
    ui.option(
        "--schema",
        ui.FILE,
        "Schema (TOML or JSON): public bounds or categories of columns, target, classes.",
    ),
    ui.option("--target", "Label column, if the schema names none.", metavar="COLUMN"),
    person_option,
    ui.option("--weight-column", "weight", "Column of row weights.", metavar="COLUMN"),
    ui.option(
        "--max-weight",
        ui.Real(0.0),
        "Public upper limit on weights: larger ones are clipped, and a row of this weight counts "
        "as one.  [default: 1]",
        metavar="W",
    ),
    ui.option(
        "--class-weight",
        "Public class weights (default 1), or 'balanced', from noisy counts.",
        metavar="CLASS=W,...",
    ),
    format_option,
    ui.memory_option("Memory limit; rows beyond it go to a temporary folder.", default="2GiB"),
    ui.option(
        "--temp", ui.FILE, "Parent of the temporary folder.  [default: TMPDIR]", metavar="DIR"
    ),
)
# Budget of a command, and the file that records it.
budget_options = ui.together(
    ui.option("--epsilon", ui.Real(0.0), "Total epsilon of this command.", metavar="E"),
    ui.delta_option(default=1e-6),
    ui.adjacency_option(),
    ui.option("--budget", ui.FILE, "Budget file to charge; create one with 'budget create'."),
    ui.option(
        "--periods",
        "Periods of the rows, comma-separated; only they are charged.",
        metavar="NAMES",
    ),
    ui.option("--seed", "random_state", ui.Integer(0), "Seed of the noise: NOT PRIVATE."),
    ui.option("--threads", "n_threads", ui.Integer(1), "Number of threads.  [default: all cores]"),
)
# Files that training writes.
model_file_options = ui.together(
    ui.option("-o", "--output", ui.FILE, "Model file to write (JSON)."),
    ui.option("--certificate", ui.FILE, "Certificate file to write; check it with 'verify'."),
    ui.option("--test-data", ui.FILE, "PUBLIC rows to test on, without noise."),
    ui.option("--force", "Replace existing files.", is_flag=True),
)


# Training rows of a command: whole in memory where they fit, else decoded to a private folder.
#
# Every cell is checked here, before anything is spent. Sizes are judged by public facts and by the
# size of the file, which the user of the command can see.


MIB = 1 << 20
# Memory of the program before it has read anything, where the system does not tell.
PROGRAM = 200 * MIB
# Below this, cutting rows into parts is useless.
MIN_MEMORY = 16 * MIB
# Blocks of rows in double precision, and what allocators keep.
TEMPORARIES = 72 * MIB
# Bytes of a number of a dense row: as it is decoded, and as records are packed.
NUMBER = 4
# Bytes of a stored entry of a sparse row: number and column.
ENTRY = 12
# Copies of a part of the rows while its sums are made, and more than anyone gains by.
PART_COPIES = 6

MAX_ROWS_OF_PART = 131_072
# A compressed file says nothing of its size; this is for the estimate of the disk alone.
USUAL_COMPRESSION = 5


class Room:
    """Memory available for rows.

    Parameters
    ----------
    max_memory : int
        Memory limit of the whole program in bytes.

    Raises
    ------
    CommandError
        The program itself needs more.
    """

    def __init__(self, max_memory: int) -> None:
        self._max_memory = max_memory
        if self.left < MIN_MEMORY:
            least = -(-(max_memory - self.left + MIN_MEMORY) // MIB)
            raise ui.CommandError(
                f"--max-memory: got {max_memory // MIB} MiB, expected at least {least} MiB, most "
                "of it for the program itself"
            )

    @property
    def left(self) -> int:
        """Return the currently available bytes."""
        return self._max_memory - _resident_size() - TEMPORARIES

    def part(self, n_features: int) -> int:
        """Return the rows per part that leave half of the memory for kept rows."""
        fitting = self.left // (2 * PART_COPIES * NUMBER * n_features)
        return int(min(MAX_ROWS_OF_PART, max(1, fitting)))

    def kept_parts(self, n_bytes: int, n_parts: int) -> int:
        """Return how many equal parts fit into memory besides the current one."""
        size = -(-n_bytes // n_parts)
        return max(0, min(n_parts, self.left // size - PART_COPIES))


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Checked rows with labels.

    Parameters
    ----------
    partitions : Partitions
        Rows in parts.
    folder : Path or None
        Folder of the decoded rows; None if they are in memory.
    X : ndarray, CSR matrix or None
        All rows; None if they are only in parts.
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
        """Estimated bytes of the records of rows in the folder."""
        if self.X is not None:
            return int(self.X.shape[0] * (self.X.shape[1] * NUMBER + 16))
        assert self.folder is not None
        return sum(file.stat().st_size for file in self.folder.iterdir())


def _largest_size(table: Any) -> float | None:
    """Estimate the largest size of the decoded rows in bytes; None if unknown."""
    n_rows = table.n_rows
    label = np.array(table.schema.classes or ()).itemsize
    if n_rows is None:
        # Arrow's files may be compressed, or have types whose values take no room at all.
        if is_compressed(table.path) or table.format == "arrow":
            return None
        if table.sparse:
            # An entry is four characters at least: 1:1 and a space. A row without any is two.
            return max(ENTRY / 4, (8 + label) / 2) * float(table.n_bytes_total)
        # A cell is one character at least: what separates it from the next.
        n_rows = table.n_bytes_total / len(table.schema.features)
    return float(n_rows * (table.n_features * NUMBER + label))


def _usual_size(table: Any) -> float:
    """Estimate the typical size of the decoded rows in bytes, for numbers of a few digits."""
    if table.n_rows is not None:
        return float(table.n_rows * table.n_features * NUMBER)
    size = table.n_bytes_total * (USUAL_COMPRESSION if is_compressed(table.path) else 1)
    return float(size * max(1.0, table.n_features / len(table.schema.features)))


def _about_folder(error: OSError, place: Path, table: Any) -> ui.CommandError:
    """Return the error, with advice, for rows that could not be decoded."""
    sizes = _usual_size(table), shutil.disk_usage(place).free
    needed, free = (max(1, round(n_bytes / 1e6)) for n_bytes in sizes)
    return ui.CommandError(
        f"{place}: cannot hold the decoded rows ({error.strerror or error}): about {needed} MB "
        f"needed, {free} MB free; name another folder with --temp, or raise --max-memory"
    )


@contextmanager
def _private_folder(temp: Path | None, table: Any) -> Iterator[Path]:
    """Create a folder that only this user can read; remove it at the end.

    Raises
    ------
    CommandError
        The folder cannot be created, or the disk clearly has too little space.
    """
    place = Path(tempfile.gettempdir() if temp is None else temp)
    try:
        folder = Path(tempfile.mkdtemp(prefix="dpsvm_fast-rows-", dir=place))
    except OSError as error:
        raise ui.CommandError(
            f"{place}: cannot make a temporary folder ({error.strerror}); name another folder with "
            "--temp"
        ) from None
    try:
        if shutil.disk_usage(folder).free < _usual_size(table) / 4:
            raise _about_folder(OSError("too little room"), place, table)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            ui.note(f"warning: {folder}: could not be removed; delete it, as it holds private rows")


def _resident_size() -> int:
    """Return the resident memory of this process in bytes."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "darwin":
        import resource

        return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return PROGRAM


# Spending of a command: the budget file, and whether a failure came before or after the spend.


class AttemptLedger(PrivacyLedger):
    """Ledger that records whether this process has tried to spend."""

    asked = False

    def spend(
        self, event: PrivacyEvent | tuple[PrivacyEvent, ...], label: str = "", **how: Any
    ) -> None:
        """Record the attempt, then spend."""
        self.asked = True
        super().spend(event, label, **how)


class Spending:
    """Spending of one command: its (epsilon, delta), and the ledger that records it.

    Parameters
    ----------
    options : dict
        Options of a command with ``budget_options``.
    schema : TableSchema
        Schema; if it names persons, they are protected.

    Raises
    ------
    CommandError, InvalidParameterError
        A number is missing or outside its range, or the file is not a suitable budget.
    """

    def __init__(self, options: dict[str, Any], schema: TableSchema) -> None:
        path, periods, adjacency = options["budget"], options["periods"], options["adjacency"]
        if options["random_state"] is not None and path is not None:
            raise ui.CommandError(
                "--seed: not private, so --budget would be spent for nothing; leave out one of the "
                "two"
            )
        if options["epsilon"] is None:
            raise ui.CommandError("--epsilon is missing; give one, such as 1")
        if periods is not None and path is None:
            raise ui.CommandError("--periods: needs a --budget that declares them")
        self.epsilon = check.check_epsilon("epsilon", options["epsilon"])
        self.delta = check.check_delta("delta", options["delta"])
        self.path, self.unit = path, "row" if schema.person is None else "person"
        if path is None:
            # A ledger in memory, which also knows whether the spend has happened.
            budget = (self.epsilon, self.delta, adjacency or "add_remove")
            self.ledger: Any = AttemptLedger(*budget, unit=self.unit, strict=False)
        else:
            self.ledger = opened_budget(path, AttemptLedger, to_spend=True)
            if periods is not None:
                self.ledger = self.ledger.for_periods(*periods.split(","))
        self.adjacency = self.ledger.adjacency
        if adjacency not in (None, self.adjacency):
            raise ui.CommandError(
                f"--adjacency: got {adjacency!r}, expected {self.adjacency!r}, as in {path}; leave "
                "it out"
            )
        if self.unit != self.ledger.unit:
            raise ui.CommandError(
                f"--budget: the unit of {path} is a {self.ledger.unit}, this command protects a "
                f"{self.unit}; make another budget: dpsvm-fast budget create --unit {self.unit}"
            )
        self._before = len(self.ledger.history)
        # Set once there is a model.
        self.saved = False

    def check(self, estimator: Any, table: Table, *, n_classes: int, sparse: bool) -> None:
        """Refuse a training that would exceed the budget or does not support the table's owners.

        No row is read.

        Raises
        ------
        BudgetExceededError, CommandError, InvalidParameterError, TypeError
            The budget is too small, persons or weights are not supported, or a parameter is outside
            its range.
        """
        trainer = trainer_of(estimator)
        taken, owners = takes(trainer.checked()), table.schema.owners
        for role, name in zip(owners, table.owners, strict=False):
            if name not in taken:
                raise ui.CommandError(
                    f"--{role}-column: {type(trainer).__name__} with these options protects rows "
                    "of equal weight only; use --model linear, or drop the column (ignore = true "
                    "in the schema)"
                )
        known: dict[str, Any] = {"n_classes": n_classes, "sparse": sparse}
        facts = Facts(unit=self.unit, weighted="weight" in owners, **known)
        self.ledger.check(planned_events(estimator, facts), unit=self.unit)

    @property
    def spent(self) -> bool:
        """Whether this process has charged the ledger."""
        if not self.ledger.asked:
            return False
        own = os.getpid()
        return any(record.process == own for record in self.ledger.history[self._before :])

    @contextmanager
    def explain_failures(self) -> Iterator[None]:
        """Make every failure in the body say whether the budget is spent."""
        try:
            with _terminated_like_interrupted():
                yield
        except BudgetExceededError as error:
            raise ui.CommandError(self._refusal(error), ui.OVERSPENT) from None
        except (Exception, KeyboardInterrupt) as error:
            kept = (ui.CommandError, InvalidParameterError, OSError)
            if isinstance(error, kept) and not self.spent:
                # The name of an argument still has to be replaced by that of an option.
                raise
            sentence, code = ui.judged(error)
            if ui.is_own_error(error) or isinstance(error, (ValueError, TypeError)):
                # The clause below says what is spent.
                sentence = re.sub("[;.] [Tt]he budget is spent$", "", str(error).removesuffix("."))
            raise ui.CommandError(f"{sentence}; {self.spent_clause()}", code) from None

    @contextmanager
    def hide_other_messages(self) -> Iterator[None]:
        """Hide messages of other packages, which may quote cells, while rows are in memory.

        Raises
        ------
        CommandError
            It replaces an error of another package, or an unexpected one.
        """
        try:
            yield
        except (ui.CommandError, MemoryError, ImportError):
            raise
        except Exception as error:
            if ui.is_own_error(error) or (isinstance(error, OSError) and error.errno is not None):
                raise
            sentence = ui.unexpected(error)
            if not self.spent:
                sentence = f"{sentence}; {self.spent_clause()}"
            raise ui.CommandError(sentence) from None

    def spent_clause(self) -> str:
        """Return a clause that says whether the budget is spent."""
        if not self.spent:
            return "nothing was spent"
        amount = f"epsilon = {self.epsilon:g}, delta = {self.delta:g}"
        where = "" if self.path is None else f" of {self.path}"
        end = "" if self.saved else ", but there is no model"
        return f"the budget{where} is spent ({amount}){end}"

    def report(self, screen: ui.Screen) -> dict[str, Any] | None:
        """Report the remaining budget of the file, and return it for ``--json``."""
        if self.path is None:
            return None
        (epsilon, delta), left = (self.ledger.epsilon, self.ledger.delta), self.ledger.remaining()
        screen.say(f"{self.path}: epsilon = {left:.6g} is left of {epsilon:g} at delta = {delta:g}")
        facts = {"epsilon": epsilon, "delta": delta, "remaining_epsilon": left}
        return {"file": self.path, **facts}

    def _refusal(self, error: BudgetExceededError) -> str:
        """Return the error that says what is left, and what to do."""
        ledger = self.ledger
        left = _rounded_down(ledger.remaining(), least=1e-3 * ledger.epsilon)
        if self.path is None:
            return str(error)
        have = (
            f"{self.path}: epsilon = {left:g} of {ledger.epsilon:g} is left at delta = "
            f"{ledger.delta:g}, this command needs epsilon = {self.epsilon:g}, delta = "
            f"{self.delta:g}; nothing was spent"
        )
        if self.delta > ledger.delta:
            return f"{have}; give --delta {ledger.delta:g} or less"
        if left > 0.0:
            return f"{have}; give --epsilon {left:g} or less"
        return f"{have}; this budget allows no further use of the data"


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as KeyboardInterrupt, so that no private rows stay on disk."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            # A program started with nohup continues.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _rounded_down(value: float, least: float) -> float:
    """Round down to three digits for typing; 0 if too small to use."""
    if value < least:
        return 0.0
    digits = 2 - math.floor(math.log10(value))
    return math.floor(value * 10.0**digits) / 10.0**digits


# One training: its request, open resources, and end.


@dataclass(frozen=True)
class Task:
    """Training command before it reads a row.

    Parameters
    ----------
    screen : Screen
    options : dict
        Options of a command with ``table_options``, ``budget_options`` and ``model_file_options``.
    spending : Spending
    drafts : list of Draft
        Drafts of the model and, if requested, its certificate.
    table : Table
        Table of private rows.
    tested : Table or None
        Table of public test rows.
    room : Room
    """

    screen: ui.Screen
    options: dict[str, Any]
    spending: Spending
    drafts: list[Draft]
    table: Table
    tested: Table | None
    room: Room

    @contextmanager
    def rows(self, copies: int) -> Iterator[TrainingRows]:
        """Read and check all rows; a temporary folder is always removed.

        Parameters
        ----------
        copies : int
            Number of copies of the rows that a fit in memory needs.

        Raises
        ------
        TableError, CommandError, OSError
            A row violates the schema or cannot be read. Nothing was spent.
        """
        table, size = self.table, _largest_size(self.table)
        step = self.room.part(table.n_features)
        reading = self.screen.progress("Reading", table.n_bytes_total or None)
        with self.spending.hide_other_messages():
            if size is not None and size * max(2, copies) <= self.room.left:
                with reading as advance:
                    X, y, *own = table.read(on_bytes=advance)
                if X.shape[0] == 0:
                    raise ui.CommandError(f"{table.path}: has no rows")
                owners = own[0] if own else {}
                parts = Partitions.from_arrays(X, y, rows_per_partition=step, **owners)
                yield TrainingRows(parts, X=X, y=y, owners=owners)
                return
            with _private_folder(self.options["temp"], table) as folder:
                try:
                    with reading as advance:
                        how: dict[str, Any] = {"rows_per_partition": step}
                        parts = table.to_partitions(folder, on_bytes=advance, **how)
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

    def whole(self, rows: TrainingRows, copies: int, advice: str) -> tuple[Any, Any]:
        """Return all rows and labels: in memory, memory-mapped, or joined from parts.

        Raises
        ------
        CommandError
            That many copies do not fit into memory; ``advice`` names an alternative.
        """
        if rows.folder is not None and rows.n_bytes * copies > self.room.left:
            raise ui.CommandError(
                "--max-memory: this training needs several copies of all rows in memory; raise it, "
                f"or {advice}"
            )
        if rows.X is not None:
            return rows.X, rows.y
        parts = [loader() for loader in rows.partitions.loaders]
        return sparse.vstack([X for X, _ in parts], "csr"), np.concatenate([y for _, y in parts])

    def finish(self, model: Any, statement: Any, **more: Any) -> None:
        """Write the fitted model and report the result, with ``more``.

        Raises
        ------
        CommandError
            A file could not be written; the message says where the model is, because its budget is
            spent. Or a public row violates the schema.
        """
        draft, *others = self.drafts
        try:
            save_model(model, draft.draft, schema=self.table.schema)
            draft.publish()
        except OSError as error:
            elsewhere = "nor anywhere else"
            with suppress(OSError):
                place = Path(tempfile.mkdtemp(prefix="dpsvm_fast-model-")) / "model.json"
                save_model(model, place, schema=self.table.schema)
                self.spending.saved, elsewhere = True, f"but is in {place}: move it"
            reason = error.strerror or error
            raise ui.CommandError(
                f"{draft.path}: the model cannot be written ({reason}), {elsewhere}"
            ) from None
        self.spending.saved = True
        for certificate in others:
            try:
                save_certificate(draft.path, certificate.draft)
                certificate.publish()
            except OSError as error:
                reason = error.strerror or error
                raise ui.CommandError(
                    f"{certificate.path}: cannot write the certificate ({reason}); the model is "
                    f"saved as {draft.path}: write it with dpsvm-fast statement "
                    f"{ui.typed(draft.path)} --certificate FILE"
                ) from None
        scored = None if self.tested is None else self._accuracy(model, self.tested)
        self._report(type(trainer_of(model)).__name__, statement, scored, more)

    def _accuracy(self, model: Any, table: Table) -> float:
        """Return the accuracy on public rows."""
        right = total = 0
        saved = f"the model is saved as {self.options['output']}"
        try:
            with self.screen.progress("Testing", table.n_bytes_total or None) as advance:
                for X, y in table.batches(on_bytes=advance):
                    right += int(np.count_nonzero(model.predict(X) == y))
                    total += len(y)
        except TableError as error:
            raise ui.CommandError(f"{error}; {saved}") from None
        if total == 0:
            raise ui.CommandError(f"{table.path}: has no rows to test on; {saved}")
        return right / total

    def _report(self, name: str, statement: Any, scored: float | None, more: Any) -> None:
        """Report the guarantee, the files, and the next commands."""
        screen, options = self.screen, self.options
        output, data = options["output"], options["data"]
        packed = data.suffix.lower() == ".gz"
        ending = "".join(data.suffixes[-2:]) if packed else data.suffix
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
                f"accuracy on the rows of {options['test_data']}: {scored:.4f} (without privacy: "
                "these rows must be public)"
            )
        screen.result(
            {
                "model": output,
                "certificate": options["certificate"],
                "estimator": name,
                **{one: getattr(statement, one) for one in PROMISED},
                "budget": self.spending.report(screen),
                "public_test_accuracy": scored,
                **more,
            }
        )
        screen.say(
            f"next: dpsvm-fast statement {ui.typed(output)}\n"
            f"      dpsvm-fast predict {ui.typed(output)} NEW{ending} -o predictions.csv"
        )


@contextmanager
def training(screen: ui.Screen, options: dict[str, Any]) -> Iterator[Task]:
    """Prepare a training command whose failures say what was spent.

    Raises
    ------
    CommandError, InvalidParameterError, TableError
        An option, the schema, the budget, a table or an output is missing or wrong. Nothing was
        spent.
    """
    if options["output"] is None:
        raise ui.CommandError("--output is missing; name the model file, such as -o model.json")
    if options["schema"] is None:
        raise ui.CommandError(
            "--schema is missing: bounds and classes are declared, never read from private data; "
            "write a template with --write-schema FILE, fill it in, and pass it as --schema FILE"
        )
    roles = {role: options[role] for role in ROLES if options[role] is not None}
    schema = dataclasses.replace(TableSchema.load(options["schema"]), **roles)
    if schema.classes is None:
        raise ui.CommandError(
            f"{options['schema']}: the classes are not declared, and are never read from private "
            'data; write a line such as classes = ["no", "yes"] at the top of the file'
        )
    spending = Spending(options, schema)
    outputs = (options["output"], options["certificate"])
    inputs = [options.get(name) for name in INPUTS]
    held = reserved(*outputs, force=options["force"], inputs=inputs)
    with held as drafts, spending.explain_failures():
        room = Room(options["max_memory"])
        table = open_table(
            options["data"],
            schema,
            format=options["data_format"],
            owners=True,
            max_memory=max(MIN_MEMORY // 4, room.left // 2),
        )
        if table.sparse and options["model"] in DENSE_ONLY:
            raise ui.CommandError(
                f"--model: got {options['model']!r}, which needs dense rows; a LIBSVM file needs "
                "another model"
            )
        if table.sparse and wants_splines(schema, options):
            raise ui.CommandError("--splines: need dense rows, not a LIBSVM file or text")
        tested = None
        if options["test_data"] is not None:
            tested = open_table(options["test_data"], table.schema)
            if options["test_data"].samefile(options["data"]):
                raise ui.CommandError(
                    f"--test-data: got {options['test_data']}, whose rows are trained on and "
                    "private, expected a file of public rows"
                )
        yield Task(screen, options, spending, drafts, table, tested, room)


# Copies of all rows that a fit needs, in the size in which they are decoded: rows and packed
# records; rows, mapped rows and the solver's; and the scalers' double precision in addition.
DESCENT, SOLVER, PIPELINE = 2, 4, 8
# Components of a kernel, where they are chosen by its rule.
FEATURES = 1000
# With less memory, features of a kernel are recomputed in every step; they take up to 256 MiB.
ROOM_FOR_FEATURES = 1024 * MIB


def growth_of(estimator: Any, n_features: int) -> int:
    """Return the memory of mapped rows relative to raw rows, at least 1."""
    first = estimator.steps[0][1] if isinstance(estimator, Pipeline) else None
    if isinstance(first, PublicImageFeatures):
        names = first.fit(np.zeros((1, n_features))).get_feature_names_out()
        return -(-len(names) // n_features)
    return 2 * ENTRY // NUMBER if isinstance(first, PublicSplines) else 1


def copies_of(estimator: Any, n_features: int) -> int:
    """Return how many copies of the rows a fit in memory holds."""
    growth = growth_of(estimator, n_features)
    if partitioned.sums_suffice(trainer_of(estimator)):
        return DESCENT * growth
    if isinstance(trainer_of(estimator), PrivateKernelSVC):
        # A sine and a cosine of each component.
        return SOLVER * -(-2 * FEATURES // n_features)
    return growth * (PIPELINE if isinstance(estimator, Pipeline) else SOLVER)


def train(task: Task, estimator: Any, rows: TrainingRows) -> None:
    """Fit an estimator on checked rows, which charges its ledger.

    Raises
    ------
    CommandError
        The rows do not fit into memory for this training. Nothing was spent.
    """
    n_features, trainer = rows.partitions.n_features, trainer_of(estimator)
    if not partitioned.sums_suffice(trainer):
        advice = "train in parts with --model linear --mechanism gradient"
        X, y = task.whole(rows, copies_of(estimator, n_features), advice)
        prefix = f"{STEP}__" if isinstance(estimator, Pipeline) else ""
        # The number of a solver's iterations depends on the rows: show only that it works.
        with task.screen.progress("Training", None):
            estimator.fit(X, y, **{prefix + name: own for name, own in rows.owners.items()})
        return
    # Otherwise every prediction would need names; the schema has them.
    parts = dataclasses.replace(rows.partitions, feature_names=None)
    for _, step in estimator.steps[:-1] if isinstance(estimator, Pipeline) else ():
        # It learns nothing from rows.
        parts = parts.transformed(step.fit(np.zeros((1, parts.n_features))))
    # Always a folder, even if nothing is written to it: rows are then rounded the same way,
    # however many of them there are.
    kept, scratch = len(parts), Path(tempfile.gettempdir())
    if rows.folder is not None:
        n_bytes = growth_of(estimator, n_features) * rows.n_bytes
        kept = task.room.kept_parts(n_bytes, len(parts))
        scratch = rows.folder / "mapped"
        scratch.mkdir(mode=0o700)
    small = isinstance(trainer, PrivateKernelSVC) and task.room.left < ROOM_FOR_FEATURES
    if small:
        before = trainer.low_memory
        trainer.set_params(low_memory=True)
    with task.screen.progress("Training", None) as advance:
        partitioned.fit(trainer, parts, resident=kept, scratch=scratch, on_step=advance)
    if small:
        # Saved with the model, which must not reveal how much room the rows left.
        trainer.set_params(low_memory=before)


# ``dpsvm-fast fit``: train a private model on the rows of a file.


EXAMPLE = ui.example(
    "dpsvm-fast fit people.csv --write-schema people.toml --target income",
    "dpsvm-fast fit people.csv --schema people.toml --epsilon 1 --delta 1e-6 -o model.json",
)


@click.command("fit", epilog=EXAMPLE)
@table_options
@ui.option("--write-schema", ui.FILE, "Write a schema template from the column names, and stop.")
@budget_options
@ui.option(
    "--model",
    ui.OneOf(CLASSES),
    "Pipeline (linear, kernel), or one mechanism on rows of norm 1.",
    default="linear",
)
@ui.option("--mechanism", ui.OneOf(MECHANISMS), "Mechanism of the pipeline.  [default: auto]")
@ui.option("--kernel", ui.OneOf(KERNELS), "Kernel of --model kernel.  [default: auto]")
@map_options
@model_file_options
@ui.pass_screen
def fit_command(screen: ui.Screen, **options: Any) -> None:
    """Train a private model on DATA: CSV, TSV, Parquet, Arrow, npz or LIBSVM text; - is stdin.

    --schema declares bounds, categories and classes, which are public. All rows are checked before
    any budget is spent.
    """
    if options["write_schema"] is not None:
        _write_schema(screen, options)
        return
    with training(screen, options) as task:
        spending, table = task.spending, task.table
        given = ("mechanism", "kernel", "random_state")
        estimator = build(
            table.schema,
            spending,
            options,
            epsilon=spending.epsilon,
            ledger=spending.ledger,
            **{name: options[name] for name in given},
        )
        n_classes = len(table.schema.classes or ())
        mapped = wants_splines(table.schema, options) and options["model"] not in DENSE_ONLY
        spending.check(estimator, table, n_classes=n_classes, sparse=table.sparse or mapped)
        with task.rows(copies_of(estimator, table.n_features)) as rows:
            train(task, estimator, rows)
        task.finish(estimator, trainer_of(estimator).privacy_)


def _class_weight(schema: TableSchema, text: str | None) -> Any:
    """Parse class weights.

    Raises
    ------
    CommandError
        A weight is not a number, or its class is unknown.
    """
    if text in (None, "balanced"):
        return text
    labels, found = {str(label): label for label in schema.classes or ()}, {}
    for one in text.split(","):
        name, _, weight = one.rpartition("=")
        try:
            found[labels[name.strip()]] = float(weight)
        except (KeyError, ValueError):
            raise ui.CommandError(
                f"--class-weight: got {one!r}, expected CLASS=WEIGHT for classes of the schema, "
                f"such as {next(iter(labels))}=2"
            ) from None
    return found


def _write_schema(screen: ui.Screen, options: dict[str, Any]) -> None:
    """Write a schema template; only the header of the file is read."""
    data, path = options["data"], options["write_schema"]
    roles = {role: options[role] for role in ("target", "person")}
    text = TableSchema.template(data, format=options["data_format"], **roles)
    with reserved(path, force=options["force"], inputs=[data]) as (draft,):
        if path.suffix.lower() != ".toml":
            raise ui.CommandError(
                f"--write-schema: got {path.name!r}, expected a name that ends in .toml"
            )
        draft.write(text)
    screen.say(
        f"{path}: fill in public bounds or categories of every column, the target and the classes, "
        f"then\n  dpsvm-fast fit {ui.typed(data)} --schema {ui.typed(path)} --epsilon 1 "
        "-o model.json"
    )
    screen.result({"schema": path})
