"""The noisy sums of a release as text for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dpsvm_fast.accounting.events import GaussianEvent, PrivacyEvent, PureEvent

if TYPE_CHECKING:
    from dpsvm_fast.accounting.statement import (
        LastIterate,
        Noise,
        ObjectiveNoise,
        PrivacyStatement,
        ReleasePart,
    )

__all__ = ["describe_parts", "drawn"]

SOURCES = {
    "operating_system": "a cryptographic stream keyed by the operating system",
    "seed": "a stream keyed by a seed",
}


def describe_parts(statement: PrivacyStatement) -> tuple[str, ...]:
    """What was summed, what one record can change, how much noise, and at what price."""
    parts = statement.parts
    if not parts:
        return ()
    name = statement.mechanism.replace("_", " ")
    head = name if statement.loss == "none" else f"{name}, loss {statement.loss}"
    # Runs that are alike, call after call, are described once.
    runs = Counter(parts)
    if len(runs) > 1:
        head += f"; noisy sums for {_listed([part.name for part in runs])}, one after the other"
    shares = _shares(statement.events)
    lines = [head]
    for part, count in runs.items():
        at = parts.index(part)
        price = shares[at] if at < len(shares) else ""
        lines.append((f"{count} times " if count > 1 else "") + _part(part, price))
        if part.last_iterate is not None:
            lines.append(_last_iterate(part, part.last_iterate))
    # What all parts share is said once.
    return (*lines, *(f"noise {sampler}" for sampler in _samplers(parts, statement.random_source)))


def _samplers(parts: tuple[ReleasePart, ...], random_source: str) -> tuple[str, ...]:
    """How the noise was drawn, with all grids together."""
    grids = dict.fromkeys(f"{part.grid:.6g}" for part in parts if part.sampler == "exact_grid")
    if len(grids) > 1 and all(part.sampler == "exact_grid" for part in parts):
        return (f"drawn exactly on grids of {_listed(list(grids))}, from {SOURCES[random_source]}",)
    return tuple(dict.fromkeys(drawn(part, random_source) for part in parts))


def _part(part: ReleasePart, price: str) -> str:
    """One part, from its bound to its noise."""
    return f"{part.name}: {_sums(part)}; {_bound(part)}; {_noise(part)}{price}"


def _sums(part: ReleasePart) -> str:
    """What was summed, how often, over which records."""
    total = part.what
    if not total.removeprefix("the ").startswith("sum"):
        total = f"the sum of {total}"
    if part.n_steps == 1 and part.sampling_rate == 1.0:
        return total
    steps = "1 step" if part.n_steps == 1 else f"{part.n_steps} steps"
    if part.sampling_rate == 1.0:
        return f"{steps} over all rows, each {total}"
    return (
        f"{steps}, each on a fresh sample that every row joins with probability "
        f"{part.sampling_rate:.6g}, independently of all others: {total}"
    )


def _bound(part: ReleasePart) -> str:
    """How far the sums of neighbours can be apart."""
    bound = f"one row contributes a norm of at most {part.clip_norm:.6g}"
    if part.rounding:
        bound += f", {part.contribution:.6g} with rounding"
    if part.relation_factor != 1.0:
        moved = part.relation_factor * part.contribution
        bound += f", so exchanging one moves the sum by at most {moved:.6g}"
    return bound


def _noise(part: ReleasePart) -> str:
    """Law and scale of the noise of one sum."""
    numbers = " x ".join(map(str, part.shape))
    if part.distribution == "gamma":
        return (
            f"noise with density ~ exp(-beta ||b||), beta = {part.beta:.6g}, b all of {numbers} "
            "numbers"
        )
    each = "" if part.n_steps == 1 else " in every step"
    return f"Gaussian noise, sigma = {part.sigma:.6g} on each of {numbers} numbers{each}"


def _last_iterate(part: ReleasePart, last: LastIterate) -> str:
    """Why the steps count for less than their number."""
    return (
        f"only the last iterate is released: a step of size {last.learning_rate:.6g} brings any "
        f"two points closer by the factor {last.contraction:.6g} (strong convexity "
        f"{last.regularization:.6g}, smoothness {last.smoothness:.6g} for up to "
        f"{last.max_records} rows of norm {last.row_norm:.6g}), so {part.n_steps} steps count as "
        f"{last.effective_steps:.6g}"
    )


def _shares(events: tuple[PrivacyEvent, ...]) -> list[str]:
    """What each event has of the budget, where all are of one kind that adds up."""
    if len(events) < 2:
        return [""] * len(events)
    gaussian = [event for event in events if isinstance(event, GaussianEvent)]
    pure = [event for event in events if isinstance(event, PureEvent)]
    if len(gaussian) == len(events):
        squares = [event.mu**2 for event in gaussian]
        return [
            f"; {100.0 * square / sum(squares):.3g}% of the budget, in mu^2" for square in squares
        ]
    if len(pure) == len(events):
        return [f"; epsilon = {event.epsilon:.6g} of the sum" for event in pure]
    return [
        f"; mu = {event.mu:.6g}"
        if isinstance(event, GaussianEvent)
        else f"; epsilon = {event.epsilon:.6g}"
        if isinstance(event, PureEvent)
        else ""
        for event in events
    ]


def drawn(noise: Noise | ObjectiveNoise | ReleasePart, random_source: str) -> str:
    """Sampler and source."""
    sampler = (
        f"drawn exactly on a grid of {noise.grid:.6g}"
        if noise.sampler == "exact_grid"
        else "drawn in floating point"
    )
    return f"{sampler}, from {SOURCES[random_source]}"


def _listed(names: list[str]) -> str:
    """Names with commas and an and."""
    return ", ".join(names[:-1]) + " and " + names[-1]
