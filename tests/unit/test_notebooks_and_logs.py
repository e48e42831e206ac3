"""Statements and plans in notebooks say what they say in print; logs say public facts."""

from __future__ import annotations

import html
import logging
import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

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
    for scale, seed in ((1.0, 0), (1e-3, 1)):
        caplog.clear()
        rng = np.random.default_rng(seed)
        rows = scale * rng.normal(size=(50 + 20 * seed, 3))
        labels = np.zeros(len(rows), dtype=int) if seed else rng.integers(0, 2, len(rows))
        ledger = dp.PrivacyLedger(10.0, 1e-3)
        with caplog.at_level(logging.INFO, logger="dpsvm_fast"):
            dp.PrivateLinearSVC(1.0, classes=[0, 1], ledger=ledger).fit(rows, labels)
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
