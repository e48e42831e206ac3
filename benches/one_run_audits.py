"""Audits in one run on the same ideal scores: this library, as it was, and jax-privacy.

python benches/one_run_audits.py [--repeats 20] [--out FOLDER]

Scores are N(0, 1) for canaries that are out and N(mu, 1) for those that are in, mu that of an exact
Gaussian mechanism. Bounds of jax-privacy (pip install jax-privacy) use its strategies for choosing
a threshold; without it their columns stay empty. Writes ``one_run_audits.csv``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benches import tables  # noqa: E402
from benches.machine import description  # noqa: E402
from benches.papers.cells import grid  # noqa: E402
from dpsvm_fast import _core  # noqa: E402
from dpsvm_fast.accounting import gaussian_sigma  # noqa: E402
from dpsvm_fast.audit import audit_scores  # noqa: E402

RESULTS = ROOT / "benches" / "results"
NAME = "one_run_audits"
SIZES, EPSILONS, DELTA, ALPHA = (1000, 10_000, 100_000), (1.0, 4.0), 1e-5, 0.05
# At 100,000 canaries every single threshold of theirs takes long to search.
SPLITS = 5
# Shares of the canaries above a threshold that suits their bound best on average, by their number.
SHARES = {1000: 0.1, 10_000: 0.02, 100_000: 0.005}

Array = NDArray[Any]
Bound = Callable[[Array, Array, float], float]


def ours(method: str) -> Bound:
    """This library."""
    return lambda scores, coins, epsilon: (
        audit_scores(scores, coins, (epsilon, DELTA), method=method).certified
    )


def theirs() -> dict[str, Bound]:
    """jax-privacy's bounds by the same trade-off curve, where it is installed."""
    try:
        from jax_privacy import auditing
    except ImportError:
        return {}
    strategies = {
        "Bonferroni": auditing.Bonferroni(),
        "split": auditing.Split(seed=0),
        "several splits": auditing.MultiSplit(num_samples=SPLITS, seed=0),
    }

    def bound(scores: Array, coins: Array, strategy: Any) -> float:
        auditor = auditing.CanaryScoreAuditor(scores[coins], scores[~coins])
        return float(auditor.epsilon_one_run_fdp(ALPHA, DELTA, threshold_strategy=strategy))

    def given(scores: Array, coins: Array, epsilon: float) -> float:
        cut = ideal_threshold(1.0 / gaussian_sigma(epsilon, DELTA), SHARES[coins.size])
        return bound(scores, coins, auditing.Explicit(cut))

    found: dict[str, Bound] = {"jax-privacy, threshold given": given}
    for name, strategy in strategies.items():
        found[f"jax-privacy, {name}"] = lambda scores, coins, _, strategy=strategy: bound(
            scores, coins, strategy
        )
    return found


def ideal_threshold(mu: float, share: float) -> float:
    """Where so large a share of all scores is expected above."""
    return float(
        optimize.brentq(
            lambda cut: 0.5 * (stats.norm.sf(cut) + stats.norm.sf(cut - mu)) - share, -20.0, 20.0
        )
    )


def measured(repeats: int) -> Iterator[dict[str, Any]]:
    """One line for every claim, size and method."""
    methods = {
        "dpsvm_fast, Gaussian curve": ours("gaussian"),
        "dpsvm_fast, (ε, δ) alone": ours("clopper_pearson"),
        **theirs(),
    }
    for epsilon in EPSILONS:
        mu = 1.0 / gaussian_sigma(epsilon, DELTA)
        for m in SIZES:
            drawn = []
            for seed in range(repeats):
                rng = np.random.default_rng([seed, m])
                coins = rng.random(m) < 0.5
                drawn.append((rng.normal(mu * coins), coins))
            for name, bound in methods.items():
                found = [bound(scores, coins, epsilon) for scores, coins in drawn]
                yield {
                    "epsilon": epsilon,
                    "canaries": m,
                    "method": name,
                    "runs": repeats,
                    "certified": mean(found),
                    "deviation": stdev(found),
                    "above": sum(value > epsilon for value in found),
                }


def page(found: Mapping[str, Sequence[tables.Row]]) -> str:
    """The table of docs/auditing.md."""
    rows = found[NAME]
    columns = list(dict.fromkeys((row["epsilon"], row["canaries"]) for row in rows))
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = {(row["method"], row["epsilon"], row["canaries"]): row for row in rows}
    heads = (f"ε = {epsilon}, {int(m):,}" for epsilon, m in columns)

    def cell(row: tables.Row) -> str:
        return f"{float(row['certified']):.2f} ± {float(row['deviation']):.2f}"

    lines = grid(
        ("certified from", *heads),
        ((name, *(cell(cells[(name, *column)]) for column in columns)) for name in methods),
    )
    above, bounds = (sum(int(row[name]) for row in rows) for name in ("above", "runs"))
    return "\n".join(
        [
            lines,
            "",
            f"Mean and standard deviation over {rows[0]['runs']} runs of an exact Gaussian "
            f"mechanism at δ = {DELTA:g}, 95 % confidence, the same scores for all methods; "
            f"bounds above the true ε: {above} of {bounds}.",
        ]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    lines = []
    for line in measured(options.repeats):
        lines.append(line)
        print(tables.as_rows([line])[0], flush=True)
    facts = description(_core.build_info(), 1)
    tables.write(options.out / f"{NAME}.csv", tables.as_rows(lines), facts)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
