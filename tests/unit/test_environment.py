"""Processes in which something is wrong: arithmetic, entropy, files, stacks, memory.

A fit there is whole and private, or it is refused with a typed error and nothing spent. It never
ends the process, and never falls back to weaker noise.
"""

from __future__ import annotations

import ctypes
import locale
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest

from dpsvm_fast import PrivacyLedger, noise
from dpsvm_fast._validation import check_arithmetic
from dpsvm_fast.accounting import PureEvent
from oracles.elsewhere import SECCOMP, run
from oracles.odd_inputs import X, Y
from oracles.odd_parameters import Unread
from oracles.subjects import MAIN, PRIVATE, every_private, made, spent
from oracles.watching import fitted_names

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
# <fenv.h>: downward, upward, towards zero.
MODES = {
    "x86_64": (0x400, 0x800, 0xC00),
    "aarch64": (0x800000, 0x400000, 0xC00000),
}.get(platform.machine(), ())
# Of MXCSR: results, operands, both.
FLUSHES = (0x8000, 0x0040, 0x8040)


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    """This thread rounds that way; 0 is to nearest on both kinds of processors."""
    library = ctypes.CDLL(None)
    assert library.fesetround(mode) == 0
    try:
        yield
    finally:
        library.fesetround(0)


@pytest.fixture(scope="module")
def control_word(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Functions that read and set MXCSR."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or platform.machine() != "x86_64":
        pytest.skip("needs a C compiler and x86-64")
    folder = tmp_path_factory.mktemp("control")
    (folder / "word.c").write_text(
        "#include <xmmintrin.h>\n"
        "unsigned get(void) { return _mm_getcsr(); }\n"
        "void set(unsigned word) { _mm_setcsr(word); }\n"
    )
    library = folder / "word.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(folder / "word.c")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


@contextmanager
def flushing(control_word: Any, bits: int) -> Iterator[None]:
    before = control_word.get()
    control_word.set(before | bits)
    try:
        yield
    finally:
        control_word.set(before)


def refusals(subject: str) -> str:
    """The text with which a fit is refused before data are read."""
    fitting = made(subject)
    try:
        fitting.fit(Unread(), Unread())
    except FloatingPointError as error:
        text = str(error)
    else:
        text = ""
    assert spent(fitting) == 0
    assert fitted_names(fitting) == []
    return text


@LINUX
@every_private
@pytest.mark.parametrize("mode", MODES)
def test_threads_that_round_otherwise_are_refused(subject: str, mode: int) -> None:
    with rounding(mode):
        text = refusals(subject)
    assert "does not round to nearest" in text
    # Negative control: back to nearest, it fits.
    assert spent(made(subject).fit(X, Y)) > 0


@every_private
@pytest.mark.parametrize("bits", FLUSHES)
def test_threads_that_flush_subnormals_are_refused(
    subject: str, bits: int, control_word: Any
) -> None:
    with flushing(control_word, bits):
        text = refusals(subject)
    assert "takes subnormal numbers for 0" in text
    check_arithmetic()


@LINUX
@pytest.mark.parametrize("mode", MODES)
def test_noise_and_spends_of_such_threads_are_refused(mode: int) -> None:
    ledger = PrivacyLedger(1.0, 1e-6)
    draws = (
        lambda: noise.gaussian(3, 1.0),
        lambda: noise.gaussian_on_grid(3, 1.0, 0.5),
        lambda: noise.symmetric_gaussian(3, 1.0),
        lambda: ledger.spend(PureEvent(0.5, "add_remove")),
        lambda: ledger.check(PureEvent(0.5, "add_remove")),
    )
    with rounding(mode):
        for draw in draws:
            with pytest.raises(FloatingPointError):
                draw()
    assert ledger.history == ()


@LINUX
@pytest.mark.parametrize(
    "mode", [*MODES[:1], *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:])]
)
def test_workers_round_to_nearest_whoever_started_them(mode: int) -> None:
    """A map that is not refused starts the pool; a fit of a sound thread then uses it."""
    script = f"""
from dpsvm_fast import RandomFourierFeatures
rows, labels = rng.normal(size=(6000, 100)), rng.integers(0, 3, 6000)
features = RandomFourierFeatures(50, random_state=0, n_threads=3).fit(rows)
libc = ctypes.CDLL(None)
assert libc.fesetround({mode}) == 0
features.transform(rows)
libc.fesetround(0)
one, three = (
    made("linear", random_state=1, n_threads=n).fit(rows, labels).coef_ for n in (1, 3)
)
say("same" if np.array_equal(one, three) else "different")
"""
    assert run(script) == [["same"]]


