"""``labtools mcp``: the commands as tools, a folder that they do not leave, and a whole round of a
loop through the protocol with the SDK's own client."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from mcp import Client, StdioServerParameters, stdio_client

from labtools.cli.app import app
from labtools.cli.serving import TRUSTED, call_tool, refuse_outside, tools_of
from labtools.problem import LabError, repository_root
from labtools.problem.text import ONLY_IN, is_file, read_given

TOOLS = tools_of(typer.main.get_command(app))
SMOOTH = repository_root() / "tests" / "families" / "smooth"
SKILL = repository_root() / "skills" / "optimise-cuda" / "SKILL.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(SMOOTH, tmp_path / "mine")
    (tmp_path / "secret.cu").write_text("// another's\n")
    return tmp_path / "mine"


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_takes_what_its_command_takes(name: str) -> None:
    tool = TOOLS[name]
    told = tool.describe()
    assert told["description"]
    assert {*told["input_schema"]["properties"]} == {*tool.parameters}
    assert all(one["description"] for one in told["input_schema"]["properties"].values())
    with pytest.raises(LabError, match="takes no nonsense"):
        tool.line({"nonsense": 1})


def test_arguments_become_a_command_line() -> None:
    branch = TOOLS["loop_branch"]
    given = {"folder": "-x", "method": ["memory.a", "memory.b"], "source": "v2.cu"}
    line, stdin = branch.line(given)
    assert line[:2] == ["loop", "branch"] and line[-3:] == ["--json", "--", "-x"]
    assert {"--method=memory.a", "--method=memory.b", "--source=v2.cu"} < {*line}
    assert stdin is None
    line, stdin = branch.line({"folder": "x", "input": {"branches": []}})
    assert "--input=-" in line and stdin == '{"branches": []}'
    line, _ = TOOLS["check"].line({"rung": "x.py", "quick": True})
    assert line == ["run", "--quick", "--json", "--", "x.py"]


OUTSIDE = {
    "path": {"rung": "/etc/passwd"},
    "above": {"folder": "../loop"},
    "of a method": {"without": ["memory.a=../secret.cu"]},
    "behind a link": {"source": "link.cu"},
    "of an argument": {"arg": ["idx=i32[8]@../secret.cu"]},
    "inside an input": {"input": {"branches": [{"source": "../secret.cu"}]}},
    "at home": {"rung": "~/x.py"},
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_file_outside_the_folder_is_refused(case: str, folder: Path) -> None:
    (folder / "link.cu").symlink_to(folder.parent / "secret.cu")
    with pytest.raises(LabError, match="lies outside"):
        refuse_outside(OUTSIDE[case], folder)
    answer, failed = asyncio.run(call_tool(TOOLS["forecast"], OUTSIDE[case], folder))
    assert failed and answer["exit_status"] == 2


def test_what_lies_inside_is_not(folder: Path) -> None:
    refuse_outside({"rung": "smooth.py", "workload": "smooth:8,64", "arg": ["n=i32:4"]}, folder)


def test_a_file_that_names_another_does_not_lead_outside(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = folder.parent / "secret.cu"
    assert is_file(secret) and read_given(secret)
    monkeypatch.setenv(ONLY_IN, str(folder))
    assert not is_file(secret)
    with pytest.raises(OSError, match="lies outside"):
        read_given(secret)
    assert read_given(folder / "smooth.cu") and read_given(SKILL)


def test_it_starts_only_where_the_folder_is_trusted(folder: Path) -> None:
    asked = [sys.executable, "-m", "labtools", "mcp"]
    said = subprocess.run(
        asked, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert said.returncode == 2 and said.stdout == ""
    assert "run with the rights of the user" in said.stderr and TRUSTED in said.stderr


def test_the_skill_names_steps_and_classes_that_there_are() -> None:
    from labtools.optimize.state import METHOD_CLASSES, STEPS

    text = SKILL.read_text()
    assert all(f"**{step}**" in text for step in STEPS)
    assert all(f"`{name}`" in text for name in METHOD_CLASSES)
    for name in re.findall(r"`(loop_\w+)`", text):
        assert name in TOOLS


@pytest.mark.slow
def test_a_whole_round_is_played_through_the_protocol(folder: Path) -> None:
    asyncio.run(play(folder))


async def play(folder: Path) -> None:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "labtools", "mcp", TRUSTED],
        cwd=folder,
        env={"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(folder / ".cache"))},
    )
    async with Client(stdio_client(server)) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert {*tools} == {*TOOLS}

        async def ask(name: str, **given: Any) -> Any:
            answer = await client.call_tool(name, given)
            assert not answer.is_error, answer.structured_content
            return answer.structured_content

        asked = {"kernel": "smooth.py", "on": "forecast", "workload": "smooth:64,4096"}
        step = await ask("loop_init", folder="loop", **asked)
        for name in ("gaps", "budget", "pick"):
            assert step["next"] == [name]
            step = await ask(f"loop_{name}", folder="loop")
        assert step["result"]["pick"]["considered"], "each method of the catalogue, and why"
        claims = {"method": ["memory.read_only_loads"]}
        step = await ask("loop_branch", folder="loop", source="wrong.cu", **claims)
        assert step["next"] == ["branch"] and step["result"]["champion"] is None
        assert "wrong in" in step["result"]["branches"][0]["failure"]
        step = await ask(
            "loop_branch",
            folder="loop",
            source="faster.cu",
            launch="faster.toml",
            method=["memory.shared_tile"],
        )
        assert step["next"] == ["ablate", "branch"]
        assert (await ask("loop_ablate", folder="loop"))["result"]["attribution"]
        checked = (await ask("loop_check", folder="loop"))["result"]["sass_check"]
        assert [one["verdict"] for one in checked] == ["present"]
        step = await ask("loop_update", folder="loop", input={"analysis": "a tile"})
        assert step["result"]["classes"] == {"memory.shared_tile": "undecided"}
        assert (await ask("loop_status", folder="loop"))["state"]["point"].startswith("faster@1.")
        answer = await client.call_tool("check", {"rung": "../secret.py"})
        assert answer.is_error
