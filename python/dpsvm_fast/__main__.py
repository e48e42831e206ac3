"""``python -m dpsvm_fast`` is the command ``dpsvm-fast``."""

from __future__ import annotations

import sys

from dpsvm_fast.cli import main

if __name__ == "__main__":
    sys.exit(main())