def test_text_and_numbers_of_such_a_thread_are_those_of_any_other() -> None:
    """What is refused is the arithmetic: the check itself costs nothing and is silent here."""
    check_arithmetic()
    assert np.float64(1.0) + np.float64(2.0**-60) == 1.0


# ENOSYS and EPERM may be answered by the device file, as is tried here; others are final.
@LINUX
@pytest.mark.parametrize("errno", [38, *(pytest.param(e, marks=pytest.mark.slow) for e in (1, 5))])
def test_a_system_without_entropy_makes_no_noise(errno: int) -> None:
    """No file can be opened either: a fit fails, and is never seeded by anything else."""
    script = (
        SECCOMP
        + f"""
prepared = dict(zip(PRIVATE, [made(name).fit(X, Y) for name in PRIVATE]))
before = dict(zip(PRIVATE, map(spent, prepared.values())))
resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
if not without_getrandom({errno}):
    say("no-filter")
else:
    for name, fitting in prepared.items():
        how = ended(lambda: fitting.fit(X, Y))
        say(name.replace(" ", "_"), how, spent(fitting) - before[name], len(fitted_names(fitting)))
"""
    )
    lines = run(script)
    if lines == [["no-filter"]]:
        pytest.skip("this system allows no filters")
    assert [line[0] for line in lines] == [name.replace(" ", "_") for name in PRIVATE]
    assert all(line[1:] == ["OSError", "0", "0"] for line in lines), lines


@LINUX
def test_the_device_file_serves_where_the_call_is_missing() -> None:
    """Negative control of the filter: files can be opened, so all fits differ."""
    script = (
        SECCOMP
        + """
if without_getrandom(38):
    for subject in PRIVATE:
        models = [fit(subject) for _ in range(2)]
        first, second = map(released, models)
        assert any((first[name] != second[name]).any() for name in first)
"""
    )
    for name, how, count, _ in run(script):
        assert how == "fitted", name
        assert int(count) > 0


FEW_FILES = "resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))"
SMALL_STACKS = "threading.stack_size(128 * 1024)"
HARMLESS: dict[str, tuple[str, dict[str, str]]] = {
    "few files": (FEW_FILES, {}),
    "a directory that is gone": (
        "import tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
        {"HOME": "/nonexistent"},
    ),
    "files that nobody may write": ("os.chdir('/proc')", {"TMPDIR": "/proc", "HOME": "/proc"}),
    "no environment": ("os.environ.clear()", {}),
    "small stacks": (SMALL_STACKS, {}),
    "few files and small stacks": (f"{FEW_FILES}; {SMALL_STACKS}", {}),
    "threads of rayon": ("", {"RAYON_NUM_THREADS": "100000", "OMP_NUM_THREADS": "3"}),
    "no threads of rayon": ("", {"RAYON_NUM_THREADS": "0"}),
    "hashes": ("", {"PYTHONHASHSEED": "3"}),
    "a language with a decimal comma": (
        "import locale\nfor name in ('de_DE.UTF-8', 'fr_FR.UTF-8', 'C'):\n"
        "    if ended(lambda: locale.setlocale(locale.LC_ALL, name)) == 'fitted': break",
        {},
    ),
}


