"""Mechanisms: each has its privacy event and noise before it runs on data."""

from __future__ import annotations

from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import OutputPerturbation

__all__ = ["ObjectivePerturbation", "OutputPerturbation"]
