"""What a recomputation of a certificate says."""

from __future__ import annotations

from dataclasses import dataclass

from dpsvm_fast.accounting._prose import bullets, paragraphs

__all__ = ["NOT_SHOWN", "NO_ARITHMETIC", "TOO_MUCH_WORK", "UNDECIDED", "Verification"]

UNDECIDED = (
    "epsilon and delta of all releases together are not recomputed: this check composes at most "
    "eight losses that are known as curves (noise in objectives, best of several runs), to a few "
    "ten-thousandths of delta, and these are more, or the claim leaves no room for that"
)
TOO_MUCH_WORK = (
    "it is not recomputed: that would take far longer than for any certificate of one fit"
)
NOT_SHOWN = (
    "No recomputation can show that the noise was drawn as stated and from no seed, that nothing "
    "else was released from these rows, that rows were clipped as stated, or that what is assumed "
    "public was."
)
NO_ARITHMETIC = "its numbers are too large, or too small, to compute with"


@dataclass(frozen=True)
class Verification:
    """Outcome of a recomputation; true when every number follows and the promise holds.

    Parameters
    ----------
    ok : bool
    problems : tuple of str
        What does not follow, or cannot be told; empty when ``ok``.
    epsilon : float or None
        Recomputed epsilon at the claimed delta; None where the certificate cannot be read, or the
        claim cannot be recomputed.
    delta : float or None
        Recomputed delta at the claimed epsilon.
    undecided : bool, default=False
        Nothing is wrong that could be found, but there is more noise of different laws together
        than this check composes: the claim is neither confirmed nor refuted. Never with ``ok``.
    stated : tuple of str
        Words of the certificate that follow from nothing else in it: its maker stated them, and
        nobody checked them.
    matches : tuple of str
        What was compared with a model and is the same there; empty without one.
    """

    ok: bool
    problems: tuple[str, ...]
    epsilon: float | None
    delta: float | None
    undecided: bool = False
    stated: tuple[str, ...] = ()
    matches: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        numbers = (
            ""
            if self.epsilon is None or self.delta is None
            else f" Recomputed: epsilon = {self.epsilon:.6g}, delta = {self.delta:.6g}."
        )
        if self.ok:
            lines = [f"The certificate holds: every number follows from the others.{numbers}"]
            if self.matches:
                lines += ["Compared with the model, and the same there:"]
                lines += bullets(self.matches)
            if self.stated:
                lines += ["Stated by the maker, not checked:"]
                lines += bullets(self.stated)
            return "\n".join([*lines, *paragraphs(NOT_SHOWN)])
        verdict = (
            "The certificate cannot be confirmed."
            if self.undecided
            else "The certificate does NOT hold."
        )
        return verdict + numbers + "".join(f"\n  - {problem}" for problem in self.problems)
