"""What the public settings of every mechanism have in common: words, factors and ranges."""

from __future__ import annotations

from dpsvm_fast.exceptions import InvalidParameterError

__all__ = [
    "LARGEST",
    "NOISES",
    "NOISE_GRIDS",
    "RELATION_FACTOR",
    "SMALLEST",
    "check_delta_of_gaussian",
    "check_range",
    "check_row_norm",
    "check_solvable",
]

# Add or remove changes the objective by one record's loss, a replacement by two of them.
RELATION_FACTOR = {"add_remove": 1, "replace_one": 2}
NOISES = ("gaussian", "gamma")
NOISE_GRIDS = ("exact", "float")

# Beyond these a product of settings could overflow or lose its digits to underflow.
SMALLEST, LARGEST = 1e-100, 1e100
# Rows are stored in single precision beside the intercept: a smaller one would vanish.
SMALLEST_INTERCEPT = 1e-30
# The solver takes 1e-60 to 1e60, after scaling by a power of two.
SMALLEST_RATIO, LARGEST_RATIO = 1e-59, 1e59


def check_range(
    name: str, value: float, what: str, low: float = SMALLEST, high: float = LARGEST
) -> None:
    """Refuses settings so large or small that products of them leave the floats."""
    if not low <= value <= high:
        raise InvalidParameterError(
            f"{name}: {what} is {value!r}, expected a number in [{low:g}, {high:g}]"
        )


def check_solvable(regularization: float, row_norm: float) -> None:
    """Refuses what the smooth solver would refuse once the budget is spent."""
    check_range("C", regularization, "the whole regularisation", SMALLEST_RATIO, LARGEST_RATIO)
    ratio = regularization / row_norm / row_norm
    check_range("C", ratio, "regularisation / data_norm^2", SMALLEST_RATIO, LARGEST_RATIO)


def check_delta_of_gaussian(delta: float) -> None:
    """Gaussian noise gives no pure guarantee."""
    if not delta > 0.0:
        raise InvalidParameterError(
            f"delta: got {delta!r}, expected a number in (0, 1) with noise='gaussian'; "
            "noise='gamma' gives delta = 0"
        )


def check_row_norm(data_norm: float, intercept_scaling: float, row_norm: float) -> None:
    """Refuses bounds of the rows whose squares, or whose constant feature, would be lost."""
    check_range("data_norm", data_norm, "the bound of the rows' norm")
    check_range("data_norm", row_norm, "sqrt(data_norm^2 + intercept_scaling^2)")
    if 0.0 < intercept_scaling < SMALLEST_INTERCEPT * data_norm:
        raise InvalidParameterError(
            f"intercept_scaling: got {intercept_scaling!r}, expected at least "
            f"{SMALLEST_INTERCEPT:g} data_norm"
        )
