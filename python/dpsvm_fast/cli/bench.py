"""``dpsvm-fast bench``: times on this machine, beside scikit-learn without privacy."""

from __future__ import annotations

import os
import platform
import statistics
import textwrap
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dpsvm_fast._core import build_info
from dpsvm_fast.cli.plan import CLASSES, estimator_class
from dpsvm_fast.cli.screen import CommandError, OneOf, Real, Screen, Whole, example, pass_screen
from dpsvm_fast.validation import check_n_threads

DEFAULT_MODELS = ("linear", "objective", "output")
# Of the rows, for the accuracy; they are made besides those that are timed.
TEST_SHARE, FEWEST_TESTED = 5, 200
# Distance of the class centres, in standard deviations of a feature: some errors are left.
SPREAD = 3.0

WIDTH = 88
# Of the rows and of nothing else: noise has the operating system's entropy.
SEED = 0

OF_THE_PROBLEMS = (
    "The problems differ: private training adds noise, and stops at other places than "
    "scikit-learn's solvers do with their defaults. Rows are synthetic Gaussian clusters of norm 1;"
)

Rows = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass
class Contestant:
    """An estimator and its times."""

    name: str
    private: bool
    make: Callable[[int], Any]
    n_threads: int = 1
    fit: list[float] = field(default_factory=list)
    predict: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)
    converged: bool = True

    def run(self, train: Rows, test: Rows) -> None:
        """Fit and predict once."""
        from sklearn.exceptions import ConvergenceWarning
        from threadpoolctl import threadpool_limits

        model = self.make(self.n_threads)
        with threadpool_limits(self.n_threads), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self.fit.append(_seconds(lambda: model.fit(*train)))
            self.predict.append(_seconds(lambda: model.predict(train[0])))
        self.converged &= not any(issubclass(each.category, ConvergenceWarning) for each in caught)
        self.accuracies.append(float((model.predict(test[0]) == test[1]).mean()))

    def warm_up(self, train: Rows, test: Rows, n_threads: int) -> None:
        """Take one thread or all, whichever is faster here; nothing of it is counted."""
        times = {}
        for self.n_threads in {1, n_threads}:
            self.run(train, test)
            times[self.n_threads] = self.fit[-1]
        self.n_threads = min(times, key=times.__getitem__)
        self.fit, self.predict, self.accuracies = [], [], []


@click.command("bench", epilog=example("dpsvm-fast bench --samples 50000 --features 100"))
@click.option("--samples", type=Whole(10), default=20_000, show_default=True, help="Rows.")
@click.option("--features", type=Whole(1), default=50, show_default=True, help="Features.")
@click.option("--classes", type=Whole(2), default=5, show_default=True, help="Classes.")
@click.option(
    "--model",
    "models",
    type=OneOf(CLASSES),
    multiple=True,
    default=DEFAULT_MODELS,
    help="Private estimator, repeated for several; linear, objective and output when left out.",
)
@click.option("--epsilon", type=Real(0.0), default=1.0, show_default=True, help="Budget.")
@click.option(
    "--delta", type=Real(0.0), default=1e-6, show_default=True, help="Budget, above 0 here."
)
@click.option("--repeats", type=Whole(1), default=5, show_default=True, help="Runs of each.")
@click.option("--threads", type=Whole(1), help="Threads; all cores when left out.")
@pass_screen
def bench_command(
    screen: Screen,
    *,
    samples: int,
    features: int,
    classes: int,
    models: Sequence[str],
    epsilon: float,
    delta: float,
    repeats: int,
    threads: int | None,
) -> None:
    """Time private training on this machine, beside scikit-learn's models without privacy.

    The rows are synthetic. Every estimator has one thread or all, whichever is faster for it. Fits
    alternate between the estimators, so that a busy moment meets all of them; the table has the
    median of each.
    """
    n_threads = check_n_threads(threads, "--threads")
    if classes > samples:
        raise CommandError(f"--classes: got {classes}, expected at most --samples, {samples}")
    train, test = _rows(samples, features, classes)
    budget = {"epsilon": epsilon, "delta": delta}
    contestants = [*(_private(name, classes, budget) for name in models), *_peers()]
    _time(screen, contestants, train, test, repeats, n_threads)
    machine = _machine(n_threads)
    data = {"samples": samples, "features": features, "classes": classes, "tested": len(test[1])}
    screen.result(
        {
            "machine": machine,
            "data": data | {"kind": "Gaussian clusters, rows of norm 1", "seed": SEED},
            "budget": budget,
            "repeats": repeats,
            "results": [_record(each) for each in contestants],
        }
    )
    _tell(screen, contestants, machine, f"{samples} rows, {features} features, {classes} classes")
    notes = (
        f"Median of {repeats} runs. Models of scikit-learn are not private; the others have "
        f"epsilon = {epsilon:g}, delta = {delta:g}. {OF_THE_PROBLEMS} accuracy on {len(test[1])} "
        "others tells little about your data."
    )
    screen.say("\n" + textwrap.fill(notes, WIDTH))
    if not all(each.converged for each in contestants):
        screen.say("*: stopped at its default number of iterations before it had converged.")


