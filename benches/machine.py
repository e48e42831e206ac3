"""What a figure depends on beside the code: processor, build, versions, threads."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

LIBRARIES = ("numpy", "scipy", "scikit-learn")
# Only some subjects compare with these, where they are installed.
OPTIONAL_LIBRARIES = (
    "jax", "torch", "opacus", "dp-accounting", "scikit-learn-intelex", "snapml",
    "liblinear-multicore", "skglm", "vowpalwabbit",
)  # fmt: skip


def require_release(build: dict[str, Any]) -> None:
    """Stop on a debug build: its times say nothing."""
    if build["profile"] != "release":
        raise SystemExit(
            f"the compiled module is a {build['profile']} build; benchmarks need a release build "
            "(maturin develop --release)"
        )


def description(build: dict[str, Any], n_threads: int) -> dict[str, str]:
    """Facts that are printed and stored at the head of every CSV file."""
    facts = {
        "cpu": _cpu_model(),
        "cores": str(_usable_cores()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "dpsvm_fast": f"{build['version']}, {build['profile']} build, {build['simd']}",
        "solver threads": str(n_threads),
        "peer threads": "1",
    }
    facts |= {library: version(library) for library in LIBRARIES}
    return facts | {
        library: found for library in OPTIONAL_LIBRARIES if (found := _version(library))
    }


def _version(library: str) -> str | None:
    """Of an optional library; None where it is not installed."""
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def _usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    """Name of the processor as the system tells it."""
    table = Path("/proc/cpuinfo")
    if table.is_file():
        for line in table.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
