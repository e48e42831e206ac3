"""What anybody can see of a fit, compared between two worlds with other private records.

Noise is the only way by which records may reach the outside. So everything that passes through
noise is answered, in the second world, with what the first world released: exact sums of rows,
gradients of descent (by the slow twins, whose noise is added in Python), weights after training,
and the choice of a search. What anybody can see must then be the same to the last bit, whatever
the records are; what differs went past the noise.

Seen is: every attribute, public or not, and every property; ``repr``, ``str``, parameters, HTML,
the pickle; predictions on public rows; standard output and error; warnings; log records;
exceptions with their arguments, attributes, texts, tracebacks, causes and contexts; the ledger's
events, labels and totals; the certificate and its prose. Not seen are local variables of frames
that a debugger could open, and time.
"""

from __future__ import annotations

import io
import logging
import pickle
import random
import re
import traceback
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from dpsvm_fast import PrivacyLedger, _core
from dpsvm_fast.mechanisms import gradient as descent_run
from dpsvm_fast.mechanisms.noise import WeightNoise
from dpsvm_fast.mechanisms.objective import LinearNoise
from dpsvm_fast.model_selection import strategies
from oracles.coupled import Source, use_slow_core

__all__ = ["ALIKE", "Surface", "World", "compared", "differences", "seen_of_exception"]

Array = NDArray[Any]

# What is allowed to differ, with the reason; nothing here depends on the records.
ALIKE = {
    "identity of objects": "addresses and counters of a process, replaced by a mark",
    "caches": "what a process has computed from public numbers, before a fit needs it again",
    "ledger.when": "the time of a spend; how long a fit takes is a caveat of every statement",
    "ledger.identity": "a random name",
}
ADDRESS = re.compile(
    r"0x[0-9a-f]+|\d{4}-\d\d-\d\d[T ][\d:]+|sk-[a-z]+-[a-z]+-\d+|sk-container-id-\d+"
)


@dataclass
class World:
    """One run with its records: what was released, and what anybody saw."""

    data: Any
    first: World | None = None
    # Whether Ctrl-C is pressed where noise would be drawn.
    interrupted: bool = False
    released: list[Array] = field(default_factory=list)
    source: Any = None

    def __post_init__(self) -> None:
        kind = Interrupted if self.interrupted else Source
        self.source = kind(0, None if self.first is None else self.first.source)

    def replay(self, found: Array) -> Array:
        """What is released in the place of ``found``: that of the first world."""
        if self.interrupted:
            raise KeyboardInterrupt
        answer = found if self.first is None else self.first.released[len(self.released)]
        # Public sizes: were they not alike, the shape itself would tell.
        assert answer.shape == found.shape
        self.released.append(answer)
        return answer.copy()


class Interrupted(Source):
    """Ctrl-C is pressed at the first draw."""

    def _draw(self, *_: Any) -> Any:
        raise KeyboardInterrupt


class Passing:
    """Noise of scores, which answers with the sums of the first world."""

    __array_ufunc__ = None

    def __init__(self, world: World) -> None:
        self.world = world

    def __radd__(self, scores: Array) -> Array:
        return self.world.replay(scores)


@contextmanager
def noise_of(world: World) -> Iterator[None]:
    """Every passage through noise answers with what the first world released."""

    def noisy(self: Any, weights: Array, source: Any, n_threads: int) -> Array:
        return world.replay(release(self, weights, world.source.real, n_threads))

    def draw(self: Any, source: Any, n_threads: int) -> Array:
        # Inside an objective: a fixed draw, and what is trained with it passes through noise.
        real = world.source.real.gaussian(self.n_weights, self.scale, n_threads)
        return np.asarray(world.replay(real).reshape(1, *self.shape))

    release = WeightNoise.release
    with pytest.MonkeyPatch.context() as patch:
        use_slow_core(patch, world.source)
        patch.setattr(WeightNoise, "release", noisy)
        patch.setattr(LinearNoise, "draw", draw)
        # Of a search: who is where is never told, and the choice is a noisy one.
        streams = strategies.Sources(_core.NoiseSource(1), random.Random(2))
        patch.setattr(strategies, "noise_sources", lambda *_, **__: streams)
        patch.setattr(strategies, "chosen_index", lambda *_: 1)
        patch.setattr(strategies, "score_noise", lambda *_: Passing(world))
        patch.setattr(descent_run, "resumed", resumed)
        yield


def resumed(state: dict[str, Any], **_: Any) -> dict[str, Any]:
    """What the library does to a state that is taken up again, by the twin's names."""
    return state | {"averaged": 0, "total": np.zeros_like(state["total"])}


class Surface(dict[str, str]):
    """What anybody can see, by where it is seen."""


# A run gets its records, and a list for what the caller holds, also after an error.
Run = Callable[[Any, list[Any]], None]


def compared(
    run: Run, first: Any, second: Any, *, interrupted: bool = False, fails: bool = False
) -> list[str]:
    """Differences in what is seen of two runs on data sets that are to be indistinguishable.

    A run that ends with an error though it is neither interrupted nor said to fail shows nothing,
    and is an error here.
    """
    one = World(first, interrupted=interrupted)
    here = seen(run, one)
    there = seen(run, World(second, one, interrupted=interrupted))
    if interrupted:
        assert here["error.text"].startswith("KeyboardInterrupt")
    elif not fails:
        assert "error.text" not in here, here["error.traceback"]
    if not differences(here, there):
        return []
    # The first run in a process fills caches of public numbers; what the records did stays.
    return differences(seen(run, World(first, one, interrupted=interrupted)), there)


