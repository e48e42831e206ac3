"""A privacy statement as text for people, wrapped for a terminal."""

from __future__ import annotations

import math
import textwrap
from typing import TYPE_CHECKING

from dpsvm_fast.accounting._parts_prose import describe_parts, drawn

if TYPE_CHECKING:
    from dpsvm_fast.accounting.statement import (
        Descent,
        Noise,
        ObjectiveNoise,
        PrivacyStatement,
        Sensitivity,
    )

__all__ = ["ALONE", "CHECK", "WIDTH", "bullets", "odds", "paragraphs", "prose"]

WIDTH = 88
# Beyond this a factor is not written out, and beyond that it excludes hardly anything.
LARGEST, MEANINGFUL = 100.0, 10.0
CHECK = "To check the numbers: save to_json() as a file and run dpsvm-fast verify FILE"

ALONE = (
    "A choice by scores on the same rows, as GridSearchCV makes it, and other releases from them "
    "are not covered."
)


def prose(statement: PrivacyStatement) -> str:
    """Return the statement for people, wrapped for a terminal."""
    head = "PRIVATE" if statement.private else "NOT PRIVATE"
    lines = [f"Privacy statement: {head}", "=" * WIDTH]
    lines += paragraphs(_promise(statement))
    for title, items in (
        ("Why it is not private", statement.not_private_reasons),
        ("How it follows", _derivation(statement)),
        ("Assumed public", statement.assumed_public),
        ("Not covered", statement.caveats),
    ):
        if items:
            lines += ["", title, *bullets(items)]
    lines += ["", *paragraphs(f"Proof: {statement.theorem}"), CHECK]
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
            f"No privacy is promised for this release. The noise has the size that would give "
            f"{bound} for data sets that {neighbours}."
        )
    return (
        f"What this fit released is differentially private with {bound} for data sets that "
        f"{neighbours}. {odds(statement.epsilon, statement.delta)} Anything computed from the "
        "release without the training data is as private. Somebody to whom several such records "
        f"belong is protected less. {ALONE}"
    )


def odds(epsilon: float, delta: float) -> str:
    """What epsilon and delta say, in a sentence."""
    factor = f"e^{epsilon:g} = {math.exp(epsilon):.3g}" if epsilon < LARGEST else f"e^{epsilon:g}"
    rest = f", and {delta:g} besides" if delta else ""
    weak = " That is so much that it says little." if epsilon > MEANINGFUL else ""
    return (
        "Whatever is done with the release, the probability of any outcome on the one data set and "
        f"on the other differs by a factor of {factor} at most{rest}.{weak}"
    )


def _derivation(statement: PrivacyStatement) -> tuple[str, ...]:
    """From the settings to the noise, number by number."""
    s, noise = statement.sensitivity, statement.noise
    lines = describe_parts(statement)
    if s is None or noise is None:
        return lines
    return lines + _of_weights(statement, s, noise)


def _of_weights(statement: PrivacyStatement, s: Sensitivity, noise: Noise) -> tuple[str, ...]:
    """How the noise inside the objective and that on the weights follow."""
    inside, source = statement.objective, statement.random_source
    intercept = (
        f", with the constant feature {s.intercept_scaling:g}: {s.row_norm:.6g}"
        if s.intercept_scaling
        else ""
    )
    rows = f"rows clipped to norm {s.data_norm:g}{intercept}"
    name = "training" if statement.parts else statement.mechanism.replace("_", " ")
    if inside is not None:
        return (
            f"{name}, loss {_loss(statement.loss, inside)}, regularization "
            f"{_regularization(inside)}; {rows}",
            *_inside(inside, source),
            f"training stops at a gradient of norm {inside.gradient_tol:.6g}, at most "
            f"{s.solver_radius:.6g} from the exact minimiser: sensitivity 2 x "
            f"{s.solver_radius:.6g}; rounding {s.rounding:.6g}; total {s.total:.6g}",
            f"this is covered by {_law(noise)}, {drawn(noise, source)}; it spends the rest of "
            "epsilon and delta",
        )
    factor = "" if s.relation_factor == 1 else "2 x "
    run = statement.descent
    if run is not None:
        return (
            f"{name}, loss {statement.loss}, C = {s.C:g}; {rows}",
            _descent(run, s),
            f"{_law(noise)}, {drawn(noise, source)}",
        )
    return (
        f"{name}, loss {statement.loss}, C = {s.C:g}; {rows}",
        f"sensitivity of the exact minimiser: {factor}C x {s.lipschitz:.6g} x {s.row_norm:.6g} "
        f"= {s.exact:.6g}; solver error 2 x {s.solver_radius:.6g}; rounding {s.rounding:.6g}; "
        f"total {s.total:.6g}",
        f"{_law(noise)}, {drawn(noise, source)}{_repeated(statement)}",
    )


