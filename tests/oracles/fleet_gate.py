"""A proxy that lets hospitals through and nothing else: what a firewall has to do, in few lines.

SuperNodes need only addresses under ``/v1/fleet/`` of the SuperLink's one port. Under the others
lie the operator's commands, which ask for no password. Run as a program::

    python fleet_gate.py PORT CERTIFICATE KEY SUPERLINK AUTHORITY
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Awaitable, Callable
from typing import Any

OPEN_TO_HOSPITALS = "/v1/fleet/"
HOP_BY_HOP = {b"host", b"connection", b"content-length", b"transfer-encoding"}

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def gate(superlink: str, authority: str) -> Callable[[Any, Receive, Send], Awaitable[None]]:
    """An application that forwards the one prefix, and answers 403 to the rest."""
    import httpx

    client = httpx.AsyncClient(verify=ssl.create_default_context(cafile=authority), timeout=60.0)

    async def forward(scope: Any, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        if not scope["path"].startswith(OPEN_TO_HOSPITALS):
            status, headers, content = 403, [], b"not open to hospitals"
        else:
            answer = await client.request(
                scope["method"],
                f"https://{superlink}{scope['path']}",
                headers=[pair for pair in scope["headers"] if pair[0] not in HOP_BY_HOP],
                content=body,
            )
            status, content = answer.status_code, answer.content
            headers = [p for p in answer.headers.raw if p[0].lower() not in HOP_BY_HOP]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    return forward


if __name__ == "__main__":
    import uvicorn

    port, certificate, key, superlink, authority = sys.argv[1:]
    uvicorn.run(
        gate(superlink, authority),
        host="127.0.0.1",
        port=int(port),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        lifespan="off",
    )
