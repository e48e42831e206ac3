"""Mechanisms: each knows its event and noise before it runs; settings in, noisy release out."""

from __future__ import annotations

from dpsvm_fast.mechanisms.objective import ObjectivePerturbation
from dpsvm_fast.mechanisms.output import OutputPerturbation

__all__ = ["ObjectivePerturbation", "OutputPerturbation"]
