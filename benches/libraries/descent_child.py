"""A process of its own for another library's steps: threads and pools stay apart from ours.

    python -m benches.libraries.descent_child LIBRARY N_THREADS

It may use the first N_THREADS of this process's processors, which sizes the library's pools. One
JSON object a line comes in, one goes out:

    {"folder", "n_classes", "batch"}               makes the problem ready: {}
    {"formulation", "check": n_samples, "steps"}   weights after noise-free steps: {"weights"}
    {"formulation", "steps"}                       so many steps: {"seconds", "cpu_seconds"}
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benches.descent_problem import DescentProblem, stored


class Child:
    """Answers requests."""

    def __init__(self, library: str) -> None:
        self.library: Any = importlib.import_module(f"benches.libraries.{library}")
        self.problem: DescentProblem | None = None
        self.steppers: dict[str, Any] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request."""
        if "folder" in request:
            # The arrays of the last problem go before the next ones come.
            self.problem, self.steppers = None, {}
            folder = Path(request["folder"])
            self.problem = stored(folder, request["n_classes"], request["batch"])
            return {}
        if self.problem is None:
            raise ValueError("no problem yet")
        formulation = request["formulation"]
        if "check" in request:
            stepper = self.library.Stepper(self.problem.quiet(request["check"]), formulation)
            stepper.advance(request["steps"])
            return {"weights": stepper.weights.tolist()}
        if formulation not in self.steppers:
            self.steppers[formulation] = self.library.Stepper(self.problem, formulation)
        begin, cpu_begin = time.perf_counter(), time.process_time()
        self.steppers[formulation].advance(request["steps"])
        seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
        return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def main(library: str, n_threads: int) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # Whatever a library prints must not pass for an answer.
    os.dup2(2, 1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_threads])
    child = Child(library)
    for line in sys.stdin:
        print(json.dumps(child.answer(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
