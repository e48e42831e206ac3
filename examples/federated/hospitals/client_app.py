"""What runs in a hospital.

Everything that decides what leaves comes from the hospital's own files, named in the SuperNode's
``--node-config``, and none of it from the server:

``data``
    The records (``columns.py`` says how the file looks).
``spec``
    The hospital's own copy of the specification. The server's digest must be the same.
``journal``
    A folder of the hospital's own, which remembers over restarts and studies what it has answered.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from dpsvm_fast.federated import FederatedSpec
from dpsvm_fast.federated.flower import make_client_app
from hospitals import columns


def own_file(context: Context, name: str) -> Path:
    """A file or folder that the SuperNode's configuration names."""
    return Path(str(context.node_config[name]))


def specification(context: Context) -> FederatedSpec:
    """What this hospital has agreed to."""
    return FederatedSpec.from_json(own_file(context, "spec").read_text(encoding="utf-8"))


def records(context: Context) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """Records of this hospital, scaled by the public ranges."""
    return columns.read(own_file(context, "data"))


def journal(context: Context) -> Path:
    """Where this hospital remembers what it has answered."""
    return own_file(context, "journal")


app = make_client_app(specification, records, journal=journal)
