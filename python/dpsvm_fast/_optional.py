"""Packages that are imported only where they are used."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["optional_module"]


def optional_module(module: str, who: str, extra: str) -> Any:
    """Return a module of a package that need not be installed.

    Parameters
    ----------
    module : str
        Its dotted name.
    who : str
        What needs it, as the start of a sentence.
    extra : str
        The extra of this package that installs it.

    Raises
    ------
    ImportError
        It is not installed; the sentence says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        name = module.partition(".")[0]
        raise ImportError(
            f'{who} needs {name}, which is not installed: pip install "dpsvm-fast[{extra}]"'
        ) from None
