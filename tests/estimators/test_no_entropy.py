"""A system that gives no random numbers: a typed error, no panic and no weaker noise."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Makes the system call getrandom fail for the rest of the process, with an error that no library
# takes for "not implemented".
NO_ENTROPY = """
import ctypes, struct
NUMBER = {number}
instructions = [(0x20, 0, 0, 0), (0x15, 0, 1, NUMBER), (0x06, 0, 0, 0x00050000 | 5)]
instructions.append((0x06, 0, 0, 0x7FFF0000))
code = b"".join(struct.pack("HBBI", *one) for one in instructions)
buffer = ctypes.create_string_buffer(code)
program = struct.pack("HxxxxxxP", len(instructions), ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
if libc.prctl(22, 2, program, 0, 0):
    raise SystemExit(77)
"""
BEFORE = "import numpy, scipy.sparse, scipy.stats, sklearn.svm, sklearn.pipeline\n"
USE = """
try:
    PrivateCenter(epsilon=1.0, delta=1e-6).fit([[0.1, 0.2], [0.3, 0.4]])
except OSError:
    raise SystemExit(0)
"""
# Where the filter comes: before the import, or between it and the use.
IMPORTED = "from dpsvm_fast import PrivateCenter\n"
NUMBERS = {"x86_64": 318, "aarch64": 278}


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in NUMBERS, reason="system calls of Linux"
)
@pytest.mark.parametrize("where", ["fit", pytest.param("import", marks=pytest.mark.slow)])
def test_without_entropy_the_first_use_is_a_typed_error(where: str) -> None:
    no_entropy = NO_ENTROPY.format(number=NUMBERS[platform.machine()])
    code = no_entropy + IMPORTED if where == "import" else IMPORTED + no_entropy
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + code + USE + "\nraise SystemExit(3)"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("this system lets nobody restrict system calls")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "panic" not in done.stderr
    assert "internal error" not in done.stderr
