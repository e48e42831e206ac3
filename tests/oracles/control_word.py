"""The register that says how a thread rounds and whether subnormal numbers count as 0.

Set as by a library that is compiled with ``-ffast-math``, in a process that has imported nothing.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# ldmxcsr [rdi]; ret; stmxcsr [rdi]; ret: the functions of a C compiler on x86-64 systems but
# Windows.
SET, GET = b"\x0f\xae\x17\xc3", b"\x0f\xae\x1f\xc3"
HERE = platform.machine() in ("x86_64", "AMD64") and sys.platform != "win32"
# Of MXCSR: results, operands, both.
FLUSHES = (0x8000, 0x0040, 0x8040)

if HERE:
    _code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    _code.write(SET + GET)
    _start = ctypes.addressof(ctypes.c_char.from_buffer(_code))
    _kind = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
    _set, _get = _kind(_start), _kind(_start + len(SET))


def get() -> int:
    """The register of this thread."""
    word = ctypes.c_uint32()
    _get(ctypes.byref(word))
    return word.value


def put(word: int) -> None:
    """Set it."""
    _set(ctypes.byref(ctypes.c_uint32(word)))


def flush(bits: int = FLUSHES[2]) -> None:
    """Let subnormal numbers count as 0 in this thread from now on."""
    put(get() | bits)


@contextmanager
def flushing(bits: int = FLUSHES[2]) -> Iterator[None]:
    """Let subnormal numbers count as 0 in the body."""
    before = get()
    put(before | bits)
    try:
        yield
    finally:
        put(before)
