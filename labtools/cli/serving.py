"""``labtools mcp``: the commands as tools of an agent, by the Model Context Protocol over stdin and
stdout. What a tool takes is what its command takes, and what it answers is that command's JSON."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from labtools import __version__
from labtools.problem import LabError
from labtools.problem.text import ONLY_IN, lies_in

from .outcome import Status, UsageProblem

TRUSTED = "--i-trust-this-folder"
AGENT_TOOLS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ("forecast", "compile", "bench", "adopt", "doctor")},
    "check": ("run",),
    "explain": ("forecast", "--what-if=0.5"),
    **{
        f"loop_{step}": ("loop", step)
        for step in (
            *("init", "gaps", "budget", "pick", "branch", "ablate", "check", "update", "run"),
            *("status", "summary", "diff", "restart", "export"),
        )
    },
}
"""The command behind each tool, and what is always asked with it."""
_ABOUT: Mapping[str, str] = {
    "explain": "What bounds a kernel: its chain of waits link by link, and what each kind of "
    "latency half as long would buy.",
}
_UNTOLD = ("json", "verbose", "help", "what_if")
"""Options that a tool does not have."""
WARNING = (
    "Kernels, their Python files and their references run with the rights of the user who started "
    "this server, and can do all that the user may; a process of its own is no sandbox. Only files "
    "in {folder} are read and written by name. Answers are the JSON of the command labtools, and "
    "steps of a loop answer with the steps that may come next."
)


@dataclass(frozen=True)
class CommandTool:
    """A command as a tool."""

    name: str  # of the tool
    words: tuple[str, ...]  # of the command, and what is always asked
    commands: Any  # every command, as they are parsed

    @cached_property
    def command(self) -> Any:
        """The command as it is parsed."""
        found = self.commands
        for word in self.words:
            found = found.commands[word] if not word.startswith("-") else found
        return found

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """What may be given, by name: an option's is what is typed."""
        named = {
            one.name
            if one.param_type_name == "argument"
            else one.opts[0].lstrip("-").replace("-", "_"): one
            for one in self.command.params
        }
        return {name: one for name, one in named.items() if name not in _UNTOLD}

    def describe(self) -> dict[str, Any]:
        """Name, description and schema, as the protocol has them."""
        properties = {name: self._schema(one) for name, one in self.parameters.items()}
        needed = [name for name, one in self.parameters.items() if one.required]
        schema = {"type": "object", "properties": properties, "additionalProperties": False}
        return {
            "name": self.name,
            "description": _ABOUT.get(self.name) or self.command.help,
            "input_schema": {**schema, **({"required": needed} if needed else {})},
        }

    @staticmethod
    def _schema(one: Any) -> dict[str, Any]:
        if one.opts[0] == "--input":
            return {
                "type": "object",
                "description": "What you decide for this step, as told above.",
            }
        found = TypeAdapter(one.type_descriptor.annotation).json_schema()
        form = f" ({one.metavar})" if one.metavar else ""
        return {**found, "description": f"{getattr(one, 'help', None) or ''}{form}".strip()}

    def line(self, given: Mapping[str, Any]) -> tuple[list[str], str | None]:
        """The command line of some arguments, and what is written to its stdin."""
        if unknown := sorted({*given} - {*self.parameters}):
            raise LabError(
                f"{self.name} takes no {unknown[0]}.",
                f"it takes {', '.join(self.parameters) or 'nothing'}",
                "the same without it",
            )
        options, places, stdin = [], list[str](), None
        for name, one in self.parameters.items():
            value = given.get(name)
            if value is None or value is False:
                continue
            values = [str(each) for each in (value if isinstance(value, list) else [value])]
            if name == "input":
                options.append(f"{one.opts[0]}=-")
                stdin = json.dumps(value)
            elif one.param_type_name == "argument":
                places += values
            elif value is True:
                options.append(one.opts[0])
            else:
                options += [f"{one.opts[0]}={each}" for each in values]
        return [*self.words, *options, "--json", "--", *places], stdin


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts_in(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts_in(one)


def refuse_outside(given: Mapping[str, Any], folder: Path) -> None:
    """Refuse arguments that name a file outside a folder, by whatever links it is come by."""
    for text in _texts_in(given):
        for part in {text, *re.split("[=@]", text)}:
            path = folder / os.path.expanduser(part)
            named = part.startswith(("/", "~")) or ".." in Path(part).parts
            if part and (named or os.path.lexists(path)) and not lies_in(path, folder):
                raise LabError(
                    f"{part} lies outside {folder}.",
                    "the tools read and write files of that folder alone",
                    "a copy of it in there; a server that is started in another folder",
                )


async def call_tool(tool: CommandTool, given: Mapping[str, Any], folder: Path) -> tuple[Any, bool]:
    """What a tool answers, and whether that is an error: a kernel that is wrong is none."""
    try:
        refuse_outside(given, folder)
        line, stdin = tool.line(given)
    except LabError as error:
        return {"error": error.to_dict(), "exit_status": int(Status.USAGE)}, True
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "labtools", *line),  # not what lies in the folder
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, ONLY_IN: str(folder)},
    )
    try:
        out, err = await process.communicate((stdin or "").encode())
    finally:
        if process.returncode is None:
            process.terminate()
    try:
        answer = json.loads(out)
    except ValueError:
        answer = {"error": {"what": err.decode(errors="replace").strip()[-2000:]}}
    return answer, process.returncode not in (Status.RIGHT, Status.WRONG)


def tools_of(commands: Any) -> dict[str, CommandTool]:
    """The tools by name, of all commands as they are parsed."""
    return {name: CommandTool(name, words, commands) for name, words in AGENT_TOOLS.items()}


def serve_agent(commands: Any, folder: Path, trusted: bool) -> None:
    """Answer an agent until it hangs up. Raises UsageProblem: the folder is not trusted."""
    folder = folder.absolute()
    warning = WARNING.format(folder=folder)
    if not trusted or not folder.is_dir():
        what = f"labtools mcp does not serve {folder}."
        why = "it is no folder" if trusted else warning
        raise UsageProblem(LabError(what, why, f"labtools mcp {TRUSTED}, in that folder"))
    folder = folder.resolve()

    import mcp_types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    tools = tools_of(commands)

    async def list_tools(context: Any, params: Any) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(
            tools=[mcp_types.Tool(**one.describe()) for one in tools.values()]
        )

    async def use_tool(context: Any, params: Any) -> mcp_types.CallToolResult:
        if params.name not in tools:
            what = f"There is no tool {params.name!r}; there are {', '.join(tools)}."
            answer, failed = {"error": {"what": what}}, True
        else:
            answer, failed = await call_tool(tools[params.name], params.arguments or {}, folder)
        text = mcp_types.TextContent(type="text", text=json.dumps(answer, indent=1))
        return mcp_types.CallToolResult(content=[text], structured_content=answer, is_error=failed)

    async def run() -> None:
        server = Server(
            "labtools",
            version=__version__,
            description=f"Forecast, check, measure and tune CUDA kernels. {warning}",
            instructions=warning,
            on_list_tools=list_tools,
            on_call_tool=use_tool,
        )
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    asyncio.run(run())
