"""Run the command ``dpsvm-fast`` as ``python -m dpsvm_fast``."""

from __future__ import annotations

import sys

from dpsvm_fast.cli import main

if __name__ == "__main__":
    sys.exit(main())
