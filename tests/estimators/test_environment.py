"""Processes in which something is wrong: arithmetic, entropy, files, stacks, memory.

A fit there is whole and private, or it is refused with a typed error and nothing spent. It never
ends the process, and never falls back to weaker noise.
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from dpsvm_fast import PrivacyLedger, _core, noise
from dpsvm_fast.arithmetic import check_arithmetic
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from oracles import control_word
from oracles.control_word import FLUSHES, flushing
from oracles.elsewhere import SECCOMP, run
from oracles.odd_inputs import X, Y
from oracles.subjects import MAIN, PRIVATE, every_private, made, released, spent

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
X86_64 = pytest.mark.skipif(not control_word.HERE, reason="sets a register of x86-64")
# <fenv.h>: downward, upward, towards zero.
MODES = {
    "x86_64": (0x400, 0x800, 0xC00),
    "aarch64": (0x800000, 0x400000, 0xC00000),
}.get(platform.machine(), ())
_PAIRS = ((1.0, 3.0), (1.0, 5.0), (-1.0, 3.0), (-1.0, 5.0))
_QUOTIENTS = [a / b for a, b in _PAIRS]
# Outside of the modes, as this is computed by numpy.
_SQUARE = X.T @ X


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    """This thread rounds that way; 0 is to nearest on both kinds of processors."""
    library = ctypes.CDLL(None)
    assert library.fesetround(mode) == 0
    try:
        yield
    finally:
        library.fesetround(0)


def published(subject: str) -> dict[str, bytes]:
    """The bits of a seeded fit."""
    seed = {"random_state": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = made(subject, **seed).fit(X, Y)
    assert spent(fitted) > 0
    return {name: values.tobytes() for name, values in released(fitted).items()}


def entries() -> dict[str, Any]:
    """Functions of the compiled module that a mode could reach, those that keep the interpreter."""
    core = _core
    records = core.Records(
        X, Y, n_classes=3, offset=None, scale=None, low=-3.0, floor=None, high=3.0, constant=0.5,
        data_norm=1.0, unit=False, n_threads=1,
    )  # fmt: skip
    law = core.LossDistribution(
        subsampled=[(1.3, 0.01, 30)], gaussian_mu=0.7, pure=[(0.1, 3)], zcdp_rho=0.3, profiles=[],
        replace_one=False,
    )  # fmt: skip
    noise_of = core.NoiseSource(3).gaussian(5, 1.3, 1)
    return {
        "sigma": core.gaussian_sigma(0.7, 1e-7),
        "delta": core.gaussian_delta(0.7, 3.3),
        "epsilon": core.gaussian_epsilon(1e-7, 3.3),
        "objective": core.objective_delta("softmax", 3, 1.0, 4.1, 0.1, None, False),
        "sampled": core.subsampled_gaussian_epsilon(1.1, 0.01, 20, 1e-6, False),
        "law": law.epsilon(1e-6),
        "distance": core.clipped_sum_distance(0.7, 9, None),
        "sums": records.sums(1).tobytes(),
        "gram": core.Records.gram_from_parts(records.gram_parts(1)).tobytes(),
        "noise": noise_of.tobytes(),
        "eigen": core.symmetric_eigen(_SQUARE, 2)[0].tobytes(),
    }


@LINUX
@every_private
@pytest.mark.parametrize(
    "mode", [*MODES[1:2], *(pytest.param(m, marks=pytest.mark.slow) for m in MODES[::2])]
)
def test_fits_have_one_result_however_a_thread_rounds(subject: str, mode: int) -> None:
    expected = published(subject)
    with rounding(mode):
        found = published(subject)
        # The thread goes on as it did.
        assert ctypes.CDLL(None).fegetround() == mode
    assert found == expected


@X86_64
@every_private
@pytest.mark.parametrize(
    "bits", [*FLUSHES[2:], *(pytest.param(b, marks=pytest.mark.slow) for b in FLUSHES[:2])]
)
def test_fits_have_one_result_where_subnormals_are_flushed(subject: str, bits: int) -> None:
    expected = published(subject)
    with flushing(bits):
        found = published(subject)
        assert control_word.get() & bits == bits
    assert found == expected


@LINUX
@pytest.mark.parametrize("mode", MODES)
def test_the_compiled_module_computes_the_same_however_a_thread_rounds(mode: int) -> None:
    expected = entries()
    with rounding(mode):
        # The control: numbers of Python itself do change.
        assert [a / b for a, b in _PAIRS] != _QUOTIENTS
        found = entries()
    assert found == expected


@X86_64
def test_the_compiled_module_computes_the_same_where_subnormals_are_flushed() -> None:
    expected = entries()
    with flushing():
        found = entries()
    assert found == expected


@LINUX
@pytest.mark.parametrize("mode", MODES)
def test_noise_and_spends_by_hand_are_the_same_however_a_thread_rounds(mode: int) -> None:
    def drawn() -> list[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            draws = (noise.gaussian, noise.symmetric_gaussian)
            return [draw(3, 1.3, random_state=1).tobytes() for draw in draws]

    def spent_by_hand() -> tuple[float, ...]:
        ledger = PrivacyLedger(1.0, 1e-6)
        for event in (PureEvent(0.3, "add_remove"), GaussianEvent(9.0, 1.0, "add_remove")):
            ledger.spend(event)
            ledger.check(event)
        return (*ledger.total(), ledger.remaining(), *ledger.odometer())

    expected = drawn(), spent_by_hand()
    with rounding(mode):
        assert (drawn(), spent_by_hand()) == expected
        with pytest.raises(FloatingPointError, match="no longer rounds to nearest"):
            check_arithmetic()
        assert ctypes.CDLL(None).fegetround() == mode


# ENOSYS and EPERM may be answered by the device file, as is tried here; others are final.
@LINUX
@pytest.mark.parametrize(
    "errno", [38, *(pytest.param(number, marks=pytest.mark.slow) for number in (5, 1))]
)
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


# The filter comes between numpy, whose import may ask for entropy, and the library.
BEFORE_IMPORT = (
    "import ctypes, os\nimport numpy, scipy.sparse, scipy.stats, sklearn.svm, sklearn.pipeline\n"
    + SECCOMP
    + """
