"""scikit-learn's common checks, with the expected failures and why."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpsvm_fast import OutputPerturbationSVC

# The checks fit without a label set and with seeds, and both warn.
pytestmark = [
    pytest.mark.filterwarnings("ignore::dpsvm_fast.PrivacyLeakWarning"),
    pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning"),
    # Skips inside the checks are reported as warnings; so is what a skipped check would need.
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning"),
]

ESTIMATORS = [
    OutputPerturbationSVC(),
    OutputPerturbationSVC(noise="gamma", adjacency="replace_one", fit_intercept=False),
    OutputPerturbationSVC(noise_grid="float", low_memory=True, C=0.1),
]


def expected_failures(estimator: Any) -> dict[str, str]:
    """Name of a check and the reason why this estimator is right to fail it."""
    return {
        "check_non_transformer_estimators_n_iter": (
            "the number of passes depends on the data and would be released without noise"
        ),
    }


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
def test_common_checks(estimator: Any, check: Any) -> None:
    check(estimator)
