"""Bad and odd inputs of GradientPerturbationSVC alone: continued fits, optimisers, error texts.

What it shares with all others: `test_bad_inputs`, `test_bad_parameters`, `test_input_forms`.
"""

from __future__ import annotations

from typing import Any

import pytest

from dpsvm_fast import GradientPerturbationSVC, PrivacyLedger
from oracles.odd_inputs import X, Y
from oracles.odd_parameters import Unread, bad_parameters
from oracles.odd_rows import REFUSED
from oracles.subjects import assert_refused, released, spent

OPTIMIZERS = ("gd", "sgd", "adam")


def model(**settings: Any) -> Any:
    """An estimator for three classes with a budget that nothing exhausts."""
    ledger = PrivacyLedger(epsilon=1e4, delta=0.5, strict=False)
    common = {"classes": range(3), "n_threads": 1, "n_steps": 10, "ledger": ledger}
    return GradientPerturbationSVC(**(common | settings))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_continued_fits_refuse_the_same_parameters(optimizer: str) -> None:
    for subject, _, name, value in bad_parameters():
        # Full batches have no rate.
        unused = name == "sampling_rate" and optimizer == "gd"
        if subject != "gradient" or name == "optimizer" or unused:
            continue
        fitted = model(**({"optimizer": optimizer} | {name: value}))
        with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
            fitted.partial_fit(Unread(), Unread())
        assert spent(fitted) == 0


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:X has feature names")
def test_continued_fits_refuse_the_same_data(name: str) -> None:
    case, fitted = REFUSED[name], model()
    call = fitted.partial_fit
    assert_refused(lambda: call(case.rows, case.labels), fitted, case.words)
    first = released(fitted.partial_fit(X, Y))
    with pytest.raises((ValueError, TypeError, RuntimeError), match=case.words):
        call(case.rows, case.labels)
    # What was released before stays.
    assert spent(fitted) == 1
    assert all((value == first[key]).all() for key, value in released(fitted).items())
