"""Fit six models with a seed, and compare their weights with those of another machine.

python tools/seeded_fits.py WRITTEN.npz [EARLIER.npz]

A seed gives the same bits where the processor has the same vector instructions. Others round sums
differently, and solvers then stop elsewhere within their tolerance. The exit status is 1 where a
weight differs by more than TOLERANCE times the largest of its model, where the certificate of a
private fit does not hold, or where one with half its epsilon does.
"""

from __future__ import annotations

import platform
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from dpsvm_fast import (
    GradientPerturbationSVC,
    ObjectivePerturbationSVC,
    OutputPerturbationSVC,
    PrivateKernelSVC,
    PrivateLinearSVC,
    verify,
)
from dpsvm_fast._core import build_info
from dpsvm_fast.exceptions import NotPrivateWarning

# Three times the largest difference between processors that was seen.
TOLERANCE = 1e-6
CLASSES = range(10)
SCALED: dict[str, Any] = {"bounds": (0, 16), "classes": CLASSES}
CLIPPED: dict[str, Any] = {"data_norm": 80.0, "classes": CLASSES}
MODELS: dict[str, Any] = {
    "linear": PrivateLinearSVC(1.0, 1e-5, **SCALED),
    "whitened": PrivateLinearSVC(4.0, 1e-5, whiten=True, **SCALED),
    "kernel": PrivateKernelSVC(1.0, 1e-5, n_components=300, **SCALED),
    "objective": ObjectivePerturbationSVC(1.0, 1e-5, **CLIPPED),
    "gradient": GradientPerturbationSVC(1.0, 1e-5, **CLIPPED),
    "output": OutputPerturbationSVC(1.0, 1e-5, **CLIPPED),
}


def fits() -> tuple[dict[str, np.ndarray], list[str]]:
    """Return the seeded weights by model, and what is wrong with certificates of private fits."""
    X, y = load_digits(return_X_y=True)
    weights, wrong = {}, []
    for name, model in MODELS.items():
        certificate = model.set_params(random_state=None).fit(X, y).privacy_.to_json()
        if not verify(certificate):
            wrong.append(f"{name}: the certificate does not hold")
        epsilon = float(model.epsilon)
        forged = certificate.replace(f'"epsilon": {epsilon}', f'"epsilon": {epsilon / 2}')
        if forged == certificate or verify(forged):
            wrong.append(f"{name}: a forged certificate holds")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            model.set_params(random_state=0).fit(X, y)
        weights[name] = np.column_stack([model.coef_, model.intercept_])
    return weights, wrong


def differences(
    earlier: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, float]]:
    """Yield the largest difference of each model's weights, relative to the largest weight."""
    for name, weights in found.items():
        largest = float(np.abs(earlier[name]).max())
        yield name, float(np.abs(earlier[name] - weights).max()) / largest


def main(arguments: Sequence[str]) -> int:
    """Fit, write, compare; 1 if anything is wrong."""
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    print(build_info()["simd"], *platform.libc_ver(), "Python", platform.python_version())
    weights, wrong = fits()
    np.savez(arguments[0], **weights)
    if len(arguments) == 2:
        for name, difference in differences(np.load(arguments[1]), weights):
            print(f"{name}: " + (f"largest difference {difference:.1e}" if difference else "same"))
            if not difference <= TOLERANCE:
                wrong.append(f"{name}: weights differ by {difference:.1e}")
    print("\n".join(wrong) if wrong else f"{len(weights)} models as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
