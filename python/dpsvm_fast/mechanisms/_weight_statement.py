"""What the statements of mechanisms that end with noise on weights have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dpsvm_fast.accounting import PrivacyEvent, PrivacyStatement
from dpsvm_fast.accounting.words import fit_assumptions

__all__ = ["statement_of"]


class Release(Protocol):
    """A release of weights, known in full before any data are read."""

    @property
    def adjacency(self) -> str:
        """Neighbouring relation."""

    @property
    def epsilon(self) -> float:
        """Of the whole release."""

    @property
    def delta(self) -> float:
        """Of the whole release; unused by Gamma noise."""

    @property
    def noise(self) -> str:
        """Law of the noise."""

    @property
    def events(self) -> tuple[PrivacyEvent, ...]:
        """What a ledger records."""


def statement_of(
    release: Release, occasion: Mapping[str, Any], own_caveats: tuple[str, ...], **fields: Any
) -> PrivacyStatement:
    """Return the statement about a release on one occasion.

    Parameters
    ----------
    release : Release
    occasion : mapping
        Fields of :class:`PrivacyStatement` about the fit: ``library_version``, and where there is
        something to say ``random_source``, ``assumed_public``, ``caveats`` and
        ``not_private_reasons``.
    own_caveats : tuple of str
        What the mechanism does not cover, whatever the fit.
    **fields
        All other fields.
    """
    given = dict(occasion)
    assumed = fit_assumptions("data_norm", (), release.adjacency, labels="given")
    caveats = own_caveats + tuple(given.pop("caveats", ()))
    return PrivacyStatement(
        adjacency=release.adjacency,
        epsilon=release.epsilon,
        delta=release.delta if release.noise == "gaussian" else 0.0,
        events=release.events,
        caveats=caveats,
        **({"assumed_public": assumed} | given),
        **fields,
    )
