"""Slow numpy twins of the compiled kernels, for tests and benchmarks only.

Nothing in the package imports this subpackage at run time, and it imports nothing of ours: a
twin that shared code with the kernel it checks could share its mistakes.
"""

from __future__ import annotations

__all__: list[str] = []
