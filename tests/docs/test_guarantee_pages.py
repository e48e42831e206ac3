"""The guarantee, for lawyers and for cryptographers: every number from first principles."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from docs.test_readme import python_blocks, run_blocks
from dpsvm_fast import accounting

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guarantees.md"
CHOOSING = ROOT / "docs" / "choosing_epsilon.md"
PAIRS = [(0.1, 0.0), (1.0, 1e-5), (1.0, 0.01), (4.0, 1e-3)]


def worst_pair(epsilon: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    """The laws that attain (epsilon, delta), as masses."""
    high = (1.0 - delta) * math.exp(epsilon) / (1.0 + math.exp(epsilon))
    masses = np.array([delta, high, 1.0 - delta - high, 0.0])
    return masses, masses[::-1]


def hockey_stick(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """The smallest delta for epsilon."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def posterior(prior: float, factor: float) -> float:
    """What a suspicion becomes when its odds are multiplied."""
    odds = prior / (1.0 - prior) * factor
    return odds / (1.0 + odds)


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
def test_the_worst_pair_has_epsilon_and_delta(epsilon: float, delta: float) -> None:
    first, second = worst_pair(epsilon, delta)
    assert first.sum() == pytest.approx(1.0)
    assert hockey_stick(first, second, epsilon) == pytest.approx(delta, abs=1e-15)
    assert hockey_stick(second, first, epsilon) == pytest.approx(delta, abs=1e-15)


def test_suspicions_are_those_of_the_formula() -> None:
    page = CHOOSING.read_text(encoding="utf-8")
    table = page.partition("<!-- odds-table -->")[2].partition("<!-- /odds-table -->")[0]
    head, _, *lines = table.strip().splitlines()
    epsilons = [float(text) for text in re.findall(r"ε = (\S+)", head)]
    assert len(epsilons) == 6
    assert len(lines) == 4
    for line in lines:
        before, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        prior = float(before.removesuffix(" %")) / 100.0
        for epsilon, cell in zip(epsilons, cells, strict=True):
            first, second = worst_pair(epsilon, 0.0)
            factors = first[1:3] / second[1:3]
            for shown, factor in zip(
                cell.removesuffix(" %").split(" to "), (min, max), strict=True
            ):
                exact = 100.0 * posterior(prior, float(factor(factors)))
                digits = len(shown.partition(".")[2])
                assert shown == f"{exact:.{digits}f}"
    assert posterior(0.01, math.e) == pytest.approx(0.01 * math.e / (1 + 0.01 * (math.e - 1)))
    assert posterior(0.01, 1 / math.e) == pytest.approx(0.01 / (0.01 + 0.99 * math.e))


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
def test_the_game_is_won_as_often_as_stated(epsilon: float, delta: float) -> None:
    first, second = worst_pair(epsilon, delta)
    won = 0.5 * float(np.maximum(first, second).sum())
    assert won == pytest.approx((math.exp(epsilon) + delta) / (math.exp(epsilon) + 1.0))


def test_figures_in_the_text_of_the_lawyers_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for epsilon in (0.1, 1.0, 4.0):
        assert f"{math.exp(epsilon):.3g}" in page.partition("\n### What ε")[0]
    won = [100.0 * (math.e + delta) / (math.e + 1.0) for delta in (1e-5, 0.0)]
    assert f"{won[0]:.4f} % for ε = 1 and δ = 0.00001, against {won[1]:.4f} % for δ = 0" in page
    assert f"{won[1]:.1f} % of the games" in page
    assert f"is {1797 * 1e-5:.3f}." in page
    assert f"thinks it at most {100.0 * posterior(0.01, math.e):.1f} % likely" in page
    rare = 100.0 * posterior(0.01, 2.0 * math.e)
    assert f"at most {rare:.1f} %, except with probability 2 δ" in page


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_tails_of_the_privacy_loss(mu: float, epsilon: float) -> None:
    """The Gaussian mechanism's loss is normal, with mean mu^2/2 and deviation mu."""
    delta = accounting.gaussian_delta(epsilon, 1.0 / mu)
    for factor, times in ((2.0, 2.0), (1.1, 11.0)):
        beyond = epsilon + math.log(factor)
        tail = float(ndtr(-(beyond - mu**2 / 2.0) / mu))
        assert tail <= times * delta * (1.0 + 1e-9)
    # "Within epsilon but for delta" does not follow: more is beyond epsilon than delta.
    assert float(ndtr(-(epsilon - mu**2 / 2.0) / mu)) > delta


def test_the_bound_for_an_event_is_attained() -> None:
    epsilon, delta, prior = 1.0, 0.01, 0.1
    first, second = worst_pair(epsilon, delta)
    s, other = first[:2].sum(), second[:2].sum()
    found = prior * s / (prior * s + (1.0 - prior) * other)
    stated = prior / (prior + (1.0 - prior) * (1.0 - delta / s) * math.exp(-epsilon))
    assert found == pytest.approx(stated)


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS)
@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.5, 0.99])
def test_no_test_beats_the_trade_off(epsilon: float, delta: float, alpha: float) -> None:
    first, second = worst_pair(epsilon, delta)
    # The most powerful test takes outcomes in the order of their ratio, the last one in part.
    power, left = 0.0, alpha
    for p, q in zip(first, second, strict=True):
        share = 1.0 if q <= left else left / q
        power, left = power + share * p, left - share * q
    stated = min(
        math.exp(epsilon) * alpha + delta, 1.0 - math.exp(-epsilon) * (1.0 - delta - alpha)
    )
    assert power <= stated + 1e-12
    # And it is attained.
    assert power == pytest.approx(min(stated, 1.0), abs=1e-12)


@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_from_one_record_more_to_one_exchanged_and_to_groups(mu: float) -> None:
    epsilon = 1.0
    delta = accounting.gaussian_delta(epsilon, 1.0 / mu)
    # A Gaussian sum: exchanging moves it twice as far as one record more does, m records m times.
    exchanged = accounting.gaussian_delta(2.0 * epsilon, 0.5 / mu)
    assert exchanged <= (1.0 + math.exp(epsilon)) * delta
    for m in (2, 3):
        group = accounting.gaussian_delta(m * epsilon, 1.0 / (m * mu))
        assert group <= (math.exp(m * epsilon) - 1.0) / (math.exp(epsilon) - 1.0) * delta


def test_the_independent_check(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    blocks = python_blocks(page)
    assert len(blocks) == 3
    for block in blocks[1:]:
        assert "dpsvm" not in block
    namespace = run_blocks(blocks)
    assert capsys.readouterr().out == "delta(1) = 1e-05, claimed 1e-05\n"
    mu = namespace["mu"]
    assert isinstance(mu, float)
    assert f"Φ(μ/2): {ndtr(mu / 2.0):.3f} for the certificate above" in page
    assert f"alone gives {math.e / (1.0 + math.e):.3f}." in page
    # Negative control: a certificate with less noise than it needs is seen.
    less = 1.01 * mu
    delta = math.exp(log_ndtr(less / 2 - 1 / less)) - math.exp(1 + log_ndtr(-less / 2 - 1 / less))
    assert delta > 1.05e-5
