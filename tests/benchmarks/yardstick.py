"""The yardstick: the plainest Quart-Trio and httpx2 pass-through under the same Hypercorn, without any stage.

yardstick.py UPSTREAM_URL PORT
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import httpx2
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from quart import Response, request
from quart_trio import QuartTrio

app = QuartTrio(__name__)
client = httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None), trust_env=False)


@app.post("/v1/chat/completions")
async def relay() -> Response:
    """Send the body on, and each piece of the answer back."""
    body = await request.get_data()
    upstream = client.build_request(
        "POST", sys.argv[1] + "/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    answer = await client.send(upstream, stream=True)

    async def pieces() -> AsyncIterator[bytes]:
        try:
            async for piece in answer.aiter_raw():
                yield piece
        finally:
            await answer.aclose()

    response = Response(pieces(), content_type="text/event-stream")
    response.timeout = None
    return response


if __name__ == "__main__":
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[2]}"]
    config.accesslog = None
    config.backlog = 8192
    config.keep_alive_max_requests = sys.maxsize
    trio.run(serve, app, config)  # type: ignore[arg-type]
