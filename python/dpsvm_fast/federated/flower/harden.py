"""Puts our masks and shares in the place of Flower's, and refuses to go on where that fails.

Flower's protocol code calls a handful of helper functions by name. :func:`harden` replaces them
in the two modules that run the protocol, after it has made sure that these modules are the ones
that were reviewed, and afterwards makes the client's code mask a vector and looks at the result.
There is no other way back than a new process, and no fall-back.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import math
import secrets
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.federated.flower.prg import expand_mask
from dpsvm_fast.federated.flower.shamir import combine_shares, create_shares

__all__ = ["HardeningError", "check_hardened", "forget_keys", "harden"]

Integers: TypeAlias = NDArray[np.int64]

CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"

# Versions from the first to below the second.
VERSIONS = ((1, 41), (1, 43))

# The protocol's code as it was read, by SHA-256 of the files; the same in 1.41.0 and 1.42.0.
# A file with another content may call something else under the names that are replaced.
REVIEWED = {
    CLIENT: "2f2e20f3f0647ae8d176c99361a817b248d491ee52d5a08fb6d5c5f091dc4bfb",
    SERVER: "af222dc06f78ec2b467f7b6135487572a53ec17f6e0efba171fbd6543b76bde8",
    "flwr.common.secure_aggregation.secaggplus_utils": (
        "35516ed50d96c5bd123643eeeb14a2609127d9f31bddc448de0bf9a97a046712"
    ),
    "flwr.common.secure_aggregation.secaggplus_constants": (
        "e5de5f960b54d5663e024c2a0a51cfb58d316e87d1e0cacc5d912bcc2f874c65"
    ),
    "flwr.common.secure_aggregation.ndarrays_arithmetic": (
        "e39e68aa0fc998ccd79dfeaceb0e3322dd59bddf497b6b50361ecb317d17c4bc"
    ),
    "flwr.common.secure_aggregation.quantization": (
        "351fcfc9d1a9244c5dfee622620a7f74f3d512b0d942875a7a5a12538fd8f15c"
    ),
    "flwr.common.secure_aggregation.crypto.symmetric_encryption": (
        "3286253477c69ed8d1aef3c3f3ac21b07d5ef7629edab9489320c92517448566"
    ),
    "flwr.supercore.primitives.asymmetric": (
        "d7ae379e21d88f7b846df3ddd3a56e307c0dded295c20d2e5724774614dd5885"
    ),
    "flwr.compat.common.recorddict_compat": (
        "1d9639fe2d20777b287fe16ca1aa594d76a97dcbec39d9b192f320e8bcfb18a9"
    ),
    "flwr.client.mod.utils": "1b8acebe413473315648bd7772d7bb730b4f8d439dc5a0efa43678cf9e94ffad",
    "flwr.clientapp.client_app": "ed9bd6f65b8df8378fed7e78930fbbac61c3e16bcadade06d8cd44e6a215194d",
}


class HardeningError(RuntimeError):
    """Flower's secure aggregation is not in the state in which it protects anybody."""


def mask_arrays(
    seed: bytes, num_range: int, dimensions_list: Sequence[tuple[int, ...]]
) -> list[Integers]:
    """Masks of given shapes from one key, in the place of Flower's ``pseudo_rand_gen``."""
    sizes = [math.prod(shape) for shape in dimensions_list]
    numbers = expand_mask(seed, num_range, sum(sizes))
    parts = np.split(numbers, np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, dimensions_list, strict=True)]


def pass_integers(
    parameters: Sequence[NDArray[Any]], clipping_range: float, target_range: int
) -> list[Integers]:
    """Shift integers to be non-negative, in the place of Flower's ``quantize``.

    Flower clips silently and rounds at random with a generator that anybody may seed. Here what
    is no integer within the range is refused.
    """
    if target_range != 2 * clipping_range:
        raise ValueError("quantisation: expected a step of 1")
    shifted = []
    for numbers in parameters:
        if not (np.abs(numbers) <= clipping_range).all() or (numbers != np.rint(numbers)).any():
            raise ValueError("quantisation: expected integers within the range")
        shifted.append(numbers.astype(np.int64) + int(clipping_range))
    return shifted


@lru_cache(maxsize=2)
def _private_key(key: bytes) -> Any:
    """Read a private key once, not once for every neighbour."""
    reader: Any = importlib.import_module("flwr.supercore.primitives.asymmetric")
    return reader.bytes_to_private_key(key)


def forget_keys() -> None:
    """Drop the private keys that were kept for speed."""
    _private_key.cache_clear()


# Which names of which module are replaced by what.
REPLACEMENTS: dict[str, dict[str, Any]] = {
    CLIENT: {
        "pseudo_rand_gen": mask_arrays,
        "create_shares": create_shares,
        "quantize": pass_integers,
        "bytes_to_private_key": _private_key,
    },
    SERVER: {
        "pseudo_rand_gen": mask_arrays,
        "combine_shares": combine_shares,
        "bytes_to_private_key": _private_key,
        # Orders the parties; the default generator can be seeded by anybody.
        "random": secrets.SystemRandom(),
    },
}

