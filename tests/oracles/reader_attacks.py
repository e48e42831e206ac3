"""Files of every kind that the library reads, with bytes changed: what reading them may do.

A reader may refuse a file with its own error, or read it. It may not raise another error, take more
than its memory and time, or quote cells. Files are read in processes of their own, which end where
a file takes far too much; ``python -m oracles.reader_attacks FOLDER FIRST LAST ENTROPY STORED`` is
one. Files that broke a reader are kept in tests/stored/readers.
"""

from __future__ import annotations

import atexit
import copy
import gzip
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np

from dpsvm_fast import PrivacyLedger, verify
from dpsvm_fast.certificates import GaussianEvent
from dpsvm_fast.cli import app, statement
from dpsvm_fast.cli.files import read_document
from dpsvm_fast.cli.screen import CommandError
from dpsvm_fast.data import TableSchema, open_table
from dpsvm_fast.data.readers import npz_width
from dpsvm_fast.exceptions import (
    InvalidParameterError,
    InvalidTypeError,
    LedgerError,
    ModelFormatError,
    TableError,
)
from dpsvm_fast.federated import FederatedSpec
from dpsvm_fast.persist import load_model, save_model
from dpsvm_fast.verification.verify import model_document
from oracles.saved import fitted, sealed
from oracles.stored import CORPUS, STORED, repeated

TYPED = (
    *(InvalidParameterError, InvalidTypeError, LedgerError, ModelFormatError, TableError),
    CommandError,
)
MAX_MEMORY, MAX_SECONDS, LONGEST_MESSAGE = 256 * 2**20, 10.0, 6000
# Where a process ends: seconds of one file, and bytes of addresses beyond those at the start.
LAST_SECONDS, LAST_MEMORY = 30, 4 * 2**30
SECRET = "s3cr3t"
COLUMNS = {
    "age": {"bounds": [0, 100], "missing": 1},
    "work": {"categories": ["p", "q"], "unknown": "none", "missing": "none"},
    "old": {"boolean": True},
    "note": {"ignore": True},
}
SCHEMA = {"target": "y", "classes": ["no", "yes"], "columns": COLUMNS}
MATRIX = {"classes": [0, 1], "all_other_columns": {"bounds": [-9, 9], "missing": 0}}
INTERESTING = [
    *(b'"', b'""', b"\n", b"\r", b"\r\n", b",", b";", b"\0", b"\xff", b"\xef\xbb\xbf", b"#", b":"),
    *(b"-1", b"1e999", b"nan", b"inf", b"9" * 400, b"1e-400", b"null", b"true", b"[", b"]", b"{}"),
    *(b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\xff" * 8, b"\0" * 8, b"\x80" + b"\0" * 7),
    *(b"1000000000", b"(1000000000, 2)", b"'<U9999999'", b"'|O'", b"True", b"\\ud800", b"a" * 300),
]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1, 3, 2**31, 2**63, 2**64, -(10**30), 0.0, -0.0, 1e-300, 1e300),
    *(0.5, "", "x", "rbf", "\ud800", "a" * 5000, [], {}, [[]], [None], {"": None}, [0.0, 1.0]),
    {"dtype": "<f8", "shape": [1], "data": "AAAAAAAAAAA="},
]


@dataclass(frozen=True)
class Seed:
    """A good file, and how files like it are read."""

    name: str
    content: bytes
    read: Callable[[Path], Any]


def rows_of(record: dict[str, Any], **how: Any) -> Callable[[Path], Any]:
    """Read a table to its end."""
    schema = TableSchema.from_dict(record)

    def read(path: Path) -> None:
        for X, _ in open_table(path, schema, **how).batches():
            values = X.data if hasattr(X, "tocsr") else X
            assert np.isfinite(values).all()

    return read


def model(path: Path) -> None:
    """Load a model, some with their certificates recomputed, and use it."""
    found = load_model(path, verify=zlib.crc32(path.read_bytes()) % 4 == 0)
    use = getattr(found, "predict", None) or found.transform
    use(np.zeros((1, found.n_features_in_)))


