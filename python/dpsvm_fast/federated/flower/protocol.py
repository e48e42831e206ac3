"""The four stages of Flower's protocol with our masks and shares, and their terms.

Puts our masks and shares in the place of Flower's, and refuses to go on where that fails.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast.exceptions import InvalidParameterError
from dpsvm_fast.federated.flower.masks import PROTOCOL, combine_shares, create_shares, expand_mask
from dpsvm_fast.federated.spec import FederatedSpec
from dpsvm_fast.validation import check_integer

# All that a party ever tells the server about why it does not go on.
#
# Which of several reasons a party had for not contributing is not told: it may depend on its
# records. The party's own log names the place in the code.


ANOTHER_SPECIFICATION = "another specification"

ANSWERED_BEFORE = "this round was answered before"

OUT_OF_ORDER = "a message out of order"

UNKNOWN_MESSAGE = "a message of an unknown kind"

WRONG_TERMS = "terms of the sum other than agreed on"

WRONG_PARTIES = "a list of parties that is not as agreed on"

TOO_FEW_PARTIES = "too few parties for this sum"

NO_CONTRIBUTION = "this party could not contribute"

NOT_HARDENED = "the secure sum of this party is not in order"

REFUSALS = (
    ANOTHER_SPECIFICATION,
    ANSWERED_BEFORE,
    OUT_OF_ORDER,
    UNKNOWN_MESSAGE,
    WRONG_TERMS,
    WRONG_PARTIES,
    TOO_FEW_PARTIES,
    NO_CONTRIBUTION,
    NOT_HARDENED,
)


# What the parties of one secure sum have agreed on, each for itself, before it starts.


# Vectors of more numbers would not fit one message.
MAX_LENGTH = 2**27


@dataclass(frozen=True, kw_only=True)
class RoundTerms:
    """Terms of one round. A party refuses whatever differs from its own copy.

    Parameters
    ----------
    digest : str
        Fingerprint of the whole specification.
    name : str
        Name of the round within it.
    length : int
        Numbers of a vector; the last one is 1 and counts the parties in the sum.
    n_users : int >= 2
        Parties that are asked. ``n_users * 2**bits`` must stay below ``modulus``: no overflow.
    min_survivors : int
        A party gives its shares for unmasking only if so many parties are in the sum.
    threshold : int
        Shares that open a mask: more than half of the parties, so that the shares of no two
        disjoint groups suffice, and at most ``min_survivors``.
    bits : int, default=30
        Numbers are smaller than ``2**(bits - 1)`` in size.
    modulus : int, default=2**48
        Sums are known modulo this power of two.
    protocol : str
        How masks are made.

    Raises
    ------
    TypeError, InvalidParameterError
        Terms that would not protect the parties, or that could not be summed.
    """

    digest: str
    name: str
    length: int
    n_users: int
    min_survivors: int
    threshold: int
    bits: int = 30
    modulus: int = 2**48
    protocol: str = PROTOCOL

    def __post_init__(self) -> None:
        """Refuse terms under which a sum would be wrong or its parts known."""
        if self.protocol != PROTOCOL:
            raise InvalidParameterError.of("protocol", got=self.protocol, accepted=repr(PROTOCOL))
        check_integer("length", self.length, 2, MAX_LENGTH)
        check_integer("bits", self.bits, 2, 30)
        check_integer("modulus", self.modulus, 2**3, 2**62)
        if self.modulus & (self.modulus - 1):
            raise InvalidParameterError.of("modulus", got=self.modulus, accepted="a power of two")
        # A secure sum of one is its own vector.
        check_integer("n_users", self.n_users, 2, (self.modulus >> self.bits) - 1)
        check_integer("min_survivors", self.min_survivors, 2, self.n_users)
        check_integer("threshold", self.threshold, self.n_users // 2 + 1, self.min_survivors)

    @property
    def limit(self) -> int:
        """Numbers of a vector are smaller in size than this."""
        return 1 << (self.bits - 1)

    @property
    def target(self) -> int:
        """Flower's quantisation range with which its step is exactly 1."""
        return 1 << self.bits


def terms_of_rounds(spec: FederatedSpec) -> dict[str, RoundTerms]:
    """Terms of all rounds of a specification, by their names.

    Parameters
    ----------
    spec : FederatedSpec
        Of two parties or more.

    Returns
    -------
    dict of str to RoundTerms
    """
    digest = spec.digest()
    return {
        plan.name: RoundTerms(
            digest=digest,
            name=plan.name,
            length=plan.length,
            n_users=spec.n_users,
            min_survivors=spec.survivors_needed,
            threshold=spec.threshold,
            bits=plan.codec.bits,
            modulus=plan.codec.modulus,
            protocol=spec.protocol,
        )
        for plan in spec.rounds
    }


# The four stages of Flower's protocol, and what a party demands of each message.


# Flower's words.
CONFIGS = "secaggplus_configs"

STATE = "secaggplus_state"

SETUP, SHARE, COLLECT, UNMASK = "setup", "share_keys", "collect_masked_vectors", "unmask"

