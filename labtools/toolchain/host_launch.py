"""How host code launches a kernel, ``kernel<<<4096, 256, 0, stream>>>(...)``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from labtools.problem import LabError
from labtools.problem.launched import sizes_of

from .names import last_name

_IDLE = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAUNCH = re.compile(
    r"(?P<name>[A-Za-z_][\w:]*(?:\s*<(?:[^;<>]|<[^;<>]*>)*>)?)\s*<<<(?P<how>.*?)>>>\s*\(", re.DOTALL
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([\w, ]*)\))?[ \t]+(.+)$", re.MULTILINE)
_NUMBER = re.compile(
    r"\b(?:int|unsigned|unsigned int|uint|size_t|long|u?int(?:32|64)_t|auto)\s+"
    r"(\w+)\s*=\s*([^;,{}]+);"
)
_DIM3 = re.compile(r"\bdim3\s+(\w+)\s*(?:=\s*(?:dim3\s*)?)?[({]([^;]*)[)}]\s*;")
_OF_KERNEL = re.compile(r"\b__(?:global|device)__\b[^;{}]*")
"""A kernel's parameters, which are called as they like."""
_MOST_STEPS = 40


@dataclass(frozen=True)
class HostLaunch:
    """One launch as the source has it: sizes as `sizes_of` reads them, empty where not constant."""

    entry: str
    grid: str
    block: str
    smem: str
    line: int  # of the source, from 1
    text: str  # what stands between the brackets

    @property
    def said(self) -> str:
        """Where it stands."""
        return f"launched as line {self.line} of the source has it: {self.entry}<<<{self.text}>>>"


def host_launches(source: str) -> list[HostLaunch]:
    """The launches of a text, in order."""
    text = _IDLE.sub(lambda one: re.sub(r"[^\n]", " ", one[0]), source)
    known, found = _Names(text), []
    for one in _LAUNCH.finditer(text):
        how = " ".join(one["how"].split())
        given = [*_parts(how), "", ""][:3]
        grid, block, smem = (known.sizes(part) for part in given)
        entry = " ".join(one["name"].split()).replace(" <", "<")
        line = text.count("\n", 0, one.start()) + 1
        found.append(HostLaunch(entry, grid, block, smem if given[2] else "0", line, how))
    return found


def launch_of(source: str, entry: str | None) -> HostLaunch | None:
    """The one launch that a text has of a kernel, or of any; None where it has none, or others."""
    found = host_launches(source)
    if entry:
        found = [one for one in found if last_name(one.entry) == last_name(entry)]
        if "<" in entry:
            alike = [one for one in found if _bare(one.entry).endswith(_bare(entry))]
            found = alike or found
    ways = {(_bare(one.entry), one.grid, one.block, one.smem) for one in found}
    return found[0] if len(ways) == 1 else None


def _bare(name: str) -> str:
    return re.sub(r"\s+", "", name)


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas that are inside no bracket."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "({[") - (sign in ")}]")
        if sign == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


class _Names:
    """What names in a text stand for where they stand for one thing: macros, numbers, dim3."""

    def __init__(self, text: str) -> None:
        text = _OF_KERNEL.sub("", text)
        self._macros = {name: (given, of.strip()) for name, given, of in _MACRO.findall(text)}
        told = [(name, of) for name, of in (*_NUMBER.findall(text), *_DIM3.findall(text))]
        self._of = {name: of for name, of in told if _is_set_once(text, name)}

    def sizes(self, text: str) -> str:
        """Up to three sizes as `sizes_of` reads them, empty where they are not constant."""
        text = _inside(text)
        for _ in range(_MOST_STEPS):
            wider = _inside(self._expanded(text))
            if wider == text:
                break
            text = wider
        text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text)
        text = re.sub(
            r"\((?:int|unsigned|unsigned int|size_t|long)\)|static_cast<[\w ]+>", "", text
        )
        text = re.sub(r"\b1\s*<<\s*(\d+)\b", lambda one: str(1 << min(int(one[1]), 40)), text)
        text = re.sub(r"(?<!/)/(?!/)", "//", text)
        try:
            return ", ".join(map(str, sizes_of(text, {}, least=0)))
        except LabError:
            return ""

    def _expanded(self, text: str) -> str:
        for name, (given, body) in self._macros.items():
            call = re.search(rf"\b{name}\s*\(((?:[^()]|\([^()]*\))*)\)", text)
            names = [one.strip() for one in given.split(",")]
            values = list(_parts(call[1])) if call else []
            if call and given and len(names) == len(values):
                inside = _put(body, dict(zip(names, values, strict=True)))
                return f"{text[: call.start()]}({inside}){text[call.end() :]}"
            if not given and re.search(rf"\b{name}\b", text):
                return _put(text, {name: f"({body})"})
        for name, body in self._of.items():
            if text.strip() == name:
                return body
            if re.search(rf"\b{name}\b(?!\s*\()", text) and "," not in body:
                return _put(text.replace(f"{name}.x", name), {name: f"({body})"})
        return text


def _put(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda one: words.get(one[0], one[0]), text)


def _inside(text: str) -> str:
    """What stands in the brackets of ``dim3(...)`` and ``{...}``."""
    text = re.sub(r"^dim3\s*(?=[({])", "", text.strip())
    if text[:1] in ("(", "{") and text[-1:] in (")", "}"):
        inner = text[1:-1]
        depths = accumulate((one in "({") - (one in ")}") for one in inner)
        if min(depths, default=0) >= 0:
            return inner.strip()
    return text


def _is_set_once(text: str, name: str) -> bool:
    sets = rf"\b{name}\s*(?:[-+*/%|&^]|<<|>>)?=(?!=)|\b{name}\s*(?:\+\+|--)|(?:\+\+|--)\s*{name}\b"
    declares = (
        rf"\bdim3\s+{name}\s*[({{]|[(,]\s*(?:const\s+)?(?:int|unsigned|size_t)\s+{name}\s*[,)]"
    )
    return len(re.findall(sets, text)) + len(re.findall(declares, text)) == 1
