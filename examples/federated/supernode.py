"""A SuperNode that runs one application only: the bundle that its hospital has read.

    python supernode.py --bundle SHA256 [options of flower-supernode]

A SuperNode runs whatever program the SuperLink sends, with access to everything that its account
can read. Flower can check signatures only together with its own hub; here the hospital says which
bundle it accepts. ``flwr build`` in the application's folder, then ``sha256sum *.fab``, gives the
digest, the same wherever files and compression library are the same. Any other bundle is answered
with an error before it is unpacked.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any

import flwr.supernode.start_client_internal as internal
from flwr.supernode.cli import flower_supernode


def accept_only(digest: str) -> None:
    """Let the SuperNode of this process take bundles with this SHA-256 digest and no others.

    Raises
    ------
    SystemExit
        The digest is not one, or the installed Flower looks at bundles in another way: nothing is
        started then.
    """
    if re.fullmatch("[0-9a-f]{64}", digest) is None:
        sys.exit("--bundle takes the SHA-256 digest of a bundle, 64 hexadecimal digits")
    pull: Callable[..., Any] = getattr(internal, "_pull_and_store_message", lambda: None)
    takes = set(inspect.signature(pull).parameters)
    if not hasattr(internal, "_verify_fab") or not {"get_fab", "trusted_entities"} <= takes:
        sys.exit("this Flower looks at bundles in another way: no bundle can be chosen")

    def verified(fab: Any, _trusted: Any) -> bool:
        return hmac.compare_digest(hashlib.sha256(fab.content).hexdigest(), digest)

    def pull_verified(*, get_fab: Callable[..., Any], **others: Any) -> Any:
        def marked(*arguments: Any) -> Any:
            # Flower asks for its hub's mark before it asks `verified`.
            return dataclasses.replace(get_fab(*arguments), verifications={"valid_license": "-"})

        others["trusted_entities"] = {"digest": digest}
        return pull(get_fab=marked, **others)

    internal._verify_fab = verified
    internal._pull_and_store_message = pull_verified


if __name__ == "__main__":
    if sys.argv[1:2] != ["--bundle"] or len(sys.argv) < 3:
        sys.exit("usage: python supernode.py --bundle SHA256 [options of flower-supernode]")
    accept_only(sys.argv[2])
    del sys.argv[1:3]
    flower_supernode()