# Stage that must have been passed before; restarts begin anew.
BEFORE = {SETUP: "", SHARE: SETUP, COLLECT: SHARE, UNMASK: COLLECT}

# Fields of a party's reply.
REPLIES = {
    SETUP: {"pk1", "pk2"},
    SHARE: {"dsts", "ctxts"},
    COLLECT: {"masked_params"},
    UNMASK: {"nids", "shares"},
}

# A public key, a private key's share in its envelope: far below.
MAX_KEY_BYTES = 4096


@dataclass
class Seen:
    """What a party remembers of a round in progress.

    Parameters
    ----------
    session : str
        The server's name of this attempt.
    round_name : str
    own : int
        The party's own number.
    stage : str
        Last stage passed.
    sampled : int
        Parties that were asked in this attempt.
    parties : list of int
        Those whose keys were shown.
    sources : list of int
        Those with whom masks are shared.
    """

    session: str = ""
    round_name: str = ""
    own: int = 0
    stage: str = ""
    sampled: int = 0
    parties: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, record: Mapping[str, Any] | None) -> Seen:
        """Read what :meth:`write` has written; nothing where there is nothing."""
        return cls() if record is None else cls(**dict(record))

    def write(self) -> dict[str, Any]:
        """The fields, as a record takes them."""
        return dict(vars(self))


def check_setup(configs: Mapping[str, Any], terms: RoundTerms, seen: Seen) -> str | None:
    """Ranges, modulus, weight, threshold, number of parties."""
    expected = {
        "clipping_range": float(terms.limit),
        "target_range": terms.target,
        "mod_range": terms.modulus,
        "max_weight": 1.0,
    }
    if set(configs) != {*expected, "stage", "sample_num", "share_num", "threshold"}:
        return WRONG_TERMS
    if any(type(configs[k]) is not type(v) or configs[k] != v for k, v in expected.items()):
        return WRONG_TERMS
    sampled, shares, threshold = (configs[k] for k in ("sample_num", "share_num", "threshold"))
    if any(type(number) is not int for number in (sampled, shares, threshold)):
        return WRONG_TERMS
    # Everyone shares with everyone: only then can a party count who is left.
    if shares != sampled or sampled > terms.n_users or not terms.threshold <= threshold <= sampled:
        return WRONG_TERMS
    if sampled < terms.min_survivors:
        return TOO_FEW_PARTIES
    seen.sampled = sampled
    return None


def check_share(configs: Mapping[str, Any], terms: RoundTerms, seen: Seen) -> str | None:
    """The parties' public keys."""
    keys = {name: pair for name, pair in configs.items() if name != "stage"}
    parties = [int(name) for name in keys if name.isascii() and name.isdigit()]
    # "7" and "07" are two names of one party.
    if [str(party) for party in parties] != list(keys) or seen.own not in parties:
        return WRONG_PARTIES
    if len(parties) > seen.sampled or not all(_are_keys(pair) for pair in keys.values()):
        return WRONG_PARTIES
    if len(parties) < terms.min_survivors:
        return TOO_FEW_PARTIES
    seen.parties = parties
    return None


def check_collect(configs: Mapping[str, Any], terms: RoundTerms, seen: Seen) -> str | None:
    """The packets from those with whom masks will be shared."""
    if set(configs) != {"stage", "ctxts", "srcs"}:
        return WRONG_PARTIES
    sources, packets = configs["srcs"], configs["ctxts"]
    if not _are_parties(sources) or not isinstance(packets, list) or len(packets) != len(sources):
        return WRONG_PARTIES
    if not set(sources) <= set(seen.parties) - {seen.own}:
        return WRONG_PARTIES
    if not all(isinstance(p, bytes) and len(p) <= MAX_KEY_BYTES for p in packets):
        return WRONG_PARTIES
    if len(sources) + 1 < terms.min_survivors:
        return TOO_FEW_PARTIES
    seen.sources = list(sources)
    return None


def check_unmask(configs: Mapping[str, Any], terms: RoundTerms, seen: Seen) -> str | None:
    """Who is in the sum and who is gone: nobody both, everybody one of them."""
    if set(configs) != {"stage", "active_nids", "dead_nids"}:
        return WRONG_PARTIES
    active, dead = configs["active_nids"], configs["dead_nids"]
    if not _are_parties(active) or not _are_parties(dead) or set(active) & set(dead):
        return WRONG_PARTIES
    if set(active) | set(dead) != {*seen.sources, seen.own} or seen.own not in active:
        return WRONG_PARTIES
    return TOO_FEW_PARTIES if len(active) < terms.min_survivors else None


CHECKS: dict[str, Callable[[Mapping[str, Any], RoundTerms, Seen], str | None]] = {
    SETUP: check_setup,
    SHARE: check_share,
    COLLECT: check_collect,
    UNMASK: check_unmask,
}


def _are_keys(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(key, bytes) and 0 < len(key) <= MAX_KEY_BYTES for key in pair)
    )


def _are_parties(numbers: Sequence[object]) -> bool:
    """Tell whether these are distinct numbers of parties."""
    if not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        return False
    return len(set(numbers)) == len(numbers)


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
