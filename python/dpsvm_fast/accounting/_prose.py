"""A privacy statement as text for people, wrapped for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpsvm_fast.accounting.statement import PrivacyStatement

__all__ = ["prose"]

WIDTH = 88


def prose(statement: PrivacyStatement) -> str:
    """Return the statement for people, wrapped for a terminal."""
    head = "PRIVATE" if statement.private else "NOT PRIVATE"
    lines = [f"Privacy statement: {head}", "=" * WIDTH]
    lines += _paragraphs(_promise(statement))
    for title, items in (
        ("Why it is not private", statement.not_private_reasons),
        ("How it follows", _derivation(statement)),
        ("Assumed public", statement.assumed_public),
        ("Not covered", statement.caveats),
    ):
        if items:
            lines += ["", title, *_bullets(items)]
    lines += ["", *_paragraphs(f"Proof: {statement.theorem}")]
    return "\n".join([*lines, f"dpsvm_fast {statement.library_version}"])


def _promise(statement: PrivacyStatement) -> str:
    """Return the guarantee in one or two sentences."""
    neighbours = {
        "add_remove": f"differ by adding or removing {statement.unit}",
        "replace_one": f"differ in {statement.unit}, exchanged for another",
    }[statement.adjacency]
    bound = f"epsilon = {statement.epsilon:g}, delta = {statement.delta:g}"
    if not statement.private:
        return (
            f"No privacy is promised for these weights. The noise has the size that would give "
            f"{bound} for data sets that {neighbours}."
        )
    return (
        f"The released weights are differentially private with {bound} for data sets that "
        f"{neighbours}. Anything computed from them without the training data is as private."
    )


def _derivation(statement: PrivacyStatement) -> tuple[str, ...]:
    """From the settings to the noise, number by number."""
    s, noise = statement.sensitivity, statement.noise
    factor = "" if s.relation_factor == 1 else "2 x "
    intercept = (
        f", with the constant feature {s.intercept_scaling:g}: {s.row_norm:.6g}"
        if s.intercept_scaling
        else ""
    )
    rows, columns = noise.shape
    scale = (
        f"Gaussian noise, sigma = {noise.sigma:.6g} on each"
        if noise.distribution == "gaussian"
        else f"noise with density ~ exp(-beta ||b||), beta = {noise.beta:.6g}, b all"
    )
    drawn = (
        f"drawn exactly on a grid of {noise.grid:.6g}"
        if noise.sampler == "exact_grid"
        else "drawn in floating point"
    )
    source = {
        "operating_system": "a cryptographic stream keyed by the operating system",
        "seed": "a stream keyed by a seed",
    }[statement.random_source]
    return (
        f"{statement.mechanism.replace('_', ' ')}, loss {statement.loss}, C = {s.C:g}; "
        f"rows clipped to norm {s.data_norm:g}{intercept}",
        f"sensitivity of the exact minimiser: {factor}C x {s.lipschitz:.6g} x {s.row_norm:.6g} "
        f"= {s.exact:.6g}; solver error 2 x {s.solver_radius:.6g}; rounding {s.rounding:.6g}; "
        f"total {s.total:.6g}",
        f"{scale} of {rows} x {columns} weights, {drawn}, from {source}",
    )


def _paragraphs(text: str) -> list[str]:
    """Text wrapped to the width."""
    return textwrap.wrap(text, WIDTH)


def _bullets(items: tuple[str, ...]) -> list[str]:
    """Items wrapped to the width, each with a dash."""
    return [
        line
        for item in items
        for line in textwrap.wrap(item, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    ]
