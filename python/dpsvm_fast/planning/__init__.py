"""Noise planned ahead: what a private fit will add, before any data are touched."""

from dpsvm_fast.planning._plan import plan_noise
from dpsvm_fast.planning._records import (
    CentreNoise,
    Decision,
    DescentNoise,
    KernelFeatures,
    NoisePlan,
    ObjectiveNoise,
    OutputNoise,
    Whitening,
)

__all__ = [
    "CentreNoise",
    "Decision",
    "DescentNoise",
    "KernelFeatures",
    "NoisePlan",
    "ObjectiveNoise",
    "OutputNoise",
    "Whitening",
    "plan_noise",
]