def _repeated(statement: PrivacyStatement) -> str:
    """How often weights were released, where it is more than once."""
    times = len(statement.events) - len(statement.parts)
    if times <= 1:
        return ""
    return f"; {times} releases like this, each minimiser regularised towards the release before"


def _descent(run: Descent, s: Sensitivity) -> str:
    """How far projected SGD moves."""
    which = {"last": "its last iterate", "uniform": "the mean of its iterates"}.get(
        run.average, "the mean of its iterates weighted by their number"
    )
    return (
        f"projected SGD, {run.n_epochs} passes in batches of {run.batch_size} over "
        f"{run.n_samples} rows, radius {run.radius:.6g} ({run.projection}): {which} moves by "
        f"at most {s.exact:.6g}; rounding errors 2 x {s.solver_radius:.6g}; grid "
        f"{s.rounding:.6g}; total {s.total:.6g}"
    )


def _inside(inside: ObjectiveNoise, source: str) -> tuple[str, ...]:
    """The noise in the objective, and what it promises about the exact minimiser."""
    bounds = (
        f"one row changes the objective's gradient by at most {inside.lipschitz:.6g} x "
        f"{inside.row_norm:.6g} and its curvature by at most {inside.curvature:.6g} x "
        f"{inside.row_norm:.6g}^2, curvature ratio {inside.curvature_ratio:.6g}"
    )
    price = ""
    if inside.jacobian is not None:
        price = (
            f", of which the change of curvature costs {inside.jacobian:.6g}"
            if inside.jacobian
            else ", nothing of it for the change of curvature"
        )
    return (
        bounds,
        f"{_law(inside, 'B', 'linear coefficients')} inside the objective, "
        f"{drawn(inside, source)}: the exact minimiser has epsilon = {inside.epsilon:.6g}, "
        f"delta = {inside.delta:.6g}{price}",
    )


def _loss(name: str, inside: ObjectiveNoise) -> str:
    """The loss with the parameters that it has."""
    if name == "logistic":
        return name
    return f"{name} (smoothing {inside.smoothing:g}, margin {inside.margin:g})"


def _regularization(inside: ObjectiveNoise) -> str:
    """Lambda, and what part of it was added for privacy."""
    extra = inside.extra_regularization
    added = f" ({extra:.6g} of it for privacy)" if extra else ""
    return f"{inside.regularization:.6g}{added}"


def _law(noise: Noise | ObjectiveNoise, name: str = "b", what: str = "weights") -> str:
    """Distribution and scale."""
    rows, columns = noise.shape
    if noise.distribution == "gaussian":
        return f"Gaussian noise, sigma = {noise.sigma:.6g} on each of {rows} x {columns} {what}"
    return (
        f"noise with density ~ exp(-beta ||{name}||), beta = {noise.beta:.6g}, {name} all of "
        f"{rows} x {columns} {what}"
    )


def paragraphs(text: str) -> list[str]:
    """Text wrapped to the width."""
    return textwrap.wrap(text, WIDTH)


def bullets(items: tuple[str, ...]) -> list[str]:
    """Items wrapped to the width, each with a dash."""
    return [
        line
        for item in items
        for line in textwrap.wrap(item, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    ]
