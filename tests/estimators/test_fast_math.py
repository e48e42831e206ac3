"""The library in a process where another one, made with -ffast-math, was imported before it.

Such an import lets subnormal numbers count as 0, for all that the thread does from then on. That
includes what Python compiles and keeps in its cache for every later process.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpsvm_fast
from dpsvm_fast import PrivacyLedger, verify
from dpsvm_fast.accounting import (
    composed_delta,
    composed_epsilon,
    delta_without_distance,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    objective_delta,
    subsampled_gaussian_delta,
)
from dpsvm_fast.certificates.events import GaussianEvent, PureEvent
from dpsvm_fast.planning import plan_noise
from dpsvm_fast.rounding import SMALLEST_FLOAT, subnormal
from oracles import control_word
from oracles.elsewhere import LIMIT
from oracles.odd_inputs import X, Y
from oracles.subjects import made

X86_64 = pytest.mark.skipif(not control_word.HERE, reason="sets a register of x86-64")
# Import names of libraries that users import beside this one; the first sets the mode.
PEERS = ("snapml", "vowpalwabbit", "skglm", "celer", "jax", "daal4py", "sklearnex", "torch")

# What one process does with the library, as bits.
WORK = """
import json, struct, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import numpy as np
import dpsvm_fast as dp
from dpsvm_fast.accounting import composed_delta, composed_epsilon
from dpsvm_fast.certificates import GaussianEvent, PureEvent
from dpsvm_fast.persist import load_model, save_model
from dpsvm_fast.planning import plan_noise

folder = Path(sys.argv[1])
assert Path(dp.__file__).is_relative_to(folder)

def bits(*values):
    return struct.pack(f"<{len(values)}d", *values).hex()

rng = np.random.default_rng(0)
X, y = rng.random((300, 5)), rng.integers(0, 3, 300)
settings = {"epsilon": 1.0, "delta": 1e-5, "classes": range(3)}
linear = dp.PrivateLinearSVC(**settings, bounds=(0, 1), random_state=1).fit(X, y)
output = dp.OutputPerturbationSVC(**settings, random_state=1).fit(X, y)
ledger = dp.PrivacyLedger(3.0, 1e-5, path=folder / f"{len(list(folder.glob('*.budget')))}.budget")
events = GaussianEvent(4.0, 1.0, "add_remove"), PureEvent(0.5, "add_remove")
ledger.spend(events)
dp.PrivateCenter(epsilon=1.0, delta=1e-6, ledger=ledger).fit(X)
model = folder / "a.model"
save_model(linear, model)
again = load_model(model)
found = {
    "linear": linear.coef_.tobytes().hex(),
    "output": output.coef_.tobytes().hex(),
    "ledger": bits(*ledger.total(), ledger.remaining(), *ledger.odometer()),
    "delta": bits(*(composed_delta(events[:1], epsilon) for epsilon in (0.1, 20.0, 300.0))),
    "group": bits(composed_epsilon(events, 1e-6, group_size=2)),
    "certificate": linear.privacy_.to_json(),
    "verdict": str(dp.verify(linear.privacy_)) + str(dp.verify(output.privacy_)),
    "plan": str(plan_noise(dp.PrivateLinearSVC(**settings), 5, n_samples=300)),
    "model": model.read_bytes().hex(),
    "again": again.coef_.tobytes().hex(),
}
"""

# Every number that Python keeps of a module, and every number and array that the module has.
NUMBERS = """
import importlib, marshal, pkgutil, types

def numbers(value):
    if isinstance(value, types.CodeType):
        return [bit for one in value.co_consts for bit in numbers(one)]
    if isinstance(value, (tuple, list)):
        return [bit for one in value for bit in numbers(one)]
    if isinstance(value, (set, frozenset)):
        return sorted(bit for one in value for bit in numbers(one))
    if isinstance(value, dict):
        return [bit for one in value.values() for bit in numbers(one)]
    if isinstance(value, float):
        return [bits(value)]
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return [value.tobytes().hex()]
    return []

for place in pkgutil.walk_packages(dp.__path__, "dpsvm_fast.", onerror=lambda name: None):
    if place.name.endswith(("__main__", "._core")):
        continue
    try:
        module = importlib.import_module(place.name)
    except ImportError:
        found[place.name] = "lacks something"
        continue
    kept = Path(module.__spec__.cached).read_bytes()
    found[place.name] = numbers(marshal.loads(kept[16:]))
    for name, value in vars(module).items():
        if not name.startswith("__"):
            found[place.name, name] = numbers(value)