# Functions of the protocol that must call each replacement by its global name.
CALLERS = {
    CLIENT: {
        "pseudo_rand_gen": "_collect_masked_vectors",
        "create_shares": "_share_keys",
        "quantize": "_collect_masked_vectors",
        "bytes_to_private_key": "_collect_masked_vectors",
    },
    SERVER: {
        "pseudo_rand_gen": "SecAggPlusWorkflow.unmask_stage",
        "combine_shares": "SecAggPlusWorkflow.unmask_stage",
        "bytes_to_private_key": "SecAggPlusWorkflow.unmask_stage",
        "random": "SecAggPlusWorkflow.setup_stage",
    },
}


def harden() -> None:
    """Install our masks and shares over Flower's, in both modules, and test that they are used.

    Calling it again costs microseconds. Nothing is installed into code that was not reviewed.

    Raises
    ------
    HardeningError
        Flower has another version, other code, other names, or does not use what was installed.
    """
    if _is_installed():
        return
    check_version(importlib.metadata.version("flwr"))
    check_sources()
    for name, functions in REPLACEMENTS.items():
        module = _module(name)
        for function, ours in functions.items():
            if not hasattr(module, function):
                raise HardeningError(f"{name} has no {function} any more")
            setattr(module, function, ours)
    check_hardened()
    self_test()


def check_hardened() -> None:
    """Refuse to go on unless the protocol's code calls our functions.

    Raises
    ------
    HardeningError
        :func:`harden` has not run, or somebody has put other functions in place since.
    """
    if not _is_installed():
        raise HardeningError("Flower's secure aggregation is not hardened")
    for name, callers in CALLERS.items():
        for function, caller in callers.items():
            code = _code_of(_module(name), caller)
            if function not in code.co_names or function in code.co_varnames:
                raise HardeningError(f"{name}.{caller} does not call {function}")


def check_version(version: str) -> None:
    """Refuse a version of Flower whose protocol was not reviewed.

    Raises
    ------
    HardeningError
    """
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    low, high = VERSIONS
    if not low <= numbers < high:
        raise HardeningError(
            f"flwr {version}: the secure aggregation was reviewed for versions "
            f">= {low[0]}.{low[1]} and < {high[0]}.{high[1]}"
        )


def check_sources() -> None:
    """Refuse protocol code that differs from the code that was reviewed.

    Raises
    ------
    HardeningError
    """
    for name, expected in REVIEWED.items():
        if source_digest(name) != expected:
            raise HardeningError(f"{name} is not the code that was reviewed")


def source_digest(name: str) -> str:
    """SHA-256 of a module's file, whatever its line ends."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise HardeningError(f"{name} does not exist")
    source = Path(spec.origin).read_bytes().replace(b"\r\n", b"\n")
    return hashlib.sha256(source).hexdigest()


def self_test() -> None:
    """Let Flower's own client code share keys and mask a vector, and check both.

    Raises
    ------
    HardeningError
    """
    module: Any = _module(CLIENT)
    own, other = module.SecAggPlusState(nid=1), module.SecAggPlusState(nid=2)
    setup = {"sample_num": 2, "share_num": 2, "threshold": 2, "clipping_range": 2.0**29}
    setup |= {"target_range": 2**30, "mod_range": 2**48, "max_weight": 1.0}
    keys = {}
    for state in (own, other):
        sent = module._setup(state, setup)
        keys[str(state.nid)] = (sent["pk1"], sent["pk2"])
    packets = [module._share_keys(state, keys)["ctxts"] for state in (own, other)]
    vector = np.arange(-3, 4)
    seed = own.rd_seed
    pair = module.generate_shared_key(_private_key(own.sk1), module.bytes_to_public_key(other.pk1))
    parameters = module_parameters([vector])
    message = {"ctxts": packets[1], "srcs": [2]}
    masked = _read_masked(module._collect_masked_vectors(own, message, 1, parameters))
    expected = np.concatenate([[2**30], vector + 2**29])
    expected = expected + expand_mask(seed, 2**48, 8) - expand_mask(pair, 2**48, 8)
    plaintext = module.decrypt(own.ss2_dict[2], packets[0][0])
    share = module.share_keys_plaintext_separate(plaintext)[2]
    forget_keys()
    if not np.array_equal(masked, expected & (2**48 - 1)):
        raise HardeningError("Flower's client does not mask with the installed generator")
    if combine_shares([own.rd_seed_share_dict[1], share]) != seed:
        raise HardeningError("Flower's client does not share with the installed scheme")


def module_parameters(arrays: list[Integers]) -> Any:
    """Arrays in the form in which Flower's client code takes them."""
    common: Any = importlib.import_module("flwr.common")
    return common.ndarrays_to_parameters(arrays)


def _read_masked(reply: Any) -> Integers:
    common: Any = importlib.import_module("flwr.common")
    parts = [common.bytes_to_ndarray(data) for data in reply["masked_params"]]
    return np.concatenate(parts)


def _is_installed() -> bool:
    return all(
        name in sys.modules and getattr(sys.modules[name], function, None) is ours
        for name, functions in REPLACEMENTS.items()
        for function, ours in functions.items()
    )


def _module(name: str) -> ModuleType:
    """The module itself: the package's attribute of this name is the function in it."""
    importlib.import_module(name)
    return sys.modules[name]


def _code_of(module: ModuleType, path: str) -> CodeType:
    """Code of a function that looks its names up in ``module``."""
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    code = getattr(found, "__code__", None)
    if not isinstance(code, CodeType) or found.__globals__ is not module.__dict__:
        raise HardeningError(f"{module.__name__} has no function {path} of its own")
    return code
