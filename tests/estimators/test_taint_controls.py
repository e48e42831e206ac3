"""Negative controls of the taint test: the same checker finds what goes past the noise."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pytest
from test_taint import SEARCHES, fit_of, many_records, records, search_of

from dpsvm_fast import OutputPerturbationSVC, PrivacyLedger
from dpsvm_fast.model_selection import PrivateGridSearch
from oracles.taint import compared


class Leaky(OutputPerturbationSVC):
    """A fit that shows something of its records besides."""

    def fit(self, X: Any, y: Any) -> Leaky:
        super().fit(X, y)
        return self.leak(np.asarray(X), np.asarray(y)) or self

    def leak(self, X: Any, y: Any) -> Any:
        raise NotImplementedError


class KeepsIterations(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        self.n_iter_ = int(np.abs(X).sum())


class KeepsCounts(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        self.class_count_ = np.bincount(y, minlength=3)


class Warns(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        warnings.warn(f"the largest value is {X.max()}", stacklevel=2)


class WarnsSometimes(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        if (np.linalg.norm(X, axis=1) > 1.0).sum() > 5:
            warnings.warn("rows were clipped", stacklevel=2)


class KeepsScore(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        # From noisy weights, on private records.
        self._training_score = self.score(X, y)


class Prints(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        print(f"{len(X)} rows")  # noqa: T201


class Logs(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        logging.getLogger("dpsvm_fast").debug("first row %s", X[0])


class Property(Leaky):
    kept = 0.0

    def leak(self, X: Any, y: Any) -> None:
        Property.kept = float(X.mean())

    @property
    def mean_(self) -> float:
        return self.kept


class Pickles(Leaky):
    kept = 0.0

    def leak(self, X: Any, y: Any) -> None:
        Pickles.kept = float(X.sum())

    def __reduce__(self) -> Any:
        return dict, ([("sum", Pickles.kept)],)

    def __copy__(self) -> Any:
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other


class Represents(Leaky):
    kept = 0

    def leak(self, X: Any, y: Any) -> None:
        Represents.kept = int((y == 2).sum())

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return f"Represents({Represents.kept})"


class States(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        object.__setattr__(self.privacy_, "library_version", f"{len(y)} rows")


class Labels(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        self.ledger.spend(self.privacy_.events[0], f"{(y == 0).sum()} of class 0")


class Raises(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        raise ValueError("refused") from KeyError(float(X[0, 0]))


class RaisesInContext(Leaky):
    def leak(self, X: Any, y: Any) -> None:
        try:
            {}[float(X[0, 0])]
        except KeyError:
            raise ValueError("refused") from None


class Unseeded(Leaky):
    """Noise that depends on the records: more of it where there are more of them."""

    def leak(self, X: Any, y: Any) -> None:
        self.coef_ = self.coef_ * (1.0 + 1e-15 * len(X))


LEAKY = Leaky.__subclasses__()


@pytest.mark.parametrize("leaky", LEAKY, ids=lambda kind: kind.__name__)
def test_each_leak_is_found(leaky: type[Leaky]) -> None:
    def run(data: Any, kept: list[Any]) -> None:
        ledger = PrivacyLedger(100.0, 1e-3)
        model = leaky(2.0, classes=range(3), n_threads=1, ledger=ledger)
        kept += [model, ledger]
        try:
            model.fit(*data)
        finally:
            model.set_params(ledger=None)

    data = (records(world, "add_remove") for world in (0, 1))
    assert compared(run, *data, fails=True) != []


def test_the_same_run_without_a_leak_is_clean() -> None:
    """The control of the controls."""
    run = fit_of("output", "add_remove")
    assert compared(run, records(0, "add_remove"), records(1, "add_remove")) == []
    # With the same records twice nothing could be found.
    assert not np.array_equal(records(0, "add_remove")[0][:5], records(1, "add_remove")[0][:5])


def test_the_number_of_rows_is_private_under_add_remove_and_public_under_replace_one() -> None:
    here, there = records(0, "add_remove"), records(1, "add_remove")
    assert len(here[1]) != len(there[1])
    assert compared(fit_of("gradient", "add_remove"), here, there) == []
    # Where it is public it may be seen: the learning rate of descent follows from it.
    assert compared(fit_of("output psgd", "replace_one"), here, there) != []


class KeepsResults(PrivateGridSearch):
    """What scikit-learn's search keeps."""

    def fit(self, X: Any, y: Any) -> KeepsResults:
        super().fit(X, y)
        self.cv_results_ = {"mean_test_score": [self.best_estimator_.score(X, y)]}
        return self


def test_a_search_that_keeps_exact_scores_is_found() -> None:
    run = search_of(SEARCHES["partition"], "add_remove", KeepsResults)
    assert compared(run, many_records(0, "add_remove"), many_records(1, "add_remove")) != []
