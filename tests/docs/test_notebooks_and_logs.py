"""Statements and plans in notebooks say what print says; logs and progress say public facts."""

from __future__ import annotations

import html
import logging
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone

import dpsvm_fast as dp
from dpsvm_fast import total_privacy
from dpsvm_fast.model_selection import PrivateGridSearch
from dpsvm_fast.planning import plan_noise
from oracles.saved import LABELS, ROWS, fitted


def statements() -> dict[str, Any]:
    pipeline = fitted("pipeline")
    return {
        "estimator": fitted("linear").privacy_,
        "pipeline": total_privacy(pipeline),
        "search": fitted("search").privacy_,
        "federated": fitted("federated").privacy_,
        "plan": plan_noise(dp.PrivateLinearSVC(classes=range(9)), 64, n_samples=1000),
        "objective": plan_noise(dp.ObjectivePerturbationSVC(classes=[0, 1]), 4),
    }


def words(text: str) -> list[str]:
    return re.findall(r"[\w.]+", text)


@pytest.mark.parametrize("kind", statements())
def test_a_notebook_shows_the_words_that_are_printed(kind: str) -> None:
    shown = statements()[kind]
    page = shown._repr_html_()
    tree = ElementTree.fromstring(page)
    assert words(" ".join(tree.itertext())) == words(str(shown))


def test_names_cannot_write_html() -> None:
    name = "<script>alert(1)</script>"
    model = dp.PrivatePipeline(
        [(name, dp.PublicScaler((-3, 3))), ("svc", dp.OutputPerturbationSVC(2.0, classes=range(3)))]
    ).fit(ROWS, LABELS)
    page = model.privacy_._repr_html_()
    assert "<script" not in page
    assert html.escape(name) in page


def test_logs_have_public_facts_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Two data sets of one shape, however different their values are: the same words."""
    told = []
    svc = dp.PrivateLinearSVC(1.0, bounds=(-3, 3), classes=[0, 1])
    for scale, seed in ((1.0, 0), (1e-3, 1)):
        caplog.clear()
        rng = np.random.default_rng(seed)
        rows = scale * rng.normal(size=(50 + 20 * seed, 3))
        labels = np.zeros(len(rows), dtype=int) if seed else rng.integers(0, 2, len(rows))
        ledger = dp.PrivacyLedger(10.0, 1e-3)
        with caplog.at_level(logging.INFO, logger="dpsvm_fast"):
            svc.set_params(ledger=ledger).fit(rows, labels)
            dp.PrivateStandardScaler(1.0, bounds=(-3, 3)).fit(rows)
        told.append([record.getMessage() for record in caplog.records])
    assert told[0] == told[1]
    assert [text.partition(":")[0] for text in told[0]] == [
        *["PrivateLinearSVC"] * 3,
        *["PrivateStandardScaler"] * 2,
    ]
    assert told[0][1] == "PrivateLinearSVC: charged"
    assert told[0][-1].endswith("released, private")


def test_logs_say_what_is_not_private(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="dpsvm_fast"), pytest.warns(dp.NotPrivateWarning):
        dp.OutputPerturbationSVC(2.0, classes=range(3), random_state=0).fit(ROWS, LABELS)
    assert caplog.records[-1].getMessage().endswith("released, NOT PRIVATE")
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="dpsvm_fast"):
        search = PrivateGridSearch(
            dp.OutputPerturbationSVC(classes=range(3)), {"C": [0.1, 1.0]}, 8.0
        )
        search.fit(ROWS, LABELS)
    assert caplog.records[-1].getMessage() == "PrivateGridSearch: released, private"


WATCHED: dict[str, Any] = {
    "linear": dp.PrivateLinearSVC(1.0, classes=range(3), bounds=(-3, 3)),
    "kernel": dp.PrivateKernelSVC(
        1.0, classes=range(3), bounds=(-3, 3), kernel="rbf", n_components=20
    ),
    "full batches": dp.GradientPerturbationSVC(1.0, classes=range(3), n_steps=90),
    "sampled": dp.GradientPerturbationSVC(
        1.0, classes=range(3), optimizer="adam", sampling_rate=0.1, n_steps=101
    ),
}


@pytest.mark.filterwarnings("ignore::dpsvm_fast.NotPrivateWarning")
@pytest.mark.parametrize("form", [np.asarray, csr_matrix])
@pytest.mark.parametrize("kind", WATCHED)
def test_steps_are_reported_and_change_no_bit(kind: str, form: Any) -> None:
    told: list[tuple[int, int]] = []
    watched, alone = (clone(WATCHED[kind]).set_params(random_state=3) for _ in range(2))
    watched.set_params(n_threads=1).fit(
        form(ROWS), LABELS, on_step=lambda *steps: told.append(steps)
    )
    alone.set_params(n_threads=2).fit(form(ROWS), LABELS)
    assert watched.coef_.tobytes() == alone.coef_.tobytes()
    done, totals = zip(*told, strict=True)
    assert 2 < len(done) <= 40
    assert sorted(set(done)) == list(done)
    assert set(totals) == {done[-1]}
    if kind == "sampled":
        assert totals[0] == 101


def test_steps_are_the_same_for_other_rows() -> None:
    told: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    model = dp.PrivatePipeline([("scale", dp.PublicScaler((-3, 3))), ("svc", WATCHED["sampled"])])
    for which, seen in told.items():
        rows, labels = ROWS[which:] * which, LABELS[which:] * which
        model.fit(rows, labels, svc__on_step=lambda *steps, seen=seen: seen.append(steps))
    assert told[0] == told[1] != []


class Stopped(Exception):
    pass


@pytest.mark.parametrize("kind", WATCHED)
def test_what_a_watcher_raises_ends_the_fit(kind: str) -> None:
    """As Ctrl-C does: the budget is spent and nothing is released."""

    def stop(done: int, n_steps: int) -> None:
        raise Stopped

    whole, ledger = (dp.PrivacyLedger(10.0, 1e-3) for _ in range(2))
    clone(WATCHED[kind]).set_params(ledger=whole).fit(ROWS, LABELS)
    model = clone(WATCHED[kind]).set_params(ledger=ledger)
    with pytest.raises(Stopped):
        model.fit(ROWS, LABELS, on_step=stop)
    assert len(ledger.history) == len(whole.history)
    assert not hasattr(model, "coef_")
    ledger = dp.PrivacyLedger(10.0, 1e-3)
    with pytest.raises(TypeError, match=r"^on_step: "):
        model.set_params(ledger=ledger).fit(ROWS, LABELS, on_step=3)
    assert ledger.history == ()


def test_later_steps_are_reported_too() -> None:
    told: list[tuple[int, int]] = []
    model = clone(WATCHED["full batches"]).fit(ROWS, LABELS)
    model.partial_fit(ROWS, LABELS, on_step=lambda *steps: told.append(steps))
    assert told[-1] == (90, 90)
