"""Our functions are the ones that Flower's protocol calls, and nothing goes on where they are not.

Most of these tests put something else in place for a moment; ``restored`` undoes it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

pytest.importorskip("dpsvm_fast.federated.flower", reason="secure sums need flwr")

from dpsvm_fast.federated.flower import FlowerSum, require
from dpsvm_fast.federated.flower.protocol import (
    CALLERS,
    CLIENT,
    REPLACEMENTS,
    REVIEWED,
    SERVER,
    HardeningError,
    check_hardened,
    check_sources,
    check_version,
    harden,
    pass_integers,
    self_test,
)

PROTOCOL = [(name, function) for name, functions in CALLERS.items() for function in functions]


@pytest.fixture
def protocol() -> Iterator[dict[str, ModuleType]]:
    """Both modules of the protocol, hardened before and after."""
    harden()
    yield {name: sys.modules[name] for name in (CLIENT, SERVER)}
    for name, functions in REPLACEMENTS.items():
        for function, ours in functions.items():
            setattr(sys.modules[name], function, ours)
    check_hardened()


def vectors() -> Any:
    rows = np.arange(12, dtype=np.int64).reshape(3, 4)
    rows[:, -1] = 1
    return rows


def test_the_installed_flower_is_the_one_that_was_reviewed() -> None:
    """Canary: fails for a Flower whose protocol code changed, also if the flaw was mended there."""
    check_sources()
    harden()
    check_hardened()
    self_test()


def test_all_code_that_masks_shares_or_encrypts_was_reviewed() -> None:
    """The files that the protocol's modules import by name, as far as they handle secrets."""
    secret = ("secure_aggregation", "primitives.asymmetric")
    for name in (CLIENT, SERVER):
        used = {getattr(value, "__module__", "") for value in vars(sys.modules[name]).values()}
        handled = {module for module in used if any(part in module for part in secret)}
        ours = {"dpsvm_fast.federated.flower.protocol", "dpsvm_fast.federated.flower.masks"}
        assert handled - ours <= set(REVIEWED)


@pytest.mark.parametrize("version", ["1.40.9", "1.43.0", "2.0.0", "0.41", "1", "unknown"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(HardeningError, match="reviewed for versions"):
        check_version(version)


@pytest.mark.parametrize("version", ["1.41.0", "1.42.0", "1.42.7rc1"])
def test_reviewed_versions_are_accepted(version: str) -> None:
    check_version(version)


def test_changed_sources_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REVIEWED, CLIENT, "0" * 64)
    with pytest.raises(HardeningError, match="not the code that was reviewed"):
        check_sources()
    monkeypatch.setitem(REVIEWED, "flwr.no_such_module", "0" * 64)
    monkeypatch.delitem(REVIEWED, CLIENT)
    with pytest.raises(HardeningError, match="does not exist"):
        check_sources()


@pytest.mark.parametrize(("name", "function"), PROTOCOL)
def test_another_function_in_place_is_noticed(
    protocol: dict[str, ModuleType], name: str, function: str
) -> None:
    setattr(protocol[name], function, lambda *_: None)
    with pytest.raises(HardeningError, match="not hardened"):
        check_hardened()


@pytest.mark.parametrize(("name", "function"), PROTOCOL)
def test_protocol_code_that_does_not_call_us_is_noticed(
    protocol: dict[str, ModuleType],
    name: str,
    function: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a change in Flower that calls something else, or binds the name elsewhere."""
    holder: Any = protocol[name]
    path = CALLERS[name][function].split(".")
    for part in path[:-1]:
        holder = getattr(holder, part)
    monkeypatch.setattr(holder, path[-1], lambda *_: None)
    with pytest.raises(HardeningError, match=r"does not call|of its own"):
        check_hardened()


def test_a_name_that_flower_gave_up_is_noticed(
    protocol: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(protocol[CLIENT], "create_shares")
    with pytest.raises(HardeningError, match="not hardened"):
        check_hardened()
    with pytest.raises(HardeningError, match="no create_shares any more"):
        harden()


def test_masks_from_elsewhere_fail_the_self_test(protocol: dict[str, ModuleType]) -> None:
    protocol[CLIENT].pseudo_rand_gen = lambda seed, m, shapes: [  # type: ignore[attr-defined]
        np.zeros(shape, np.int64) for shape in shapes
    ]
    with pytest.raises(HardeningError, match="does not mask"):
        self_test()


def test_shares_from_elsewhere_fail_the_self_test(protocol: dict[str, ModuleType]) -> None:
    shares = protocol[CLIENT].create_shares

    def of_another_secret(secret: bytes, threshold: int, num: int) -> list[bytes]:
        return list(shares(bytes(len(secret)), threshold, num))

    protocol[CLIENT].create_shares = of_another_secret  # type: ignore[attr-defined]
    with pytest.raises(HardeningError, match="does not share"):
        self_test()


def test_no_sum_comes_out_of_an_unhardened_protocol(
    protocol: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a weak sum nor a plain one."""
    from dpsvm_fast.federated.flower import client as party
    from dpsvm_fast.federated.flower import server as round

    for module in (party, round):
        monkeypatch.setattr(module, "harden", lambda: None)
    protocol[SERVER].combine_shares = lambda shares: b""  # type: ignore[attr-defined]
    with pytest.raises(HardeningError):
        FlowerSum().sum(vectors())


def test_hardening_again_mends_what_was_put_in_place_since(
    protocol: dict[str, ModuleType],
) -> None:
    protocol[CLIENT].pseudo_rand_gen = lambda *_: []  # type: ignore[attr-defined]
    harden()
    assert FlowerSum().sum(vectors()).total.tolist() == [12, 15, 18, 3]


@pytest.mark.parametrize(
    "bad", [[0.5], [2.0**29 + 1], [-(2.0**29) - 1], [np.nan], [np.inf], [-np.inf]]
)
def test_what_is_no_integer_in_range_is_not_quantised(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="expected integers within the range"):
        pass_integers([np.array(bad)], 2.0**29, 2**30)


def test_integers_pass_unchanged_up_to_the_ends_of_the_range() -> None:
    ends = np.array([-(2**29), -1, 0, 1, 2**29], dtype=np.float64)
    (shifted,) = pass_integers([ends], 2.0**29, 2**30)
    assert shifted.tolist() == [0, 2**29 - 1, 2**29, 2**29 + 1, 2**30]
    with pytest.raises(ValueError, match="step of 1"):
        pass_integers([ends], 8.0, 2**22)


def test_flower_is_told_to_keep_quiet_before_it_is_imported() -> None:
    code = (
        "import os, sys\n"
        "import dpsvm_fast.federated\n"
        "assert 'flwr' not in sys.modules and 'cryptography' not in sys.modules\n"
        "import dpsvm_fast.federated.flower\n"
        "import flwr.supercore.telemetry as telemetry\n"
        "assert telemetry.FLWR_TELEMETRY_ENABLED == '0'\n"
        "home = os.environ['FLWR_HOME']\n"
        "assert os.stat(home).st_mode & 0o077 == 0\n"
    )
    environment = {"PATH": "/usr/bin:/bin"}
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, env=environment)


def test_a_missing_flower_says_what_to_install() -> None:
    with pytest.raises(ImportError, match=r"no_such_engine .*pip install .dpsvm-fast\[federated\]"):
        require("numpy", "no_such_engine")