"""
REPORT = "\nprint(json.dumps({str(key): value for key, value in found.items()}))\n"
FLUSHED = "from oracles.control_word import flush\nflush()\n"

Results = dict[str, Any]


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    """Copies of the package, of which Python has compiled nothing."""

    def copy(name: str) -> Path:
        package = Path(dpsvm_fast.__file__).parent
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, tmp_path / name / package.name, ignore=without)
        return tmp_path / name

    return copy


def results(folder: Path, script: str) -> Results:
    """What a process finds that uses this copy and its cache."""
    path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
    }
    done = subprocess.run(
        [sys.executable, "-c", script + REPORT, str(folder)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: Results = json.loads(done.stdout.splitlines()[-1])
    return found


def other(found: Results, expected: Results) -> list[str]:
    """What differs."""
    return sorted(
        name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)
    )


@X86_64
def test_a_process_that_flushes_leaves_a_cache_as_any_other(copied: Callable[[str], Path]) -> None:
    first = copied("first")
    flushed = results(first, FLUSHED + WORK + NUMBERS)
    later = results(first, WORK + NUMBERS)
    fresh = results(copied("second"), WORK + NUMBERS)
    assert len(fresh) > 100
    assert other(later, fresh) == []
    assert other(flushed, fresh) == []


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS)
def test_nothing_changes_after_the_import_of(peer: str, copied: Callable[[str], Path]) -> None:
    if importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} is not installed")
    found = results(copied("first"), f"import {peer}\n" + WORK)
    assert other(found, results(copied("second"), WORK)) == []


@X86_64
def test_accounting_by_hand_is_the_same_where_subnormals_are_flushed() -> None:
    statement = made("linear").fit(X, Y).privacy_

    event = GaussianEvent(9.0, 1.0, "add_remove")
    bounds = (lambda x: gaussian_delta(x, 9.0), lambda x: composed_delta([event], x))

    def accounts() -> list[Any]:
        ledger, adaptive = PrivacyLedger(1.0, 1e-6), PrivacyLedger(1.0, 1e-6, adaptive=True)
        for one in (ledger, adaptive):
            one.spend(event)
            one.check(PureEvent(0.1, "add_remove"))
        return [
            [(one.total(), one.remaining(), one.odometer()) for one in (ledger, adaptive)],
            composed_epsilon([event], 1e-6),
            gaussian_sigma(0.7, 1e-300),
            gaussian_epsilon(1e-300, 9.0),
            subsampled_gaussian_delta(1.0, 0.01, 100, 3.0),
            objective_delta(30.0, 4.0, loss="logistic", kappa=0.5),
            delta_without_distance(1.0, 1e-5, 2.0**-80),
            # The last one underflows, and is rounded up.
            *(bound(epsilon) for bound in bounds for epsilon in (1.0, 30.0, 300.0)),
            statement.for_group(3),
            str(plan_noise(made("linear"), 3)),
            str(verify(statement)),
        ]

    expected = accounts()
    assert 0.0 < bounds[1](300.0) < sys.float_info.min
    with control_word.flushing():
        found = accounts()
        # The thread goes on as it did.
        assert control_word.get() & control_word.FLUSHES[2] == control_word.FLUSHES[2]
    assert found == expected


@X86_64
def test_what_cannot_set_the_mode_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = r"subnormal numbers as 0.*-ffast-math.*use a process"
    with control_word.flushing(), pytest.raises(FloatingPointError, match=refusal):
        made("linear").checked()
    # Verification runs without the compiled module, which alone sets the mode.
    monkeypatch.setitem(sys.modules, "dpsvm_fast._core", None)
    with control_word.flushing(), pytest.raises(FloatingPointError, match=refusal):
        verify("[]")


@pytest.mark.parametrize(
    "text", ["5e-324", "1e-323", "1e-320", "1e-310", "1e-308", "0", "2.2e-308"]
)
def test_subnormal_numbers_are_those_of_literals(text: str) -> None:
    assert subnormal(text).hex() == float(text).hex()
    assert math.ulp(0.0) == SMALLEST_FLOAT


@X86_64
@pytest.mark.parametrize("text", ["5e-324", "1e-320", "1e-310"])
def test_subnormal_numbers_are_right_where_literals_are_not(text: str) -> None:
    expected = float(text).hex()
    with control_word.flushing():
        literal, found = float(text), subnormal(text)
    assert (literal, found.hex()) == (0.0, expected)
