"""A real MCP tool server whose tools change as a test says, made with the official SDK, in a thread of its own.

Whatever it lists, a call of any name runs: nobody but the gateway keeps a changed tool from being called.
"""

import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import mcp_types as types
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

WAIT_SECONDS: Final = 60

Definition = dict[str, Any]
"""A tool as MCP lists it."""


class ChangingServer:
    """Serves on a free loopback port between `with`s; what was called is in `calls`, how often it was asked `listed`.

    `offers` is what it lists. `on_list` is run after each listing, `on_call` after each call: it may change the tools.
    """

    def __init__(self) -> None:
        self.offers: Sequence[Definition] = ()
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.listed = 0
        self.on_list: Callable[[], None] | None = None
        self.on_call: Callable[[], None] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        app = Server("changing", on_list_tools=self._list, on_call_tool=self._call).streamable_http_app()
        config = uvicorn.Config(app, log_level="error", ws="none", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(WAIT_SECONDS)
        self._listener.close()

    def reset(self, *offers: Definition) -> None:
        """As good as new, with these tools."""
        self.offers, self.calls, self.listed, self.on_list, self.on_call = offers, [], 0, None, None

    async def _list(
        self, _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        self.listed += 1
        tools = [types.Tool.model_validate(offer) for offer in self.offers]
        if self.on_list is not None:
            self.on_list()
        return types.ListToolsResult(tools=tools)

    async def _call(self, _: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        self.calls.append((params.name, params.arguments or {}))
        if self.on_call is not None:
            self.on_call()
        return types.CallToolResult(content=[types.TextContent(type="text", text="done")])