# The others start the same processes, and take as long, in the nightly run.
QUICK = ("few files and small stacks",)

DIGESTS = """
import hashlib
def digest():
    total = hashlib.sha256()
    for subject in MAIN:
        settings = {"random_state": 1} if known(subject, {"random_state": 1}) else {}
        fitted = made(subject, **settings).fit(X, Y)
        for key, value in sorted((released(fitted) | outputs(fitted, X)).items()):
            total.update(np.ascontiguousarray(value).tobytes())
        if hasattr(fitted, "privacy_"):
            total.update(fitted.privacy_.to_json().encode())
    say(total.hexdigest())
"""


@cache
def ordinary_digest() -> list[list[str]]:
    return run(DIGESTS + "digest()\n")


@LINUX
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in HARMLESS],
)
def test_fits_in_odd_surroundings_give_the_same_model(name: str) -> None:
    """In a thread of its own, as the size of stacks is that of new threads."""
    change, environment = HARMLESS[name]
    thread = "\nthread = threading.Thread(target=digest); thread.start(); thread.join()\n"
    assert run(DIGESTS + change + thread, **environment) == ordinary_digest()


def test_what_a_decimal_comma_would_change() -> None:
    """Whether the machine has such a language; the statement has no number of its own format."""
    found = []
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8"):
        try:
            before = locale.setlocale(locale.LC_ALL)
            locale.setlocale(locale.LC_ALL, name)
        except locale.Error:
            continue
        try:
            found.append(made("centre", epsilon=0.5).fit(X).privacy_.to_json())
        finally:
            locale.setlocale(locale.LC_ALL, before)
    if not found:
        pytest.skip("no language with a decimal comma is installed")
    assert all('"epsilon": 0.5' in text for text in found)


SHAPES = """
from scipy import sparse
def wide(columns):
    ends = np.array([0, 1, 2, 2], dtype=np.int64)
    last = np.array([0, columns - 1], dtype=np.int64)
    return sparse.csr_matrix((np.ones(2), last, ends), shape=(3, columns))
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
tall = np.broadcast_to(np.float64(0.5), (2**31 + 1, 1))
labels = np.broadcast_to(np.int64(1), (2**31 + 1,))
flat = np.broadcast_to(np.float64(0.5), (3, 2**31 + 1))
for subject in MAIN:
    for rows in (wide(2**62), wide(2**40), wide(2**31 + 1), flat):
        fit(subject, rows, np.arange(3))
    fit(subject, tall, labels)
"""


@LINUX
def test_shapes_beyond_any_memory_are_errors() -> None:
    """More than 2**31 rows or columns, products beyond 2**63: nothing spent, no process ended."""
    lines = run(SHAPES)
    assert len(lines) == 5 * len(MAIN)
    assert all(line[1] in ("MemoryError", "ValueError", "TypeError") for line in lines), lines
    assert all(line[2:] == ["0", "0"] for line in lines), lines


MEMORY = """
rows = rng.normal(size=(40_000, 500 if {subject!r} != "ellipsoids" else 60)).astype(np.float32)
labels = rng.integers(0, 3, 40_000)
fitting = made({subject!r}).fit(rows[:100], labels[:100])
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {room}, used + {room}))
how = ended(lambda: fitting.fit(rows, labels))
if {subject!r} == "features" and how == "fitted":
    how = ended(lambda: fitting.transform(np.zeros((2**20, 500), dtype=np.float32)))
say(how, len(fitted_names(fitting)))
"""


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("room", [2**18, 2**21, 2**24])
@pytest.mark.parametrize("subject", MAIN)
def test_little_memory_is_a_memory_error_or_enough(subject: str, room: int) -> None:
    ((how, attributes),) = run(MEMORY.format(subject=subject, room=room))
    assert how in ("MemoryError", "fitted")
    assert (how == "fitted") == (int(attributes) > 0) or subject in ("public scaler", "features")
