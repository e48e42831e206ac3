"""Run ``dpsvm-fast audit`` as ``python -m dpsvm_fast.audit``."""

from __future__ import annotations

import sys

from dpsvm_fast.cli import main

if __name__ == "__main__":
    sys.exit(main(["audit", *sys.argv[1:]]))
