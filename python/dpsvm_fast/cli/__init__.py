"""The command ``dpsvm-fast``: plan, train, use and check differentially private SVMs.

Exit codes: 0 done; 1 a certificate that does not hold or a claim that an audit refutes; 2 anything
that could not be done, or not be told of a certificate; 3 a budget that would be overspent; 130
interrupted. A failure is one sentence on standard error. Needs the extra ``cli``
(``pip install "dpsvm-fast[cli]"``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

__all__ = ["main"]

NEEDED = frozenset({"click", "rich"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str or None, default=None
        Arguments after the program's name; None takes those of the process.

    Returns
    -------
    int
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        from dpsvm_fast.cli._app import run
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        return _without(error.name, as_json="--json" in words)
    return run(words)


def _without(package: str | None, *, as_json: bool) -> int:
    """Say how to install what is missing."""
    sentence = f'the command line needs {package}: pip install "dpsvm-fast[cli]"'
    if as_json:
        sys.stdout.write(json.dumps({"error": sentence, "exit_code": 2}) + "\n")
    sys.stderr.write(f"dpsvm-fast: {sentence}\n")
    return 2