def seeds() -> list[Seed]:
    """One file of each kind; the same in every run, but for the noise in models."""
    import pyarrow as pa
    from pyarrow import parquet

    text = "y,age,work,old,note\n" + f"no,1.5,p,true,{SECRET}\nyes,,q,0,\n" * 3
    quoted = text.replace("p,", '"p",').replace(SECRET, f'"{SECRET}\n, ""x"')
    libsvm = "1 1:0.5 3:-2e-3 # x\n0 2:1\n1\n" * 3
    table = pa.table(
        {
            "y": ["no", "yes"] * 3,
            "age": [1.5, 2.0, None] * 2,
            "work": pa.array(["p", "q", "r"] * 2).dictionary_encode(),
            "old": [True, False] * 3,
            "note": [SECRET] * 6,
        }
    )
    found = [
        Seed("t.csv", text.encode(), rows_of(SCHEMA)),
        Seed("q.csv", quoted.encode(), rows_of(SCHEMA)),
        Seed("t.csv.gz", gzip.compress(text.encode(), mtime=0), rows_of(SCHEMA)),
        Seed(
            "w.csv",
            text.encode("utf-16"),
            rows_of(SCHEMA | {"csv": {"encoding": "utf-16"}}),
        ),
        Seed(
            "n.tsv",
            b"1\t0.5\t0\n0\t\t1\n",
            rows_of(MATRIX | {"target": 0, "csv": {"header": False, "delimiter": "\t"}}),
        ),
        Seed("t.svm", libsvm.encode(), rows_of(MATRIX | {"n_features": 3})),
        Seed(
            "t.svm.gz",
            gzip.compress(libsvm.encode(), mtime=0),
            rows_of(MATRIX | {"n_features": 3}, labelled=False),
        ),
        *npz_seeds(),
        *(
            Seed(name, content, rows_of(SCHEMA))
            for name, content in arrow_files(pa, parquet, table)
        ),
        Seed("s.json", json.dumps(SCHEMA).encode(), TableSchema.load),
        Seed("s.toml", toml_text().encode(), TableSchema.load),
        Seed("x.policy.toml", POLICY.encode(), policy),
        Seed("x.project.toml", b'[fit]\nepsilon = 2\nmodel = "linear"\n', project),
        Seed("x.spec.json", SPEC.to_json().encode(), specification),
        Seed("budget.ledger", ledger_file(), ledger),
        Seed("x.snapshot.json", (STORED / "ledger_v1.json").read_bytes(), snapshot),
        Seed("x.anchor", anchor_file(), anchor),
    ]
    return [*found, *document_seeds()]


def corpus() -> list[Seed]:
    """Every file that is kept, with each reader of its kind."""
    found = []
    for path in sorted(set(CORPUS.iterdir()) - {CORPUS / "README.md"}):
        name, content = path.name, path.read_bytes()
        if name.endswith(".ledger.gz"):
            name, content = name.removesuffix(".gz"), gzip.decompress(content)
        found += [Seed(name, content, read) for read in READERS[name.partition(".")[2]]]
    return found


def npz_width_of(path: Path) -> None:
    """Ask only for the number of columns."""
    npz_width(str(path))


def ledger_file() -> bytes:
    """A budget with two spends."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "budget"
        kept = PrivacyLedger(3.0, 1e-5, path=path)
        kept.spend(GaussianEvent(5.0, 1.0, "add_remove"), "first")
        kept.spend(GaussianEvent(9.0, 0.5, "add_remove"), "second")
        return path.read_bytes()


@cache
def anchored() -> tuple[Path, Path, bytes]:
    """A budget and its anchor, in a folder of their own; and what says whose anchor it is."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    path, beside = Path(folder.name) / "budget", Path(folder.name) / "anchor"
    PrivacyLedger(3.0, 1e-5, path=path, anchor=beside).spend(GaussianEvent(5.0, 1.0, "add_remove"))
    return path, beside, beside.read_bytes().split()[3]


