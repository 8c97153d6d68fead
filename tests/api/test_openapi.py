"""The API's description: committed, so that whoever reviews a change sees what it does to clients."""

from pathlib import Path
from typing import Final

import pytest

from app.cli.openapi import openapi

COMMITTED: Final = Path(__file__).parents[2] / "openapi" / "openapi.json"


@pytest.mark.gate
def test_the_committed_description_is_what_the_code_says() -> None:
    assert openapi() == COMMITTED.read_text("utf-8"), "run `make openapi` and commit what it wrote"


def test_the_description_is_the_same_under_any_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    before = openapi()
    monkeypatch.setenv("SUBGRANT_ISSUER", "https://grants.example")
    monkeypatch.setenv("SUBGRANT_PORT", "1234")
    monkeypatch.setenv("SUBGRANT_LOG_LEVEL", "wrong")
    assert openapi() == before
    assert "grants.example" not in before


def test_the_description_is_openapi_3_1() -> None:
    assert '"openapi": "3.1.' in openapi()
