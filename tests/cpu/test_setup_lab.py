"""``make lab`` serves the pages: on this machine only, with a token, on a free port, at once."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from tools.install import Stamps, fingerprint
from tools.lab import server_command, server_environment
from tools.stills import STATE, VIEW

ROOT = Path(__file__).resolve().parents[2]
_URL = re.compile(r"http://127\.0\.0\.1:(\d+)/lab/tree/book/index\.md\?token=(\w+)")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, str, int]]:
    """A server started as ``make lab ARGS=--no-browser`` does, while its first port is taken.

    Gives (address, port, token, the port that was taken).
    """
    pytest.importorskip("jupyterlab")
    work = tmp_path_factory.mktemp("work")
    (work / "book").mkdir()
    (work / "book" / "index.md").write_text("# Start\n")
    hostile = {"JUPYTER_TOKEN": ""}
    env = server_environment({**os.environ, **hostile}, work)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = server_command(work, ["--no-browser", f"--ServerApp.port={port}"])
        log = work / "server.log"
        with open(log, "w") as out:
            process = subprocess.Popen(command, env=env, stdout=out, stderr=out, cwd=ROOT)
        try:
            deadline = time.monotonic() + 60
            while not (match := _URL.search(log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            while not is_open(int(match[1])):  # the address is printed a moment before
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield f"http://127.0.0.1:{match[1]}", int(match[1]), match[2], port
        finally:
            process.terminate()
            process.wait(20)


def is_open(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_port_in_use_is_no_matter(served: tuple[str, int, str, int]) -> None:
    _, port, _, taken = served
    assert port != taken


def test_token_is_on(served: tuple[str, int, str, int]) -> None:
    address, _, token, _ = served
    assert len(token) >= 32
    assert status_of(f"{address}/api/contents/book?token={token}") == 200
    assert status_of(f"{address}/api/contents/book") == 403
    assert status_of(f"{address}/api/contents/book?token=wrong") == 403


LISTENS = "0A"
"""The state of a socket that waits for connections, as Linux writes it."""


def test_only_this_machine_is_served(served: tuple[str, int, str, int]) -> None:
    _, port, _, _ = served
    listening = Path("/proc/net/tcp")
    if not listening.exists():
        pytest.skip("no /proc here")
    rows = [line.split() for line in listening.read_text().splitlines()[1:]]
    rows = [row for row in rows if row[3] == LISTENS]  # not somebody's connection from that port
    bound = {row[1].split(":")[0] for row in rows if int(row[1].split(":")[1], 16) == port}
    assert bound == {"0100007F"}, "127.0.0.1 and nothing else"


def test_markdown_opens_as_a_notebook(served: tuple[str, int, str, int]) -> None:
    address, _, token, _ = served
    url = f"{address}/api/contents/book/index.md?type=notebook&content=1&token={token}"
    assert status_of(url) == 200
    overrides = ROOT / "jupyter_config/labconfig/default_setting_overrides.json"
    assert "Jupytext Notebook" in overrides.read_text()


def ask(address: str, token: str, model: object = None) -> dict[str, Any]:
    """The server's answer, to a model that it is sent if there is one."""
    body = None if model is None else json.dumps(model).encode()
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(
        address, body, headers, method="GET" if body is None else "PUT"
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))


def test_a_page_keeps_its_outputs_beside_its_text(served: tuple[str, int, str, int]) -> None:
    """What was saved shows its outputs and a still where a form was; the text has none of them."""
    address, _, token, _ = served
    form = {"model_name": "AnyModel", "state": {"form": {"kind": "ratio"}, "text": "How fast?"}}
    view = new_output("display_data", {VIEW: {"model_id": "w"}, "text/plain": "Form()"})
    cells = [
        new_markdown_cell("# Mine"),
        new_code_cell(
            "draw()", outputs=[new_output("display_data", {"text/html": "<b>drawn</b>"})]
        ),
        new_code_cell("ask()", outputs=[view]),
    ]
    metadata = {"widgets": {STATE: {"state": {"w": form}}}}
    for cell in cells[1:]:
        cell.metadata["trusted"] = True
    content = new_notebook(cells=cells, metadata=metadata)
    page = f"{address}/api/contents/book/mine.md"
    ask(page, token, {"type": "notebook", "format": "json", "content": content})
    text = ask(f"{page}?type=file&content=1", token)["content"]
    assert "# Mine" in text and "draw()" in text and "drawn" not in text and "How fast?" not in text
    shown = ask(f"{page}?type=notebook&content=1", token)["content"]
    assert shown["cells"][1]["outputs"][0]["data"]["text/html"] == "<b>drawn</b>"
    assert shown["cells"][1]["metadata"]["trusted"]
    still = shown["cells"][2]["outputs"][0]["data"]
    assert "How fast?" in still["text/html"] and VIEW not in still


def test_filling_needs_the_token_and_a_page(served: tuple[str, int, str, int]) -> None:
    address, _, token, _ = served
    asked = f"{address}/fieldguide/filled?page=book/no-such-page"
    assert status_of(asked) == 403
    assert status_of(f"{asked}&token={token}") == 404


def test_the_second_install_is_quick() -> None:
    """Nothing is resolved or downloaded when the stamps fit."""
    venv = Path(sys.prefix)
    ours = fingerprint(ROOT / "pyproject.toml", str(ROOT), sys.version)
    if not (venv / ".stamps").is_dir() or not Stamps(venv).fits("project", ours):
        pytest.skip("this environment was not made by make lab or make test")
    begun = time.monotonic()
    command = [sys.executable, "tools/install.py", "lab", "--venv", str(venv)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "", "a second run has nothing to say"
    assert time.monotonic() - begun < 5


def test_a_changed_lock_is_noticed(tmp_path: Path) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("a==1\n")
    stamps = Stamps(tmp_path)
    stamps.write("base", fingerprint(lock, "3.11"))
    assert stamps.fits("base", fingerprint(lock, "3.11"))
    assert not stamps.fits("base", fingerprint(lock, "3.12"))
    lock.write_text("a==2\n")
    assert not stamps.fits("base", fingerprint(lock, "3.11"))


def test_an_old_python_is_told_plainly(tmp_path: Path) -> None:
    code = (
        "import sys; sys.version_info = (3, 9, 2); sys.version = '3.9.2'\n"
        "from pathlib import Path; from tools.install import install\n"
        f"install('lab', Path({str(tmp_path / 'venv')!r}), '')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "This is Python 3.9.2" in done.stderr
    assert "make lab PYTHON=" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "venv").exists()