if not without_getrandom(5):
    raise SystemExit(77)
from dpsvm_fast import PrivateCenter
try:
    PrivateCenter(epsilon=1.0, delta=1e-6).fit([[0.1, 0.2], [0.3, 0.4]])
except OSError:
    raise SystemExit(0)
raise SystemExit(3)
"""
)


@LINUX
@pytest.mark.slow
def test_a_library_imported_without_entropy_ends_its_first_use_with_a_typed_error() -> None:
    command = [sys.executable, "-c", BEFORE_IMPORT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode == 77:
        pytest.skip("this system allows no filters")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "panic" not in done.stderr


@LINUX
@pytest.mark.slow
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
    "no number of threads": ("", {"RAYON_NUM_THREADS": "not a number"}),
    "hashes": ("", {"PYTHONHASHSEED": "3"}),
    "a language with a decimal comma": (
        "import locale\nfor name in ('de_DE.UTF-8', 'fr_FR.UTF-8', 'C'):\n"
        "    if ended(lambda: locale.setlocale(locale.LC_ALL, name)) == 'fitted': break",
        {},
    ),
}


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
@pytest.mark.slow
@pytest.mark.parametrize("name", HARMLESS)
def test_fits_in_odd_surroundings_give_the_same_model(name: str) -> None:
    """In a thread of its own, as the size of stacks is that of new threads."""
    change, environment = HARMLESS[name]
    thread = "\nthread = threading.Thread(target=digest); thread.start(); thread.join()\n"
    assert run(DIGESTS + change + thread, **environment) == ordinary_digest()


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
    refusals = ("MemoryError", "ValueError", "InvalidParameterError", "InvalidTypeError")
    assert all(line[1] in refusals for line in lines), lines
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
@pytest.mark.parametrize(
    ("subject", "room"),
    [*((name, room) for name in MAIN for room in (2**18, 2**21, 2**24)), ("output", 2**30)],
)
def test_little_memory_is_a_memory_error_or_enough(subject: str, room: int) -> None:
    ((how, attributes),) = run(MEMORY.format(subject=subject, room=room))
    assert how in ("MemoryError", "fitted")
    # What keeps a copy of the rows cannot be fitted, and with room enough it can.
    if subject in ("output", "objective"):
        assert (how == "fitted") == (room == 2**30)
    assert (how == "fitted") == (int(attributes) > 0) or subject in ("public scaler", "features")
