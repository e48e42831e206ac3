"""What runs on the SuperLink's machine: adds masked vectors, and writes the model.

It never holds a record, a hospital's model or a hospital's noise. A sum that cannot be trusted
raises, so that ``flwr list`` says ``finished:failed``; nothing is then written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from flwr.app import Context

from dpsvm_fast.federated import FederatedLinearSVC, FederatedSpec
from dpsvm_fast.federated.flower import make_server_app


def specification(context: Context) -> FederatedSpec:
    """The study that the operator means to run."""
    return FederatedSpec.from_json(
        Path(str(context.run_config["spec"])).read_text(encoding="utf-8")
    )


def write(model: FederatedLinearSVC, context: Context) -> None:
    """Write the model's numbers and its certificate."""
    folder = Path(str(context.run_config["results"]))
    folder.mkdir(parents=True, exist_ok=True)
    # Arrays and not a pickle: whoever reads the model runs no code of ours.
    np.savez(
        folder / "model.npz",
        coef=model.coef_,
        intercept=model.intercept_,
        classes=np.array(model.classes_, dtype=str),
    )
    (folder / "certificate.json").write_text(model.privacy_.to_json(), encoding="utf-8")
    print(model.privacy_)


def seconds(name: str) -> Callable[[Context], float]:
    """A time limit that the run's configuration sets."""
    return lambda context: float(context.run_config[name])


app = make_server_app(
    specification,
    on_result=write,
    timeout=seconds("stage-seconds"),
    wait=seconds("wait-seconds"),
)
