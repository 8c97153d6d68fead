"""The nonce for the next DPoP proof, on every answer to a request that came with one (RFC 9449 §8.2).

One place for tokens and resources, for answers and refusals alike. Refuses to know whether a proof was good.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class FreshNonces:
    """ASGI middleware. Where no nonces are asked for, nothing is added."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "dpop" not in Headers(scope=scope):
            await self._app(scope, receive, send)
            return

        async def send_with_nonce(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_nonce(scope, MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_with_nonce)


def _add_nonce(scope: Scope, headers: MutableHeaders) -> None:
    world = scope["app"].state.world
    nonce = world.proofs.nonce(world.clock())
    if nonce is None:
        return
    headers["DPoP-Nonce"] = nonce
    headers.setdefault("Cache-Control", "no-store")  # kept and served again, it would be stale