def anchor_file() -> bytes:
    """Its anchor, of any budget."""
    _, beside, identity = anchored()
    return beside.read_bytes().replace(identity, IDENTITY)


def anchor(path: Path) -> None:
    """Open a budget with these bytes as its anchor."""
    budget, beside, identity = anchored()
    beside.write_bytes(path.read_bytes().replace(IDENTITY, identity))
    ledger(budget)


def ledger(path: Path) -> None:
    """Open a budget, and ask what is left."""
    found = PrivacyLedger.open(path)
    assert found.remaining() >= 0.0
    assert isinstance(str(found), str)


def snapshot(path: Path) -> None:
    """Load the copy of a budget, and ask what is left."""
    assert PrivacyLedger.load(path).remaining() >= 0.0


def toml_text() -> str:
    """The schema as TOML."""
    return (
        'target = "y"\nclasses = ["no", "yes"]\n[columns]\nage = { bounds = [0, 9], missing = 1 }\n'
        'work = { categories = ["p", 2], unknown = "none" }\nold = { boolean = true }\n'
        '[columns."a b"]\nignore = true\n[csv]\ndelimiter = ";"\nmissing_values = ["", "x"]\n'
    )


SPEC = FederatedSpec.dp_helmet(
    n_users=4, n_features=4, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=20, n_epochs=2
)
POLICY = 'epsilon = 1e4\ndelta = 0.5\nunit = ["row"]\nforbidden_caveats = ["cluster"]\n'
IDENTITY = b"IDENTITY"


def npz_seeds() -> Iterator[Seed]:
    """Both orders, packed and not, with labels of numbers and of text."""
    X = np.arange(12.0).reshape(4, 3) / 7
    for name, order, save, labels, classes in (
        ("c.npz", "C", np.savez, [0, 1, 1, 0], [0, 1]),
        ("f.npz", "F", np.savez_compressed, ["no", "yes", "no", "no"], ["no", "yes"]),
    ):
        stream = io.BytesIO()
        save(stream, X=np.asarray(X, order=order), y=np.array(labels))
        yield Seed(name, stream.getvalue(), rows_of(MATRIX | {"classes": classes}))


def arrow_files(pa: Any, parquet: Any, table: Any) -> Iterator[tuple[str, bytes]]:
    """Parquet, and Arrow as a file, packed, and as a stream."""
    for name, compression in (("p.parquet", "none"), ("z.parquet", "zstd")):
        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink, compression=compression, row_group_size=4)
        yield name, sink.getvalue().to_pybytes()
    for name, make, compression in (
        ("a.arrow", pa.ipc.new_file, None),
        ("z.arrow", pa.ipc.new_file, "zstd"),
        ("s.arrow", pa.ipc.new_stream, None),
    ):
        sink = pa.BufferOutputStream()
        how = pa.ipc.IpcWriteOptions(compression=compression)
        with make(sink, table.schema, options=how) as writer:
            writer.write_table(table)
        yield name, sink.getvalue().to_pybytes()


def document_seeds() -> list[Seed]:
    """Models of some classes, and their certificates."""
    found = []
    for name in ("output", "linear", "kernel", "standard scaler", "pca", "features", "pipeline"):
        estimator = fitted(name)
        path = Path(tempfile.mkdtemp()) / "model.json"
        save_model(estimator, path)
        found.append(Seed(f"{name.replace(chr(32), chr(45))}.model.json", path.read_bytes(), model))
        path.unlink()
        path.parent.rmdir()
        if hasattr(estimator, "privacy_"):
            text = estimator.privacy_.to_json().encode()
            found.append(
                Seed(f"{name.replace(chr(32), chr(45))}.certificate.json", text, certificate)
            )
    return found


def text_of(path: Path) -> str:
    """Any bytes as text."""
    return path.read_bytes().decode("utf-8", errors="surrogateescape")


