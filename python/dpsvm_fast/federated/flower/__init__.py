"""Secure sums with Flower: its transport and protocol, our masks, shares and checks.

Flower is an optional dependency. What is protected against whom, and what is not:
``docs/secure_summation.md``.

Importing this package switches Flower's telemetry off and gives Flower a private home directory,
unless the environment decides otherwise or Flower has been imported before: both are read when
Flower is imported. Processes that Flower starts (SuperLink, SuperNode) need
``FLWR_TELEMETRY_ENABLED=0`` and ``FLWR_HOME`` in their own environment.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import warnings

# Where the public names live; each module is imported when a name of it is asked for.
_HOMES = {
    "FlowerSum": "secsum",
    "HardeningError": "protocol",
    "LocalGrid": "secsum",
    "RoundTerms": "protocol",
    "make_client_app": "client",
    "make_server_app": "server",
    "run_secure_round": "server",
}

__all__ = [
    "FlowerSum",
    "HardeningError",
    "LocalGrid",
    "RoundTerms",
    "make_client_app",
    "make_server_app",
    "run_secure_round",
]


def require(*modules: str) -> None:
    """Say what to install where an optional dependency is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"secure sums need {' and '.join(missing)} (Python 3.11 or newer): "
            'pip install "dpsvm-fast[federated]"'
        )


def _prepare_environment() -> None:
    """Keep Flower from reporting its use, and from writing into the user's home."""
    if "flwr" in sys.modules:
        return
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    if "FLWR_HOME" not in os.environ:
        home = tempfile.mkdtemp(prefix="dpsvm-fast-flwr-")
        os.environ["FLWR_HOME"] = home
        atexit.register(shutil.rmtree, home, ignore_errors=True)


def _import_flower() -> None:
    """Import Flower; warnings that its own dependencies give each other are no news to users."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("flwr")


def __getattr__(name: str) -> object:
    """Import the module of a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


require("flwr", "cryptography")
_prepare_environment()
_import_flower()
