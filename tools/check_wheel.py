"""Whether a wheel holds what it should, nothing else, and stays small.

python tools/check_wheel.py WHEEL...
"""

from __future__ import annotations

import fnmatch
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

LARGEST = 5_000_000
NEEDED = (
    "dpsvm_fast/__init__.py",
    "dpsvm_fast/_core.pyi",
    "dpsvm_fast/py.typed",
    "*.dist-info/entry_points.txt",
    "*.dist-info/licenses/LICENSE",
    "*.dist-info/licenses/LICENSE-APACHE",
    "*.dist-info/licenses/LICENSE-MIT",
    "*.dist-info/licenses/THIRD_PARTY_NOTICES",
    "*.dist-info/sboms/*.json",
)
# The module's name says for which interpreters it is.
MODULES = ("dpsvm_fast/_core*.so", "dpsvm_fast/_core*.pyd")
ALLOWED = ("dpsvm_fast/*.py", *NEEDED, *MODULES, "*.dist-info/*")


def faults(wheel: Path) -> list[str]:
    """What is wrong with a wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    found = [f"{one} is missing" for one in NEEDED if not fnmatch.filter(names, one)]
    modules = [name for one in MODULES for name in fnmatch.filter(names, one)]
    if len(modules) != 1:
        found.append(f"expected one compiled module, found {len(modules)}")
    allowed = {name for one in ALLOWED for name in fnmatch.filter(names, one)}
    found += [f"{name} does not belong in the wheel" for name in sorted(set(names) - allowed)]
    if wheel.stat().st_size > LARGEST:
        found.append(f"{wheel.stat().st_size:,} bytes, more than {LARGEST:,}")
    if "-linux_" in wheel.name:
        found.append("it runs on this machine alone, see manylinux")
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the faults; 1 if there are any."""
    wheels = [Path(argument) for argument in arguments]
    if not wheels:
        print("usage: check_wheel.py WHEEL...", file=sys.stderr)
        return 2
    wrong = [f"{wheel.name}: {fault}" for wheel in wheels for fault in faults(wheel)]
    print("\n".join(wrong) if wrong else f"{len(wheels)} of {len(wheels)} wheels as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
