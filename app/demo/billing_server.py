"""The billing department's tool server: plain HTTP, with money at stake.

    BILLING_KEY=… python -m app.demo.billing_server --port 0 --secret-header X-Billing-Key --secret-env BILLING_KEY

Keeps a ledger of what it was made to do, so that a demonstration can show that nothing happened. Whoever has
the key may do anything: who may refund what is decided elsewhere.
"""

import argparse
import asyncio
import hmac
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from app.core.strict_json import JsonObject, JsonValue, StrictJsonError, parse

REFUND_COST_CENTS: Final = 12
"""What the payment provider takes for a refund, reported with each."""

MAX_BODY_BYTES: Final = 65_536


@dataclass(slots=True)
class Ledger:
    """Everything that happened, in order."""

    refunds: list[JsonValue] = field(default_factory=list)
    closed_accounts: list[JsonValue] = field(default_factory=list)

    async def refund(self, request: web.Request) -> web.Response:
        try:
            wish = _refund_wish(await request.read())
        except (StrictJsonError, ValueError) as error:
            return web.json_response({"error": str(error)}, status=400)
        refund: JsonObject = {"refundId": f"rf_{len(self.refunds) + 1}", **wish}
        self.refunds.append(refund)
        answer = {name: refund[name] for name in ("refundId", "amountCents")}
        return web.json_response({**answer, "costCents": REFUND_COST_CENTS}, status=201)

    async def close(self, request: web.Request) -> web.Response:
        customer = request.match_info["customerId"]
        self.closed_accounts.append(customer)
        return web.json_response({"customerId": customer, "status": "closed"})

    async def show(self, _request: web.Request) -> web.Response:
        return web.json_response({"refunds": self.refunds, "closedAccounts": self.closed_accounts})


def _refund_wish(body: bytes) -> JsonObject:
    match parse(body, max_bytes=MAX_BODY_BYTES, max_depth=2):
        case {"caseId": str() as case, "customerId": str() as customer, "amountCents": int() as cents} if (
            cents > 0 and not isinstance(cents, bool)
        ):
            return {"caseId": case, "customerId": customer, "amountCents": cents}
    raise ValueError("a refund has a caseId, a customerId and a positive integer amountCents")


def make_app(header: str | None = None, secret: str = "") -> web.Application:
    """The application; without a header it accepts anybody, for tests."""
    ledger = Ledger()
    app = web.Application(middlewares=[_guard(header, secret)] if header else [])
    app.router.add_post("/refunds", ledger.refund)
    app.router.add_post("/accounts/{customerId}/close", ledger.close)
    app.router.add_get("/ledger", ledger.show)
    return app


def _guard(header: str, secret: str) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if hmac.compare_digest(request.headers.get(header, "").encode(), secret.encode()):
            return await handler(request)
        return web.json_response({"error": "the key is missing or wrong"}, status=401)

    return guard


async def serve(app: web.Application, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    print("ready", runner.addresses[0][1], flush=True)  # noqa: T201 - its one line
    await stop.wait()
    await runner.cleanup()


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    secret = os.environ.get(options.secret_env, "")
    if options.secret_header and not secret:
        sys.exit(f"billing_server: the environment variable {options.secret_env} is not set")
    asyncio.run(serve(make_app(options.secret_header, secret), options.host, options.port))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m app.demo.billing_server", description="A demo tool server.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one")
    parser.add_argument("--secret-header", help="the header that carries the key; without it, anybody may call")
    parser.add_argument("--secret-env", default="BILLING_KEY", help="the variable that holds the key")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
