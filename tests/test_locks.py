"""The lock files say all of what is asked for, by hash, and nothing about where it comes from."""

import json
import re
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.gate

ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / "requirements.lock"
EVERYTHING = ROOT / "requirements-dev.lock"
APART = ROOT / "requirements-apart.lock"
JAVASCRIPT = ROOT / "tests" / "clients" / "js"


def entries(lock: Path) -> dict[str, str]:
    """Each requirement as `name==version`, with the rest of what is said about it."""
    found = re.findall(r"^(\S+==\S+)(.*?)(?=^\S|\Z)", lock.read_text(), re.MULTILINE | re.DOTALL)
    return dict(found)


def asked_for(*groups: str) -> set[str]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = document["project"]
    lists = [project["dependencies"], project["optional-dependencies"]["demo"]]
    lists += [document["dependency-groups"][group] for group in groups]
    return {re.sub(r"\[.*\]", "", requirement) for requirements in lists for requirement in requirements}


def test_the_locks_hold_what_the_project_asks_for() -> None:
    assert asked_for("build") <= entries(RUNTIME).keys()
    assert asked_for("build", "dev") <= entries(EVERYTHING).keys()


def test_the_programs_that_tests_run_apart_are_locked() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(document["dependency-groups"]["apart"]) <= entries(APART).keys()


def test_what_runs_is_what_was_tested() -> None:
    assert entries(RUNTIME).keys() <= entries(EVERYTHING).keys()


@pytest.mark.parametrize("lock", [RUNTIME, EVERYTHING, APART], ids=lambda lock: lock.name)
def test_a_lock_gives_hashes_and_no_address(lock: Path) -> None:
    assert all("--hash=sha256:" in rest for rest in entries(lock).values())
    assert not re.search(r"://|--(extra-)?index|--find-links|@ ", lock.read_text())


def test_the_javascript_clients_are_pinned_by_hash_and_without_an_address() -> None:
    package = json.loads((JAVASCRIPT / "package.json").read_text())
    lock = json.loads((JAVASCRIPT / "package-lock.json").read_text())["packages"]
    root = lock.pop("")
    locked = {name: lock[f"node_modules/{name}"]["version"] for name in package["dependencies"]}
    assert locked == package["dependencies"] == root["dependencies"]
    assert all(entry["integrity"].startswith("sha512-") for entry in lock.values() if not entry.get("link"))
    assert not any("resolved" in entry for entry in lock.values())
