"""The part of a certificate that is about noisy sums, recomputed number by number."""

from __future__ import annotations

import math
from fractions import Fraction

from dpsvm_fast.accounting._objective_verify import (
    EXCESS,
    ROUNDING_SLACK,
    curvature_of,
    follows,
    lipschitz_of,
)
from dpsvm_fast.accounting.events import (
    GaussianEvent,
    PrivacyEvent,
    PureEvent,
    SubsampledGaussianEvent,
)
from dpsvm_fast.accounting.statement import LastIterate, PrivacyStatement, ReleasePart

__all__ = [
    "PARTS",
    "check_parts",
    "reserved_problems",
    "weight_events",
    "weight_releases",
]

# Mechanisms that are made of noisy sums, and of which.
PARTS = {
    "gradient_perturbation": ("training",),
    "private_linear": ("centre", "whitening", "training"),
    "private_kernel": ("count", "centre", "whitening", "training"),
    "private_center": ("centre",),
    "private_whitener": ("centre", "whitening"),
    "private_pca": ("components",),
    "private_standard_scaler": ("means", "moments"),
    "gaussian_margin": ("anchors",),
}
# Of these sums every release of a mechanism has at least one.
NEEDED = {
    "gradient_perturbation": {"training"},
    "private_linear": {"centre"},
    "private_kernel": {"count", "centre"},
    "private_center": {"centre"},
    "private_whitener": {"whitening"},
    "private_pca": {"components"},
    "private_standard_scaler": {"means", "moments"},
}
# Sums that are vectors, and those that are square matrices. A count is one number.
VECTORS, SQUARES = ("count", "centre", "means", "moments"), ("whitening", "components")
# How often rows are whitened at most; elsewhere once.
WHITENINGS = {"private_linear": 3, "private_kernel": 3}
# By how many contributions sums can differ when a record is exchanged.
EXCHANGED = {
    "count": 2.0,
    "centre": 2.0,
    "whitening": math.sqrt(2.0),
    "components": math.sqrt(2.0),
    "training": 2.0,
    "means": 2.0,
    "moments": 1024.0 / 539.0,
    "anchors": 2.0,
}
# What sums of rows, and of columns, are multiples of: noise on a grid at least as fine needs no
# rounding.
ROW_GRID, COLUMN_GRID = 2.0**-20, 2.0**-23
FREE_GRIDS = {
    "count": 1.0,
    "centre": ROW_GRID,
    "anchors": ROW_GRID,
    "means": COLUMN_GRID,
    "moments": COLUMN_GRID,
}
# More than rounding adds to the contribution of a row to a matrix.
RESERVED_ROUNDING = 0.01
# Largest squared length of what one feature adds to the sums of columns, and of how many numbers.
COLUMN_SQUARES = {"means": (Fraction(1), 1), "moments": (Fraction(539, 512) ** 2, 2)}


def check_parts(statement: PrivacyStatement) -> list[str]:
    """Numbers of the noisy sums, and their events, that do not follow from the ones before them."""
    parts, known = statement.parts, PARTS.get(statement.mechanism, ())
    if statement.mechanism == "gaussian_margin" and not parts:
        return []
    if bool(parts) != bool(known):
        return [f"{statement.mechanism!r} has {'no' if parts else 'some'} noisy sums"]
    problems = []
    names = [part.name for part in parts]
    if any(name not in known for name in names):
        return [f"noisy sums {names}, expected some of {list(known)}"]
    if known and not _needed(statement) & set(names):
        problems.append(f"{statement.mechanism!r} without the noisy sum that it is made of")
    # Training may be taken up again; what comes before it may not.
    if names != sorted(names, key=known.index) or max(map(names.count, ("count", "centre"))) > 1:
        problems.append("the noisy sums are not in their order")
    trained_twice = names.count("training") > 1 and len(known) > 1
    if trained_twice or names.count("whitening") > WHITENINGS.get(statement.mechanism, 1):
        problems.append("a noisy sum is there twice")
    if names.count("means") + names.count("moments") > 1:
        problems.append("a noisy sum is there twice")
    if len(statement.events) < len(parts):
        return [*problems, f"{len(statement.events)} events, expected one for each noisy sum"]
    for part, event in zip(parts, statement.events, strict=False):
        found = _check_part(statement, part)
        if event.adjacency != statement.adjacency:
            found.append("its event is of another neighbouring relation")
        if not _event_matches(part, event):
            found.append("its event does not describe it")
        problems += [f"{part.name}: {problem}" for problem in found]
    return problems