def differences(here: Surface, there: Surface) -> list[str]:
    """A line for each thing that is not the same."""
    return [
        f"{name}: {here.get(name, 'absent')[:120]} | {there.get(name, 'absent')[:120]}"
        for name in sorted(set(here) | set(there))
        if here.get(name) != there.get(name)
    ]


def seen(run: Run, world: World) -> Surface:
    """Runs it, and looks at everything."""
    surface, log = Surface(), _Log()
    out, err = io.StringIO(), io.StringIO()
    kept: list[Any] = []
    root = logging.getLogger()
    level = root.level
    root.addHandler(log)
    root.setLevel(logging.NOTSET)
    try:
        with warnings.catch_warnings(record=True) as caught, noise_of(world):
            warnings.simplefilter("always")
            with redirect_stdout(out), redirect_stderr(err):
                try:
                    run(world.data, kept)
                except BaseException as error:  # everything that a caller can catch
                    surface.update(seen_of_exception(error))
    finally:
        root.removeHandler(log)
        root.setLevel(level)
    surface["stdout"], surface["stderr"] = out.getvalue(), err.getvalue()
    surface["warnings"] = repr([(w.category.__name__, str(w.message), w.lineno) for w in caught])
    surface["logging"] = repr(log.lines)
    for number, item in enumerate(kept):
        look_at(item, f"kept {number}", surface)
    return surface


class _Log(logging.Handler):
    """Keeps every record."""

    def __init__(self) -> None:
        super().__init__(logging.NOTSET)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.name} {record.levelname} {record.getMessage()}")


def seen_of_exception(error: BaseException) -> dict[str, str]:
    """Text, arguments, attributes and traceback of an error and of all behind it."""
    found: dict[str, str] = {}
    waiting: list[tuple[str, BaseException | None]] = [("error", error)]
    met: set[int] = set()
    while waiting:
        name, one = waiting.pop()
        if one is None or id(one) in met:
            continue
        met.add(id(one))
        found[f"{name}.text"] = f"{type(one).__name__}: {one}"
        found[f"{name}.args"] = canonical(one.args)
        found[f"{name}.attributes"] = canonical(
            {key: value for key, value in vars(one).items() if key[:2] != "__"}
        )
        found[f"{name}.traceback"] = "".join(traceback.format_exception(one))
        waiting += [(f"{name}.cause", one.__cause__), (f"{name}.context", one.__context__)]
    return found


def look_at(item: Any, name: str, surface: Surface) -> None:
    """Everything that can be read off one object."""
    if isinstance(item, PrivacyLedger):
        events = [(record.event.to_dict(), record.label) for record in item.history]
        surface[f"{name}.history"] = canonical(events)
        surface[f"{name}.total"] = canonical((item.total(), item.remaining()))
        surface[f"{name}.repr"] = plain(repr(item) + str(item))
        return
    surface[f"{name}.repr"] = plain(repr(item))
    surface[f"{name}.str"] = plain(str(item))
    surface[f"{name}.vars"] = canonical(getattr(item, "__dict__", None))
    surface[f"{name}.dir"] = canonical(dir(item))
    for attribute in dir(item):
        if attribute.startswith("__"):
            continue
        try:
            value = getattr(item, attribute)
        except Exception as error:  # a property that refuses says why
            value = (type(error).__name__, str(error))
        if not callable(value):
            surface[f"{name}.{attribute}"] = canonical(value)
    for method in ("get_params", "_repr_html_", "to_json", "__getstate__", "__sklearn_tags__"):
        call = getattr(item, method, None)
        if call is not None:
            surface[f"{name}.{method}()"] = plain(canonical(call()))
    surface[f"{name}.pickle"] = pickle.dumps(item, protocol=4).hex()


def plain(text: str) -> str:
    """A text without what counts objects of this process."""
    return ADDRESS.sub("<mark>", text)


def canonical(value: Any, depth: int = 0) -> str:
    """A value in full, to the last bit; objects by their attributes."""
    if depth > 12:
        return "..."
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, np.ndarray):
        rows = value.tolist() if value.dtype == object else value.tobytes().hex()
        return f"array({value.dtype}, {value.shape}, {rows})"
    if sparse.issparse(value):
        return f"sparse({value.shape}, {canonical(value.toarray())})"
    if isinstance(value, dict):
        items = [f"{key!r}: {canonical(item, depth + 1)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [canonical(item, depth + 1) for item in value]
        if isinstance(value, (set, frozenset)):
            items.sort()
        return f"{type(value).__name__}({', '.join(items)})"
    if isinstance(value, (float, np.floating)):
        return float(value).hex()
    if isinstance(value, PrivacyLedger):
        return "a ledger"
    ours = type(value).__module__.partition(".")[0] not in ("sklearn", "numpy", "builtins")
    if ours and hasattr(value, "__dict__") and not isinstance(value, types.FunctionType):
        return f"{type(value).__name__}({canonical(vars(value), depth + 1)})"
    return plain(repr(value))
