"""`subgrant demo` runs the story, wherever that lies; the story has tests of its own."""

import sys
from types import ModuleType

import pytest

from app.cli.output import ExitCode, Stop
from app.cli.program import app


def _run(*arguments: str) -> object:
    return app(arguments, standalone_mode=False)


def test_the_demo_ends_as_its_story_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    story = ModuleType("app.demo.story")
    story.run = lambda console: 7  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app.demo.story", story)
    assert _run("demo") == 7


def test_without_its_extra_the_demo_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'mcp.client'", name="mcp.client")

    monkeypatch.setattr("app.cli.program.import_module", missing)
    with pytest.raises(Stop, match=r"pip install 'subgrant\[demo\]'") as stop:
        _run("demo")
    assert stop.value.code is ExitCode.USAGE