def _time(
    screen: Screen,
    contestants: Sequence[Contestant],
    train: Rows,
    test: Rows,
    repeats: int,
    n_threads: int,
) -> None:
    """Fit each in turn, several times, after a fit of each that is not counted."""
    with screen.progress("timing", (repeats + 1) * len(contestants)) as bar:
        for run in range(repeats + 1):
            for place, contestant in enumerate(contestants, start=1):
                if run:
                    contestant.run(train, test)
                else:
                    contestant.warm_up(train, test, n_threads)
                bar.advance_to(run * len(contestants) + place)


def _rows(n_samples: int, n_features: int, n_classes: int) -> tuple[Rows, Rows]:
    """Rows to train on and rows to test on: Gaussian clusters, then norm 1."""
    rng = np.random.default_rng(SEED)
    n_tested = max(FEWEST_TESTED, n_samples // TEST_SHARE)
    centres = rng.normal(size=(n_classes, n_features))
    centres *= SPREAD / np.linalg.norm(centres, axis=1, keepdims=True)
    y = rng.integers(0, n_classes, n_samples + n_tested)
    # Every class has a row: scikit-learn's solvers need two classes at least.
    y[:n_classes] = np.arange(n_classes)
    X = rng.normal(size=(y.size, n_features))
    X += centres[y]
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return (X[:n_samples], y[:n_samples]), (X[n_samples:], y[n_samples:])


def _private(name: str, n_classes: int, settings: dict[str, Any]) -> Contestant:
    """An estimator of this library."""
    kind = estimator_class(name)
    bounds = {"bounds": (-1.0, 1.0)} if name in ("linear", "kernel") else {}
    return Contestant(
        name=CLASSES[name],
        private=True,
        make=lambda n: kind(classes=range(n_classes), n_threads=n, **settings, **bounds),
    )


def _peers() -> list[Contestant]:
    """What a user of scikit-learn would take."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    # Their threads are those of the linear algebra.
    peers = (LinearSVC, LogisticRegression)
    return [_peer(kind) for kind in peers]


def _peer(kind: Any) -> Contestant:
    """An estimator of scikit-learn with its defaults."""
    return Contestant(f"{kind.__name__} (sklearn)", private=False, make=lambda _: kind())


def _seconds(work: Callable[[], Any]) -> float:
    """Wall time of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _machine(n_threads: int) -> dict[str, Any]:
    """What the times depend on."""
    from importlib.metadata import version

    build = build_info()
    return {
        "cpu": _cpu_model(),
        "cores": check_n_threads(None),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "threads": n_threads,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "dpsvm_fast": build["version"],
        "build": f"{build['profile']}, {build['simd']}",
        "numpy": version("numpy"),
        "scikit-learn": version("scikit-learn"),
    }


def _cpu_model() -> str:
    """Name of the processor as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _spread(seconds: Sequence[float]) -> dict[str, Any]:
    """Times of all runs and their median."""
    return {
        "median": statistics.median(seconds),
        "min": min(seconds),
        "max": max(seconds),
        "runs": list(seconds),
    }


def _record(contestant: Contestant) -> dict[str, Any]:
    """One line of the JSON object."""
    return {
        "name": contestant.name,
        "private": contestant.private,
        "threads": contestant.n_threads,
        "fit_seconds": _spread(contestant.fit),
        "predict_seconds": _spread(contestant.predict),
        "accuracy": statistics.fmean(contestant.accuracies),
        "converged": contestant.converged,
    }


def _tell(
    screen: Screen, contestants: Sequence[Contestant], machine: dict[str, Any], data: str
) -> None:
    """Print the machine and the table."""
    screen.say(data, style="bold")
    screen.say(
        f"{machine['cpu']}, up to {machine['threads']} of {machine['cores']} threads, load "
        f"{machine['load']}; {machine['system']}; dpsvm_fast {machine['dpsvm_fast']} "
        f"({machine['build']}), scikit-learn {machine['scikit-learn']}\n"
    )
    screen.table(
        None,
        ["times in ms", "fit", "min to max", "predict", "accuracy", "threads"],
        [_cells(each) for each in contestants],
    )


def _cells(contestant: Contestant) -> list[str]:
    """A row of the table."""
    fit, predict = _spread(contestant.fit), _spread(contestant.predict)
    star = "" if contestant.converged else " *"
    return [
        contestant.name + star,
        _ms(fit["median"]),
        f"{_ms(fit['min'])} to {_ms(fit['max'])}",
        _ms(predict["median"]),
        f"{statistics.fmean(contestant.accuracies):.3f}",
        str(contestant.n_threads),
    ]


def _ms(seconds: float) -> str:
    """Milliseconds, three digits."""
    return f"{1e3 * seconds:.3g}" if seconds < 0.9995 else f"{1e3 * seconds:,.0f}"
