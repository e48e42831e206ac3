"""Another library's model in the environment of that library: nothing of ours is imported.

    python peer_child.py diffprivlib|opacus

The first line that goes out is {"versions": text}. Then one JSON object a line comes in and one
goes out. In:

    {"rows": path of an .npz file with X, y, X_test, y_test; "data_norm", "n_classes",
     "epsilon", "delta", "seed", and what the library wants besides}

Out: {"accuracy", "seconds" of the fit alone, "epsilon", "delta" as the library itself accounts}.
Opacus says "n_steps" and "step_seconds" as well, and takes "noise_multiplier" instead of a search.
Seconds of a search for noise that was already done are those of the first time.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np


class Diffprivlib:
    """LogisticRegression: one-vs-rest, objective perturbation of pure epsilon, its defaults."""

    packages = ("diffprivlib", "scikit-learn")

    def __init__(self) -> None:
        self.library: Any = importlib.import_module("diffprivlib")
        self.models: Any = importlib.import_module("diffprivlib.models")

    def answer(self, request: dict[str, Any], rows: Any) -> dict[str, Any]:
        """One fit."""
        accountant = self.library.BudgetAccountant()
        model = self.models.LogisticRegression(
            epsilon=request["epsilon"],
            data_norm=request["data_norm"],
            accountant=accountant,
            random_state=request["seed"],
            **request.get("settings", {}),
        )
        begin = time.perf_counter()
        model.fit(rows["X"], rows["y"])
        seconds = time.perf_counter() - begin
        accuracy = np.mean(model.predict(rows["X_test"]) == rows["y_test"])
        epsilon, delta = accountant.total()
        return {"accuracy": float(accuracy), "seconds": seconds, "epsilon": epsilon, "delta": delta}


class Opacus:
    """A softmax layer by DP-SGD with Poisson samples, as Opacus's documentation does it."""

    packages = ("opacus", "torch")

    def __init__(self) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.opacus: Any = importlib.import_module("opacus")
        self.data: Any = importlib.import_module("torch.utils.data")
        self.accountants: Any = importlib.import_module("opacus.accountants.utils")
        # Noise multipliers that were searched for, with the seconds that it took, and what a fit
        # with one spends.
        self.found: dict[tuple[float, ...], tuple[float, float]] = {}
        self.spent: dict[tuple[tuple[float, float, int], ...], float] = {}
        self.torch.set_num_threads(1)

    def noise(self, request: dict[str, Any], rate: float) -> tuple[float, float]:
        """The noise multiplier for a budget, and the seconds of the search."""
        key = (request["epsilon"], request["delta"], rate, request["epochs"])
        if key not in self.found:
            begin = time.perf_counter()
            multiplier = self.accountants.get_noise_multiplier(
                target_epsilon=request["epsilon"],
                target_delta=request["delta"],
                sample_rate=rate,
                epochs=request["epochs"],
                accountant="prv",
            )
            self.found[key] = float(multiplier), time.perf_counter() - begin
        return self.found[key]

    def _trained(self, model: Any, optimizer: Any, loader: Any, epochs: int) -> int:
        """Passes over the rows; returns the number of steps."""
        loss, n_steps = self.torch.nn.CrossEntropyLoss(), 0
        for _ in range(epochs):
            for batch, labels in loader:
                optimizer.zero_grad()
                loss(model(batch), labels).backward()
                optimizer.step()
                n_steps += 1
        return n_steps

    def answer(self, request: dict[str, Any], rows: Any) -> dict[str, Any]:
        """One fit."""
        torch = self.torch
        torch.manual_seed(request["seed"])
        X = torch.from_numpy(np.ascontiguousarray(rows["X"], dtype=np.float32))
        y = torch.from_numpy(np.ascontiguousarray(rows["y"]))
        loader = self.data.DataLoader(
            self.data.TensorDataset(X, y), batch_size=min(request["batch"], len(y))
        )
        # The rate that the engine takes from the loader.
        given = request.get("noise_multiplier")
        multiplier, searched = (given, 0.0) if given else self.noise(request, 1.0 / len(loader))
        begin = time.perf_counter()
        plain = torch.nn.Linear(X.shape[1], request["n_classes"])
        engine = self.opacus.PrivacyEngine(accountant="prv")
        model, optimizer, loader = engine.make_private(
            module=plain,
            optimizer=torch.optim.SGD(plain.parameters(), lr=request["learning_rate"]),
            data_loader=loader,
            noise_multiplier=multiplier,
            max_grad_norm=request["clip"],
            poisson_sampling=True,
        )
        n_steps = self._trained(model, optimizer, loader, request["epochs"])
        seconds = time.perf_counter() - begin
        history = tuple(engine.accountant.history)
        if history not in self.spent and not given:
            self.spent[history] = float(engine.get_epsilon(request["delta"]))
        with torch.no_grad():
            scores = plain(torch.from_numpy(np.asarray(rows["X_test"], dtype=np.float32)))
        accuracy = np.mean(scores.argmax(dim=1).numpy() == rows["y_test"])
        return {
            "accuracy": float(accuracy),
            "seconds": searched + seconds,
            "epsilon": self.spent.get(history),
            "delta": request["delta"],
            "n_steps": n_steps,
            "step_seconds": seconds / n_steps,
        }


LIBRARIES: dict[str, Any] = {"diffprivlib": Diffprivlib, "opacus": Opacus}


def main(name: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    # Whatever a library prints must not pass for an answer.
    os.dup2(2, 1)
    # Advice of the libraries to their users, the same for every fit.
    warnings.simplefilter("ignore")
    library = LIBRARIES[name]()
    versions = ", ".join(f"{package} {version(package)}" for package in library.packages)
    print(json.dumps({"versions": versions}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        with np.load(request["rows"], allow_pickle=False) as rows:
            answer = library.answer(request, dict(rows))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
