"""The do-nothing library: what the harness itself costs, the floor of every time."""

from __future__ import annotations

from typing import Any

from benches.problem import Problem


def solve(problem: Problem, *, seed: int) -> Any:
    """Take the same arguments as the others and return no weights."""
    del problem, seed
