"""What the pages show of libraries, run as it stands there."""

import asyncio
import re
from pathlib import Path
from typing import Any, Final

import pytest

from tests.clients.conftest import Desk, Key

pytestmark = pytest.mark.anyio

PAGE: Final = Path(__file__).parents[2] / "docs" / "issuers.md"


async def test_the_page_shows_how_authlib_proves_a_client_by_its_key(desk: Desk) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    key = Key.generate("ES256")
    client_id = await desk.keyed_client("documented", key)
    here = {'"https://subgrant.example"': repr(desk.api.url), '"planner"': repr(client_id)}
    for shown, meant in here.items():
        assert shown in example
        example = example.replace(shown, meant)
    example, replaced = re.subn(r"^key = .*$", lambda _: f"key = {key.jwk!r}", example, flags=re.MULTILINE)
    assert replaced == 1
    names: dict[str, Any] = {}
    await asyncio.to_thread(exec, example, names)
    assert names["token"]["access_token"]
