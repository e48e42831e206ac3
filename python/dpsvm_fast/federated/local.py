"""What one party does in a round: pays, fits, rounds, adds its noise; once."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast import _core
from dpsvm_fast._arithmetic import in_usual_arithmetic
from dpsvm_fast._validation import check_option
from dpsvm_fast.accounting import PrivacyLedger, check_ledger
from dpsvm_fast.federated._contributions import contributions
from dpsvm_fast.federated.errors import PartyRefusedError
from dpsvm_fast.federated.parties import checked_records
from dpsvm_fast.federated.spec import FederatedSpec

__all__ = ["LocalUpdate", "PartyState", "checked_public", "local_update"]

FORMAT = "dpsvm_fast.party_state"
TRUSTS = ("secure_sum", "trusted_curator")


@dataclass(frozen=True, eq=False, repr=False)
class LocalUpdate:
    """What a party puts into a sum. For nobody's eyes but the sum's.

    Parameters
    ----------
    vector : ndarray of shape (length,), int64
        Noisy numbers of the contribution, the party's number of records (0 where parties count
        alike), and 1.
    """

    vector: NDArray[np.int64]


@dataclass(eq=False, repr=False)
class PartyState:
    """What a party has paid for and released under one specification, so that it does so once.

    Before its vector has been sent, a round that is restarted gets the same noisy vector again;
    another question under the same name gets none. Once it has been sent, say so by
    :meth:`mark_sent`: two sums of the same vectors over different parties differ by single vectors.
    Keep the state where only the party can read, and store it before a vector is sent.

    Parameters
    ----------
    digest : str
        Of the specification; empty before the first round.
    charged : list of str
        Rounds that the ledger was charged for.
    released : dict
        Of each round, what it was made from (a digest of public numbers) and the vector.
    sent : list of str
        Rounds whose vector may be in a sum that somebody opened: never answered again.
    """

    digest: str = ""
    charged: list[str] = field(default_factory=list)
    released: dict[str, tuple[str, NDArray[np.int64]]] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)

    def open_for(self, spec: FederatedSpec) -> None:
        """Bind a fresh state to a specification.

        Raises
        ------
        PartyRefusedError
            It belongs to another one.
        """
        digest = spec.digest()
        if self.digest not in ("", digest):
            raise PartyRefusedError("state: belongs to another specification")
        self.digest = digest

    def recall(self, round_name: str, mark: str) -> NDArray[np.int64] | None:
        """The vector that was made before, if any.

        Parameters
        ----------
        round_name : str
        mark : str
            Digest of the public numbers that the vector is made from.

        Returns
        -------
        ndarray of int64 or None

        Raises
        ------
        PartyRefusedError
            One was sent, or made from other public numbers: a second would be a second release.
        """
        if round_name in self.sent:
            raise PartyRefusedError("round: was answered before")
        if round_name not in self.released:
            return None
        made_from, vector = self.released[round_name]
        if made_from != mark:
            raise PartyRefusedError("round: was answered before, from other public numbers")
        return vector

    def mark_sent(self, round_name: str) -> None:
        """The round's vector leaves: it is forgotten, and the round never answered again."""
        self.released.pop(round_name, None)
        if round_name not in self.sent:
            self.sent.append(round_name)

    def to_bytes(self) -> bytes:
        """The state, to be stored."""
        released = {
            name: [mark, base64.b64encode(vector.astype("<i8").tobytes()).decode()]
            for name, (mark, vector) in self.released.items()
        }
        record = {
            "digest": self.digest,
            "charged": self.charged,
            "released": released,
            "sent": self.sent,
        }
        return json.dumps({"format": FORMAT} | record).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> PartyState:
        """Read what :meth:`to_bytes` wrote.

        Raises
        ------
        PartyRefusedError
            Anything else: a damaged state must not turn into a fresh one.
        """
        try:
            record = json.loads(data)
            if record["format"] != FORMAT:
                raise ValueError
            released = {
                str(name): (
                    str(mark),
                    np.frombuffer(base64.b64decode(text), "<i8").astype(np.int64),
                )
                for name, (mark, text) in record["released"].items()
            }
            charged, sent = (list(map(str, record[name])) for name in ("charged", "sent"))
            return cls(str(record["digest"]), charged, released, sent)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise PartyRefusedError("state: damaged") from None


