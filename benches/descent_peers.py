"""Other libraries' steps, each library in processes of its own, one for every number of threads."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benches.config import DESCENT_CHECK_ROWS, DESCENT_CHECK_STEPS

ROOT = Path(__file__).resolve().parents[1]
# Adapter, the package that it needs, and the adapter's formulations.
PEERS = {
    "jax": ("jax_descent", "jax", ("rank_one", "per_example", "rank_one_loop")),
    "opacus": ("opacus_descent", "opacus", ("hooks", "ghost", "hooks_bare", "ghost_bare")),
}
THREADS = (1, 2)
# Forms that hold the gradients of all records of a batch at once.
PER_EXAMPLE = frozenset({"per_example", "hooks", "hooks_bare"})


class Peer:
    """One library with one number of threads, behind a pipe."""

    def __init__(self, name: str, n_threads: int) -> None:
        self.name, self.n_threads = name, n_threads
        adapter, _, self.formulations = PEERS[name]
        pools = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(n_threads))
        command = [sys.executable, "-m", "benches.libraries.descent_child", adapter]
        self.process = subprocess.Popen(
            [*command, str(n_threads)],
            cwd=ROOT,
            env=os.environ | pools | {"JAX_PLATFORMS": "cpu"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request, wait for its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(request), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: its process ended, see above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def weights(self, formulation: str) -> NDArray[np.float64]:
        """After the noise-free steps that all libraries take for comparison."""
        steps = {"check": DESCENT_CHECK_ROWS, "steps": DESCENT_CHECK_STEPS}
        return np.array(self.ask(formulation=formulation, **steps)["weights"])

    def end(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30.0)


@contextmanager
def installed_peers() -> Iterator[list[Peer]]:
    """Running processes of the libraries that are installed; says which are not."""
    peers = []
    for name, (_, package, _) in PEERS.items():
        if importlib.util.find_spec(package) is None:
            print(f"SKIPPED {name}: not installed (pip install --group peers)")
            continue
        peers += [Peer(name, n_threads) for n_threads in THREADS]
    try:
        yield peers
    finally:
        for peer in peers:
            peer.end()
