"""The step in Opacus (pip install opacus), with its hooks or with its ghost clipping.

A linear module without bias under the cross entropy is the loss of ``DescentProblem``, and all its
parameters are one matrix, so Opacus's flat clipping norm is the Frobenius norm of ours.
``loss_reduction="mean"`` with ``expected_batch_size`` divides the noisy sum by the expected size of
the batch, as we do. Single precision, plain SGD, noise of torch's default generator
(``secure_mode`` would need a package more).

"hooks" and "ghost" take batches from Opacus's own data loader over a ``TensorDataset``, as its
documentation does. "hooks_bare" and "ghost_bare" leave that out: a batch is drawn by numpy's
generator and gathered by one indexing of a tensor, and none of the time is spent on loading.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.data_loader import DPDataLoader
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

from benches.descent_problem import DescentProblem, drawn

FORMULATIONS = ("hooks", "ghost", "hooks_bare", "ghost_bare")


class Stepper:
    """Descends step by step."""

    def __init__(self, problem: DescentProblem, formulation: str) -> None:
        self.problem = problem
        self.X = torch.from_numpy(np.ascontiguousarray(problem.X, dtype=np.float32))
        self.y = torch.from_numpy(problem.y)
        self.linear = torch.nn.Linear(problem.shape[1], problem.shape[0], bias=False)
        torch.nn.init.zeros_(self.linear.weight)
        # The input needs no gradient, as it should be.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        loss = torch.nn.CrossEntropyLoss()
        plain = torch.optim.SGD(self.linear.parameters(), lr=problem.learning_rate)
        settings = {
            "noise_multiplier": problem.sigma / problem.clip,
            "max_grad_norm": problem.clip,
            "expected_batch_size": problem.batch,
            "loss_reduction": "mean",
        }
        if formulation.startswith("ghost"):
            self.module = GradSampleModuleFastGradientClipping(
                self.linear, max_grad_norm=problem.clip, use_ghost_clipping=True
            )
            self.optimizer = DPOptimizerFastGradientClipping(plain, **settings)
            self.loss = DPLossFastGradientClipping(self.module, self.optimizer, loss)
        else:
            self.module = GradSampleModule(self.linear)
            self.optimizer = DPOptimizer(plain, **settings)
            self.loss = loss
        self.batches = self._indexed() if formulation.endswith("bare") else self._loaded()

    @property
    def weights(self) -> NDArray[np.float32]:
        """The weights now."""
        return self.linear.weight.detach().numpy()

    def advance(self, n_steps: int) -> None:
        """Take steps."""
        for _ in range(n_steps):
            X, y = next(self.batches)
            self.optimizer.zero_grad()
            self.loss(self.module(X), y).backward()
            self.optimizer.step()

    def _indexed(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches without a data loader."""
        problem, rng = self.problem, np.random.default_rng(1)
        while problem.full:
            yield self.X, self.y
        while True:
            batch = torch.from_numpy(drawn(rng, problem.n_samples, problem.batch))
            yield self.X[batch], self.y[batch]

    def _loaded(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of the data loader, epoch after epoch."""
        rows = torch.utils.data.TensorDataset(self.X, self.y)
        rate = min(1.0, self.problem.batch / self.problem.n_samples)
        loader = DPDataLoader(rows, sample_rate=rate)
        while True:
            yield from loader