def certificate(path: Path) -> None:
    """Verify what may be a certificate."""
    verify(text_of(path))


def document(path: Path) -> None:
    """Read what may be a certificate or a model, as commands do."""
    read_document(path, None)


def specification(path: Path) -> None:
    """Read what may be agreed on by parties."""
    FederatedSpec.from_json(text_of(path))


def policy(path: Path) -> None:
    """Read what may be rules."""
    statement._rules(path)


def project(path: Path) -> None:
    """Read what may be options of commands."""
    with mock.patch.object(app, "PROJECT", path):
        app._project(["fit"], ("epsilon", "model"))


CSV = (rows_of(SCHEMA), rows_of(SCHEMA | {"csv": {"encoding": "utf-16"}}))
LIBSVM = (
    rows_of(MATRIX | {"n_features": 3}),
    rows_of(MATRIX | {"n_features": 3, "zero_based": True}, labelled=False),
)
NPZ = (*(rows_of(MATRIX | {"classes": one}) for one in ([0, 1], ["no", "yes"])), npz_width_of)
TABLE = (rows_of(SCHEMA), rows_of(MATRIX | {"target": "y"}, labelled=False))
# Readers by the end of a file's name.
READERS: dict[str, tuple[Callable[[Path], Any], ...]] = {
    **dict.fromkeys(("csv", "csv.gz", "tsv"), CSV),
    **dict.fromkeys(("svm", "svm.gz"), LIBSVM),
    **dict.fromkeys(("parquet", "arrow"), TABLE),
    "npz": NPZ,
    **dict.fromkeys(("schema.json", "toml"), (TableSchema.load,)),
    "model.json": (model, load_model, document, model_document),
    "certificate.json": (certificate, document),
    "spec.json": (specification,),
    **dict.fromkeys(("policy.toml", "policy.json"), (policy,)),
    "project.toml": (project, TableSchema.load),
    "ledger": (ledger,),
    "anchor": (anchor,),
    "snapshot.json": (snapshot,),
}


def changed_bytes(random: Random, content: bytes, others: list[bytes]) -> bytes:
    """Some changes at random places."""
    data = bytearray(content)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        at = random.randrange(len(data) + 1)
        to = min(len(data), at + random.choice((1, 1, 2, 4, 8, 40, 400)))
        kind = random.randrange(8)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1 and at < len(data):
            data[at] = random.randrange(256)
        elif kind == 2:
            del data[at:to]
        elif kind == 3:
            data[at:at] = data[at:to] * random.choice((1, 2, 50))
        elif kind == 4:
            data[at:at] = random.choice(INTERESTING)
        elif kind == 5:
            token = random.choice(INTERESTING)
            data[at : at + len(token)] = token
        elif kind == 6:
            other = random.choice(others)
            start = random.randrange(len(other) + 1)
            data[at:to] = other[start : start + random.choice((1, 8, 100))]
        elif random.randrange(4) == 0:
            del data[at:]
    return bytes(data)


def changed_document(random: Random, content: bytes) -> bytes:
    """A JSON document with other values in it; a model is sealed again."""
    document = json.loads(content)
    for _ in range(random.choice((1, 1, 2, 3))):
        inner, ways = document, []
        while isinstance(inner, (dict, list)) and inner:
            key = (
                random.choice(list(inner))
                if isinstance(inner, dict)
                else random.randrange(len(inner))
            )
            ways.append((inner, key))
            inner = inner[key]
        if not ways:
            break
        place, key = random.choice(ways)
        if random.randrange(6) == 0:
            del place[key]
        else:
            value = copy.deepcopy(random.choice(ODD))
            if isinstance(place[key], (int, float)) and random.randrange(2):
                value = place[key] * random.choice((-1, 0, 0.5, 2, 1e-9, 1e9, 1e300))
            place[key] = value
    if isinstance(document, dict) and "sha256" in document:
        document = sealed(document)
    return json.dumps(document).encode()


