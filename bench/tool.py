"""`python -m bench.tool`: the tool server behind gateway and proxy, as light as a real one can be.

Reads each request's JSON, counts it and answers one small document; GET tells the count. Refuses to know who
asks and why.
"""

import json
from typing import Final

from starlette.types import Receive, Scope, Send

from bench.serve import answer, live, read_body, serve

MARK: Final = "three cases, all closed"
RESULT: Final = json.dumps({"cases": ["case_1", "case_2", "case_3"], "summary": MARK}).encode()


class Tool:
    def __init__(self) -> None:
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(receive, send)
        elif scope["method"] == "GET":
            await answer(send, 200, json.dumps({"calls": self._count}).encode())
        else:
            json.loads(await read_body(receive))
            self._count += 1
            await answer(send, 200, RESULT)


if __name__ == "__main__":
    serve(Tool())
