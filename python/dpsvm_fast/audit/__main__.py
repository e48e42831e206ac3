"""``python -m dpsvm_fast.audit`` prints the audit table."""

from __future__ import annotations

import sys

from dpsvm_fast.audit._command import main

if __name__ == "__main__":
    sys.exit(main())
