"""Scores of candidates: whole numbers that one record changes by a known whole number."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._validation import check_option, check_positive
from dpsvm_fast.estimators._training_data import encoded_labels, public_classes
from dpsvm_fast.exceptions import InvalidParameterError

__all__ = ["Scoring"]

SCORINGS = ("errors", "balanced_errors")
# Weights of classes are rounded to multiples of the largest over this.
RESOLUTION = 256
# Scores end here, so that differences of them stay exact in the samplers. Fewer records reach it
# than fit into memory, and cutting all scores off at one public number changes no sensitivity.
LARGEST_SCORE = 2**32 - 1


class Scoring:
    """How errors are counted.

    Parameters
    ----------
    scoring : {"errors", "balanced_errors"}
    class_weight : dict or None
        Public weight of an error on each class, for "balanced_errors" alone.

    Attributes
    ----------
    classes : ndarray or None
        The classes that have weights.
    weights : ndarray of int
        In their order; None stands for 1 for every class.
    sensitivity : int
        By how much one record changes a score: it adds nothing to those of candidates that are
        right about it, and its class's weight to the others.
    """

    def __init__(self, scoring: Any, class_weight: Any) -> None:
        kind = check_option("scoring", scoring, SCORINGS)
        self.classes: NDArray[Any] | None = None
        self.weights: NDArray[np.int64] | None = None
        self.sensitivity = 1
        if kind == "errors":
            if class_weight is not None:
                raise InvalidParameterError(
                    "class_weight: expected None with scoring='errors'; 'balanced_errors' uses it"
                )
            return
        if not isinstance(class_weight, Mapping):
            raise TypeError(
                f"class_weight: got {type(class_weight).__name__}, expected a dict with a public "
                "weight for every class; those of the data are private"
            )
        try:
            self.classes = public_classes(list(class_weight))
        except TypeError as error:
            raise TypeError(f"class_weight: {error}") from None
        except ValueError as error:
            raise InvalidParameterError(f"class_weight: {error}") from None
        given = [check_positive("class_weight", value) for value in class_weight.values()]
        order = encoded_labels(np.asarray(list(class_weight)), self.classes)
        self.weights = np.empty(len(given), dtype=np.int64)
        self.weights[order] = _whole(given)
        self.sensitivity = int(self.weights.max())

    def check_labels(self, y: NDArray[Any]) -> None:
        """Refuse labels that have no weight; the text does not quote them."""
        if self.classes is not None:
            encoded_labels(y, self.classes)

    def score(self, predicted: Any, y: NDArray[Any]) -> int:
        """Weighted number of errors: private.

        Parameters
        ----------
        predicted, y : array-like of shape (n_samples,)
        """
        wrong = np.asarray(predicted).reshape(-1) != y
        if self.weights is None or self.classes is None:
            total = int(np.count_nonzero(wrong))
        else:
            total = int(self.weights[encoded_labels(y, self.classes)][wrong].sum())
        return min(total, LARGEST_SCORE)


def _whole(weights: list[float]) -> list[int]:
    """Whole numbers in about the ratio of the weights; the largest is RESOLUTION, or 1 for all."""
    largest = Fraction(max(weights))
    ratios = [Fraction(weight) / largest for weight in weights]
    if all(ratio == 1 for ratio in ratios):
        return [1] * len(ratios)
    return [max(1, round(ratio * RESOLUTION)) for ratio in ratios]
