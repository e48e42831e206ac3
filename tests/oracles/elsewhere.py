"""Fits in fresh processes with something wrong with them, and what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
LIMIT = 600.0

# What every script begins with. ``fit`` says how a fit ended and what it spent.
PRELUDE = f"""
import ctypes, os, resource, sys, threading, warnings
sys.path.insert(0, {str(TESTS)!r})
import numpy as np
from oracles.subjects import MAIN, PRIVATE, known, made, outputs, released, spent
from oracles.watching import fitted_names
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(300, 6)), rng.integers(0, 3, 300)

def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\\n")
    sys.stdout.flush()

def ended(call):
    try:
        call()
    except BaseException as error:
        return type(error).__name__
    return "fitted"

def fit(subject, rows=X, labels=Y, **settings):
    fitting = made(subject, **settings)
    how = ended(lambda: fitting.fit(rows, labels))
    say(subject.replace(" ", "_"), how, spent(fitting), len(fitted_names(fitting)))
    return fitting
"""


def run(script: str, **environment: str) -> list[list[str]]:
    """Words of each line that a script in a fresh process prints; it must not die."""
    result = subprocess.run(
        [sys.executable, "-c", PRELUDE + script],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"} | environment,
    )
    assert result.returncode == 0, (result.returncode, result.stderr[-2000:])
    return [line.split() for line in result.stdout.splitlines()]


# A filter of system calls, as a program for the kernel: the named one fails with an error number.
SECCOMP = """
import struct
NUMBERS = {"x86_64": 318, "aarch64": 278}
def without_getrandom(errno):
    number = NUMBERS[os.uname().machine]
    program = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | errno),
               (0x06, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("HBBI", *step) for step in program)
    buffer = ctypes.create_string_buffer(code)
    fprog = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    held = ctypes.create_string_buffer(fprog)
    return libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(held)), 0, 0) == 0
"""
