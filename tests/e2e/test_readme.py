"""The README's first grant and call, run line by line as it stands there."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.server_process import ROOT, ServerProcess, sqlite_url
from tests.tool_server import ToolServer

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="the README's example is run with curl")


def test_the_first_grant_and_call_of_the_readme_work(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    block = re.search(r"```sh\n(.*?)```", readme, re.DOTALL)
    assert block is not None
    with ServerProcess(sqlite_url(tmp_path), bootstrap=None) as server, ToolServer() as tools:
        secret = re.search(r"client secret +(\S+)", server.stdout)
        assert secret is not None
        script = block[1].replace("http://127.0.0.1:8700", server.url).replace("http://127.0.0.1:9000", tools.endpoint)
        script = re.sub(r"SECRET=\S+ .*", f"SECRET={secret[1]}", script)
        ran = subprocess.run(["bash", "-eu", "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout[ran.stdout.rindex('{"decision"') :])
    assert answer["outcome"] == "success"
    assert tools.of("search", q="refunds")
