"""Settings shared by all tests: Hypothesis profiles and small training sets."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import random
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Tests run in as many processes as there are cores, on small matrices: threads of BLAS only wait.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray

from oracles.command_line import Cli

# Interpreters that tests start find what tests share.
SEARCHED = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, SEARCHED))

# A busy machine is no reason to fail.
BUSY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("fast", max_examples=30, derandomize=True, **BUSY)
settings.register_profile("slow", max_examples=1000, **BUSY)
settings.load_profile(os.environ.get("DPSVM_HYPOTHESIS", "fast"))


def tries(n: int) -> settings:
    """Give a test this many examples, more under a profile with more: a number that pages state."""
    return settings(max_examples=max(n, settings().max_examples))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a part of what is marked ``sampled`` by day, and all of it by night.

    Of the product of a test's parameters so much that every value of each parameter occurs as often
    as the mark says, by default once; or one case of so many. The same cases every day, in any
    order of the tests.
    """
    by_name = sorted(items, key=lambda item: zlib.crc32(item.nodeid.encode()))
    seen: Counter[tuple[Any, ...]] = Counter()
    for item in by_name:
        mark = item.get_closest_marker("sampled")
        if mark is None or any(item.get_closest_marker(name) for name in ("slow", "nightly")):
            continue
        test = item.nodeid.partition("[")[0]
        if "every" in mark.kwargs:
            seen[test,] += 1
            if seen[test,] % mark.kwargs["every"] != 1:
                item.add_marker("nightly")
            continue
        values = [
            (test, name, value if isinstance(value, str) else repr(value))
            for name, value in item.callspec.params.items()  # type: ignore[attr-defined]
        ]
        if all(seen[value] >= mark.kwargs.get("times", 1) for value in values):
            item.add_marker("nightly")
        else:
            seen.update(values)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """By day let a test draw the same noise in every run, so that none fails by chance.

    Whatever asks for noise without a seed gets the next of the test's own: no noise comes twice.
    By night, and in tests marked ``fresh``, noise is the operating system's. Fixtures of a module
    draw from its first test, and threads in the order in which they ask. Forked children repeat
    what their parent would draw next, unlike those that are started anew.
    """
    from dpsvm_fast import _core

    source = _core.NoiseSource
    seeds = itertools.count(zlib.crc32(item.nodeid.encode()) << 20)

    class Sources:
        def __call__(self, seed: int | None = None) -> _core.NoiseSource:
            return source(next(seeds) if seed is None else seed)

        def __getattr__(self, name: str) -> object:
            return getattr(source, name)

    class Coins(random.Random):
        def __init__(self) -> None:
            super().__init__(next(seeds))

    with pytest.MonkeyPatch.context() as patch:
        by_day = "not nightly" in item.config.getoption("markexpr")
        if by_day and item.get_closest_marker("fresh") is None:
            patch.setattr(_core, "NoiseSource", Sources())
            patch.setattr(random, "SystemRandom", Coins)
        return (yield)


TrainingSet = tuple[NDArray[np.float64], NDArray[np.int64]]


def three_clusters(n_samples: int = 90, n_features: int = 5, seed: int = 0) -> TrainingSet:
    """Rows of norm up to 1.3 around three directions, labels 0, 1, 2."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_samples).astype(np.int64)
    centres = np.eye(3, n_features)
    X = centres[y] + 0.3 * rng.normal(size=(n_samples, n_features))
    return X / np.linalg.norm(X, axis=1).max() * 1.3, y


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def closed_figures() -> Iterator[None]:
    """Figures are drawn without a window and closed at the end."""
    pytest.importorskip("matplotlib").use("Agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture
def without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    # None in sys.modules is how Python itself marks a module that must not be found.
    monkeypatch.setitem(sys.modules, "matplotlib", None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a budget may be."""
    return tmp_path / "a.budget"


@pytest.fixture
def ledger(path: Path) -> Any:
    """A ledger in this file."""
    from dpsvm_fast import PrivacyLedger

    return PrivacyLedger(1.0, 0.0, path=path)


@pytest.fixture
def clusters() -> TrainingSet:
    return three_clusters()


@pytest.fixture(autouse=True, scope="module")
def memory_of_a_fresh_program(request: pytest.FixtureRequest) -> Iterator[None]:
    """Commands called in this process do not count what other tests have left in memory."""
    with pytest.MonkeyPatch.context() as patch:
        if request.module.__name__.startswith(("test_cli", "test_tutorial")):
            with contextlib.suppress(ImportError):
                rows = importlib.import_module("dpsvm_fast.cli.training")
                patch.setattr(rows, "_resident_size", lambda: 200 << 20)
        yield
