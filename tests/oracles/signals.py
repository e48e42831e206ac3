"""Signals during a call, and children of a fork."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable

import pytest

POSIX = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs POSIX signals")
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def interrupted(work: Callable[[], object], after: float) -> float:
    """CPU time from a signal, whose handler raises, to the end of ``work``, which is repeated.

    All of it, of every thread: a busy machine ends nothing before it began, and is not late.
    Python ignores what a handler raises in a callback of a weak reference: then work ends late.
    """
    arrived = False

    def handler(*_: object) -> None:
        nonlocal arrived
        arrived = True
        raise KeyboardInterrupt

    def repeated() -> None:
        while not arrived:
            work()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, handler)
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, after)
    try:
        with pytest.raises(KeyboardInterrupt):
            repeated()
        return time.process_time() - start - after
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def in_child(work: Callable[[], bytes]) -> bytes:
    """What ``work`` returns in a forked child, which is killed if it hangs."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, work())
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-4000:])
        os._exit(0)
    os.close(write)
    deadline = time.monotonic() + 300.0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    answer = os.read(read, 65_536)
    os.close(read)
    return answer