def _needed(statement: PrivacyStatement) -> set[str]:
    """Sums of which there must be one; the number of rows is private in one relation only."""
    if statement.mechanism == "private_kernel" and statement.adjacency == "replace_one":
        return set(PARTS["private_kernel"])
    return NEEDED.get(statement.mechanism, set(PARTS[statement.mechanism]))


def reserved_events(statement: PrivacyStatement) -> tuple[GaussianEvent, ...]:
    """The whitening that was paid for and, as a released number decided, did not happen."""
    behind = statement.events[len(statement.parts) + 2 :]
    skips = statement.mechanism in ("private_linear", "private_kernel")
    whitened = any(part.name == "whitening" for part in statement.parts)
    if statement.objective is None or not skips or whitened or len(behind) != 1:
        return ()
    return tuple(event for event in behind if isinstance(event, GaussianEvent))


def weight_events(statement: PrivacyStatement) -> tuple[PrivacyEvent, ...]:
    """Releases of weights, behind noisy sums and noise in the objective."""
    before = len(statement.parts) + (0 if statement.objective is None else 1)
    behind = len(statement.events) - len(reserved_events(statement))
    return statement.events[before:behind]


def weight_releases(statement: PrivacyStatement) -> int:
    """How often weights were released with the stated noise."""
    return max(1, len(weight_events(statement)))


def reserved_problems(statement: PrivacyStatement) -> list[str]:
    """Whether what was reserved for the whitening has the sensitivity of one of unit rows."""
    factor = EXCHANGED["whitening"] if statement.adjacency == "replace_one" else 1.0
    low, high = factor * (1.0 - ROUNDING_SLACK), factor * (1.0 + RESERVED_ROUNDING)
    if all(low <= event.sensitivity <= high for event in reserved_events(statement)):
        return []
    return ["the event of the whitening that was skipped is not one of a whitening"]


def steps_of(part: ReleasePart) -> float:
    """As how many full sums the part counts."""
    last = part.last_iterate
    return float(part.n_steps) if last is None else last.effective_steps


def _check_part(statement: PrivacyStatement, part: ReleasePart) -> list[str]:
    """Numbers of one part by themselves."""
    problems = _check_shape(part)
    exact = Fraction(part.clip_norm) + Fraction(part.rounding)
    below = math.nextafter(part.contribution, 0.0)
    if not Fraction(below) < exact <= Fraction(part.contribution):
        problems.append("contribution is not clip_norm + rounding, rounded up")
    factor = 1.0 if statement.adjacency == "add_remove" else EXCHANGED[part.name]
    if not factor <= part.relation_factor <= factor * (1.0 + ROUNDING_SLACK):
        problems.append(f"relation_factor is not that of {statement.adjacency}")
    if part.grid is not None:
        if math.frexp(part.grid)[0] != 0.5:
            problems.append("grid is not a power of two")
        free = part.grid <= FREE_GRIDS.get(part.name, 0.0)
        moved = 0.0 if free else part.grid * math.sqrt(part.n_numbers)
        if part.relation_factor * part.rounding < moved * (1.0 - ROUNDING_SLACK):
            problems.append("rounding is less than that to the grid")
    if part.name in COLUMN_SQUARES:
        problems += _check_columns(statement, part)
    if part.last_iterate is not None:
        problems += _check_last_iterate(statement, part, part.last_iterate)
    return problems