def changed(random: Random, seed: Seed, others: list[bytes]) -> bytes:
    """One changed file."""
    content = seed.content
    # A file that is kept may be damaged already.
    with suppress(ArithmeticError, ValueError, RecursionError, OSError, EOFError, zlib.error):
        if seed.name.endswith(".json") and random.randrange(4):
            return changed_document(random, content)
        if seed.name.endswith(".gz") and random.randrange(2):
            return gzip.compress(changed_bytes(random, gzip.decompress(content), others), mtime=0)
    return changed_bytes(random, content, others)


def resident(kind: str) -> int:
    """Bytes of memory now (VmRSS) or at most (VmHWM); 0 where the system does not tell."""
    try:
        found = re.search(rf"{kind}:\s+(\d+)", Path("/proc/self/status").read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


def forget_peak() -> None:
    """Let the largest memory so far be that of now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def fault_of(seed: Seed, path: Path) -> str | None:
    """What reading a file did that it must not do."""
    forget_peak()
    before, started = resident("VmRSS"), time.process_time()
    fault = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seed.read(path)
    except TYPED as error:
        text = str(error)
        if len(text) > LONGEST_MESSAGE:
            fault = f"a message of {len(text)} characters: {text[:80]}"
        # Names of columns are public; a changed file may have a row in their place.
        if SECRET in text and re.search(r"row \d", text):
            fault = f"a message with a cell: {text[:200]}"
    except BaseException as error:
        fault = f"{type(error).__name__}: {str(error)[:200]}"
    seconds, n_bytes = time.process_time() - started, resident("VmHWM") - before
    if seconds > MAX_SECONDS or n_bytes > MAX_MEMORY:
        fault = f"{seconds:.1f} s, {n_bytes >> 20} MiB ({fault})"
    return fault


def read_changed(folder: Path, first: int, last: int, entropy: int, stored: int) -> None:
    """Read changed files of these numbers; print the number of each, and what went wrong."""
    # Most mutants are of good files: fewer checks refuse them.
    every = [*seeds() * 4, *corpus()] if stored else seeds()
    others = [seed.content for seed in every]
    try:
        import resource
    except ImportError:
        resource = None  # type: ignore[assignment]
    else:
        most = resident("VmSize") + LAST_MEMORY
        if most > LAST_MEMORY:
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    for number in range(first, last):
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        if resource is not None:
            until = int(time.process_time()) + LAST_SECONDS
            resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        seed = every[number % len(every)]
        path = folder / f"{number}.{seed.name}"
        path.write_bytes(changed(Random(f"{entropy} {number}"), seed, others))
        fault = fault_of(seed, path)
        if fault is None:
            path.unlink()
        else:
            said = f"{path}: {' '.join(fault.split())}; {repeated(path)}"
            sys.stdout.write(f"{number} {said}\n")


def faults(folder: Path, n_files: int, entropy: int, *, stored: bool = False) -> list[str]:
    """Read so many changed files, also changed ones of those kept; what went wrong, with bytes."""
    found: list[str] = []
    first = 0
    while first < n_files:
        words = [folder, first, n_files, entropy, int(stored)]
        done = subprocess.run(
            [sys.executable, "-m", __name__, *map(str, words)],
            # Wherever the tests were started: the package of this file is found there.
            cwd=Path(__file__).resolve().parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
        numbers = [line.partition(" ") for line in done.stdout.splitlines()]
        found += [fault for _, _, fault in numbers if fault]
        if done.returncode == 0:
            break
        if not numbers:
            return [*found, done.stderr[-2000:]]
        # It ended in the middle of the file that it named last.
        first = int(numbers[-1][0]) + 1
        found.append(f"file {first - 1} ended the process: {done.returncode} {done.stderr[-500:]}")
    return found


if __name__ == "__main__":
    read_changed(Path(sys.argv[1]), *map(int, sys.argv[2:]))
