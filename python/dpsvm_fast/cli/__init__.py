"""The command ``dpsvm-fast``: plan, train, apply and verify differentially private SVMs.

Exit codes: 0 success; 1 a certificate does not hold or an audit refutes a claim; 2 any other
failure, or an undecided certificate; 3 a budget would be exceeded; 4 a valid certificate that a
policy forbids; 130 interrupted. A failure prints one sentence on standard error. The command needs
the extra ``cli`` (``pip install "dpsvm-fast[cli]"``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial

__all__ = ["main"]

# The same as in ``_errors``, which cannot be imported without click.
FAILED, INTERRUPTED = 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str or None, default=None
        Arguments after the program name; None takes those of the process.

    Returns
    -------
    int
        The exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in words
    # Closed by the caller (>&-).
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    try:
        from dpsvm_fast.cli.app import run
        from dpsvm_fast.cli.screen import guarded

        return guarded(partial(run, words), as_json=as_json)
    except KeyboardInterrupt:
        # While modules are imported, where no command could say anything.
        return _reported("interrupted", INTERRUPTED, as_json=as_json)
    except ModuleNotFoundError as error:
        if error.name != "click":
            raise
        sentence = 'the command line needs click: pip install "dpsvm-fast[cli]"'
        return _reported(sentence, FAILED, as_json=as_json)


def _reported(sentence: str, code: int, *, as_json: bool) -> int:
    """Report why nothing was done, without importing another module."""
    if as_json:
        import json

        sys.stdout.write(json.dumps({"error": sentence, "exit_code": code}) + "\n")
    sys.stderr.write(f"dpsvm-fast: {sentence}\n")
    return code