def _check_shape(part: ReleasePart) -> list[str]:
    """Whether such a sum has numbers in such an arrangement."""
    fits = len(part.shape) == (1 if part.name in VECTORS else 2)
    if part.name in SQUARES:
        fits = fits and part.shape[0] == part.shape[1]
    if part.name == "count":
        fits = fits and part.shape[0] == 1
    return [] if fits else ["shape is not that of such a sum"]


def _check_columns(statement: PrivacyStatement, part: ReleasePart) -> list[str]:
    """Whether a record's part of sums of columns is that of so many features."""
    counts = statement.adjacency == "add_remove"
    square, numbers = COLUMN_SQUARES[part.name]
    features, odd = divmod(part.n_numbers - counts, numbers)
    if odd or features < 1:
        return ["shape is not that of so many features"]
    total = features * square
    if counts:
        # The weight of the number of rows, the fourth root of that of features to 10 binary places.
        total += Fraction(math.isqrt(math.isqrt(features << 40)), 1024) ** 2
    return follows("clip_norm", part.clip_norm, math.sqrt(total))


def _check_last_iterate(
    statement: PrivacyStatement, part: ReleasePart, last: LastIterate
) -> list[str]:
    """Whether the run was within the reach of its theorem, and counts as so many steps."""
    n_scores = part.shape[0]
    lipschitz = lipschitz_of(statement.loss, n_scores)
    curvature = curvature_of(statement.loss, n_scores, last.smoothing)
    if part.name != "training" or lipschitz is None or curvature is None:
        return [f"the last iterate of {part.name!r} with loss {statement.loss!r} is not bounded"]
    problems = follows("lipschitz", last.lipschitz, lipschitz)
    problems += follows("curvature", last.curvature, curvature)
    problems += follows("clip_norm", part.clip_norm, last.lipschitz * last.row_norm)
    if statement.loss == "logistic" and last.smoothing != 1.0:
        problems.append("smoothing is not 1, the temperature of the logistic loss")
    eta, m, M = (Fraction(x) for x in (last.learning_rate, last.regularization, last.smoothness))
    curved = Fraction(last.curvature) * Fraction(last.row_norm) ** 2 * last.max_records
    problems += follows("smoothness", last.smoothness, float(m + curved / Fraction(last.divisor)))
    if eta * (m + M) > 2 * (1 + Fraction(ROUNDING_SLACK)):
        problems.append("learning_rate is above 2 / (strong convexity + smoothness)")
    # Of a factor close to 1 the distance from 1 counts.
    gap, stated = float(1 - max(abs(1 - eta * m), abs(1 - eta * M))), 1.0 - last.contraction
    if not gap * (1.0 - EXCESS) - 4e-16 <= stated <= gap * (1.0 + ROUNDING_SLACK) + 4e-16:
        problems.append("contraction is not that of a step")
    problems += follows("effective_steps", last.effective_steps, _counted(last, part.n_steps))
    return problems


def _counted(last: LastIterate, n_steps: int) -> float:
    r""":math:`(1 - c^T)(1 + c) / ((1 + c^T)(1 - c))`, by the hyperbolic tangents that these are."""
    if last.contraction == 0.0:
        return 1.0
    half = -0.5 * math.log1p(last.contraction - 1.0)
    return math.tanh(n_steps * half) / math.tanh(half)


def _event_matches(part: ReleasePart, event: PrivacyEvent) -> bool:
    """Whether an event says what the noise of a part says."""
    moved = part.relation_factor * part.contribution
    if part.beta is not None:
        return isinstance(event, PureEvent) and not follows(
            "epsilon", event.epsilon, part.beta * moved
        )
    if part.sigma is None:
        return False
    if part.sampling_rate < 1.0:
        return (
            isinstance(event, SubsampledGaussianEvent)
            and (event.sampling_rate, event.n_steps) == (part.sampling_rate, part.n_steps)
            # A smaller multiplier promises less; it is this one that was charged.
            and not follows("sigma", part.sigma / part.contribution, event.noise_multiplier)
        )
    return (
        isinstance(event, GaussianEvent)
        and event.sigma == part.sigma
        and not follows("sensitivity", event.sensitivity, math.sqrt(steps_of(part)) * moved)
    )