@in_usual_arithmetic
def local_update(
    X: Any,
    y: Any,
    spec: FederatedSpec,
    round_name: str,
    *,
    public: NDArray[np.float64] | None = None,
    state: PartyState | None = None,
    source: _core.NoiseSource | None = None,
    ledger: PrivacyLedger | None = None,
    trust: str = "secure_sum",
    n_threads: int = 1,
) -> LocalUpdate:
    """One party's vector for one round.

    Parameters
    ----------
    X : array-like of shape (n_records, n_features)
    y : array-like of shape (n_records,)
    spec : FederatedSpec
    round_name : str
        A name of ``spec.rounds``.
    public : ndarray of shape (n_components, n_features) or None
        What a later round takes from the sums of earlier ones, see
        :func:`dpsvm_fast.federated.public_state`.
    state : PartyState or None
        Is written to. None for a party that surely is asked once. A round that is asked for again
        gets the same vector until :meth:`PartyState.mark_sent`.
    source : NoiseSource or None
        None takes the operating system's entropy. A seeded one makes the result not private.
    ledger : PrivacyLedger or None
        The party's own; charged with the events of the round before its records are looked at,
        and once where a state is kept.
    trust : {"secure_sum", "trusted_curator"}
    n_threads : int
        Does not change the result.

    Returns
    -------
    LocalUpdate

    Raises
    ------
    InvalidParameterError, TypeError
        A parameter outside its range. Nothing was read or spent.
    BudgetExceededError
        The ledger refuses. Nothing was read or spent.
    PartyRefusedError
        Records or public numbers are not as agreed on, or training failed: nothing is released. The
        texts are constants. The budget is spent, but where a state is kept not again for another
        try.

    Notes
    -----
    Guarantees: none for the vector by itself beyond the statement's ``local_epsilon``; those of
    the statement for sums of the vectors of ``spec.survivors_needed`` parties or more.

    Examples
    --------
    >>> import numpy as np
    >>> from dpsvm_fast.federated import FederatedSpec, local_update
    >>> spec = FederatedSpec.dp_helmet(
    ...     n_users=20, n_features=2, classes=[0, 1], epsilon=1.0, delta=1e-6, max_records=50
    ... )
    >>> X = np.random.default_rng(0).uniform(-0.7, 0.7, size=(50, 2))
    >>> update = local_update(X, (X[:, 0] > 0).astype(int), spec, "model")
    >>> update.vector.dtype
    dtype('int64')
    """
    check_option("trust", trust, TRUSTS)
    plan = spec.round(round_name)
    ledger = check_ledger(ledger, "replace_one")
    state = PartyState() if state is None else state
    state.open_for(spec)
    public = checked_public(public, spec, round_name)
    mark = _mark(public)
    known = state.recall(round_name, mark)
    if known is not None:
        return LocalUpdate(known.copy())
    if ledger is not None and round_name not in state.charged:
        ledger.spend(plan.events(trust), f"{spec.algorithm}, round {round_name!r}")
        state.charged.append(round_name)
    records = checked_records(X, y, spec)
    source = _core.NoiseSource(None) if source is None else source
    (vector,) = contributions(spec, round_name, records, public, [source], n_threads)
    state.released[round_name] = (mark, vector)
    return LocalUpdate(vector.copy())


def checked_public(
    public: NDArray[np.float64] | None, spec: FederatedSpec, round_name: str
) -> NDArray[np.float64] | None:
    """The components of earlier rounds, where a round takes some.

    Raises
    ------
    PartyRefusedError
        Not those numbers: another shape, or too large.
    """
    if spec.algorithm == "dp_helmet" or round_name == spec.rounds[0].name:
        if public is not None:
            raise PartyRefusedError("public: this round takes no numbers")
        return None
    shape = (spec.params["n_components"], spec.n_features)
    fits = isinstance(public, np.ndarray) and public.shape == shape
    if not fits or public is None or public.dtype != np.float64:
        raise PartyRefusedError("public: expected components of the shape agreed on")
    if not (np.abs(public) <= 2.0).all():
        raise PartyRefusedError("public: expected finite components of norm about 1")
    return np.require(public, requirements=["C_CONTIGUOUS", "ALIGNED"])


def _mark(public: NDArray[np.float64] | None) -> str:
    """Digest of public numbers."""
    return "" if public is None else hashlib.sha256(public.tobytes()).hexdigest()
