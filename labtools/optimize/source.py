"""What somebody writes for a loop: a kernel's source, its launches where they differ, the methods
that it claims, and what it is without each: a guard in the source, or another source."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, ValidationError

from labtools.predict.launched import fitted_launch
from labtools.problem import LabError, Limits, Problem, Rung
from labtools.problem.launched import (
    WITHOUT_SOURCE,
    AskedLaunch,
    LaunchesOf,
    asked_launch,
    launch_file,
    read_arguments,
    with_number,
)
from labtools.problem.text import how_many, read_given
from labtools.record.expressions import ExpressionError, evaluate_expression, names_in
from labtools.toolchain import compile_rung
from labtools.toolchain.cubin import refuse_launch
from labtools.toolchain.sources import expand_includes, normalise_source, odd_include

from .method import Method, proof_names

START_KEY = "start"  # the key of the point that a search starts from
MOST_SOURCE_BYTES = 2**20
"""Of one source with its own headers, which the log of a loop keeps whole."""
_FAR_INCLUDE = re.compile(
    r"""^[ \t]*#[ \t]*include[ \t]*["<]((?:/|[^">\n]*\.\.)[^">\n]*)[">]""", re.MULTILINE
)
_MACRO = re.compile(r"\bMETHOD_(\w+)")
_DEFINES = r"#[ \t]*define[ \t]+{}\b"
_DEFINED = r"\b(?:ifn?def[ \t]+|defined[ \t]*\(?[ \t]*){}\b"


@dataclass(frozen=True)
class AskedBranch:
    """A branch as somebody asks for it."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    source: str  # path of the source, or of a launch file that names one
    launch: str = ""  # path of a launch file
    methods: tuple[str, ...] = ()  # that it claims
    without: Mapping[str, str] = field(default_factory=dict)  # path of what it is without a method
    # a signature, or what proves it, of a method that the catalogue lacks
    describe: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file that it names."""
        return tuple(filter(None, (self.source, self.launch, *self.without.values())))


@dataclass(frozen=True)
class SourceText:
    """A kernel's text, and how it is launched where that is not as the loop's own kernel is."""

    file: str  # that it was read from
    text: str  # its own headers within it
    launches: tuple[AskedLaunch, ...] = ()  # in order; none: those of the loop's kernel
    workspace: Mapping[str, str] = field(default_factory=dict)  # type and shape by name
    # arguments that are numbers and that the problem does not have, as ``i32:cdiv(n,4)``
    numbers: Mapping[str, str] = field(default_factory=dict)
    defines: Mapping[str, str] = field(default_factory=dict)  # preprocessor definitions

    @classmethod
    def read(
        cls, path: Path, base: Rung, launch: Path | None = None, problem: Problem | None = None
    ) -> SourceText:
        """A source, with its launches where a file says them. Arguments of that file must be those
        of the ``problem``. Raises LabError: one of the files cannot be used."""
        said: Mapping[str, Any] = launch_file(launch) if launch is not None else {}
        folders = [launch.parent / str(one) for one in said.get("include", [])] if launch else []
        if path.suffix in (*WITHOUT_SOURCE, ".toml"):
            why = "a branch is source, so that methods can be taken out of it"
            raise LabError(f"{path} is no source.", why, "the .cu that it was made of")
        own = [path.parent, *folders, base.source.resolve().parent]
        try:
            text = read_given(path, MOST_SOURCE_BYTES)
            if odd := odd_include(text, own):
                raise OSError(f"it includes {odd}, which is no file")
            text = expand_includes(text, own)
            if left := _FAR_INCLUDE.search(text):  # a compiler would look for it by itself
                raise OSError(f"it includes {left[1]}, which is none of its headers")
            if len(text) > MOST_SOURCE_BYTES:
                raise ValueError(f"it is larger than {MOST_SOURCE_BYTES // 2**20} MiB with headers")
        except (OSError, ValueError, RuntimeError) as error:
            said_why = getattr(error, "strerror", None) or str(error)
            raise LabError(
                f"The source {path} cannot be read.", said_why, "a file of CUDA C++ in UTF-8"
            ) from error
        numbers = _own_numbers(launch, said.get("args", {}), problem) if launch and problem else {}
        return cls(
            str(path),
            text,
            tuple(map(asked_launch, said.get("launch", []))),
            {name: str(one) for name, one in said.get("workspace", {}).items()},
            numbers,
            {name: str(one) for name, one in said.get("defines", {}).items()},
        )

    @property
    def words(self) -> tuple[str, ...]:
        """What it says: equal of two that differ in comments alone."""
        told = (self.launches, sorted(self.workspace.items()), sorted(self.numbers.items()))
        return (normalise_source(self.text), repr(told), repr(sorted(self.defines.items())))

    @property
    def macros(self) -> list[str]:
        """The macros of guards that it and its launches ask for, each once."""
        found = _MACRO.findall(normalise_source(self.text) + self._sizes)
        return [f"METHOD_{one}" for one in dict.fromkeys(found)]

    def asks_for(self, macros: Sequence[str]) -> bool:
        """Whether it, or one of its launches, is another one with some macros 1 and 0."""
        in_sizes = {f"METHOD_{one}" for one in _MACRO.findall(self._sizes)}
        off = switched_text(self.text, dict.fromkeys(macros, 0))
        return bool(in_sizes & {*macros}) or switched_text(self.text, {}) != off

    @property
    def _sizes(self) -> str:
        sizes = (f"{one.grid} {one.block} {one.smem}" for one in self.launches)
        return " ".join(["", *sizes, *self.workspace.values(), *self.numbers.values()])


def _own_numbers(path: Path, told: Mapping[str, Any], problem: Problem) -> dict[str, str]:
    """Of a launch file's arguments those that the problem lacks; they are numbers. The others are
    bound by the problem."""
    known = {one.name: one for one in read_arguments(problem.argument_texts(), least=0)}
    sizes = {name: int(one.value) for name, one in known.items() if one.role == "size"}
    texts = [f"{name}={value}" for name, value in sizes.items()]
    own: dict[str, str] = {}
    for name, said in told.items():
        if name in known:
            text = f"{name}={with_number(str(said), sizes)}"
            others = [one for one in texts if not one.startswith(f"{name}=")]
            (found,) = (
                one for one in read_arguments([*others, text], path.parent, 0) if one.name == name
            )
            if str(found) != str(known[name]):
                why = f"it says {found}, and {problem} has {known[name]}"
                raise LabError(
                    f"{path.name} changes the argument {name}.", why, _BOUND_WITHOUT_ARGUMENTS
                )
        elif "[" in str(said):
            why = f"{problem} has {', '.join(known)}"
            raise LabError(
                f"{path.name} has the buffer {name}, which the problem lacks.",
                why,
                "[workspace] for what only launches hand on",
            )
        else:
            own[name] = str(said)
    return own


_BOUND_WITHOUT_ARGUMENTS = (
    "the file without [args]: the arguments were bound when the loop began, and so were the "
    "reference and the tolerance"
)


@dataclass(frozen=True)
class BranchSource:
    """A branch that somebody wrote, or the kernel with which a loop began."""

    name: str  # of the point with all its methods: ``v2@1.1`` of round 1, branch 1
    code: SourceText
    methods: tuple[str, ...] = ()  # that it claims
    carried: tuple[str, ...] = ()  # whose guards it still has, from earlier rounds
    guards: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # macros by method
    # what it is without a method that has no guard
    without: Mapping[str, SourceText] = field(default_factory=dict)
    described: tuple[Method, ...] = ()  # that the catalogue lacks

    def why_not_without(self, methods: Sequence[str]) -> str:
        """Why it cannot be had without some of its methods, or nothing."""
        files = [one for one in methods if one in self.without]
        bare = [one for one in methods if one not in self.without and one not in self.guards]
        if bare:
            return (
                f"it is checked and not ablated: its source has no guard "
                f"#if {macro_of(bare[0])}, and no --without says what it is without it"
            )
        if len(files) > 1 or (files and len(methods) > 1):
            return f"the source without {files[0]} says nothing of it without another one too"
        return ""

    def source_without(self, methods: Sequence[str]) -> SourceText:
        """The source without some methods; where guards leave them out it is its own."""
        return next((self.without[one] for one in methods if one in self.without), self.code)

    def switches(self, methods: Sequence[str]) -> dict[str, int]:
        """1 or 0 for each macro of a guard, without some methods. One that guards no method that is
        claimed is on, unless the source defines it; a loop's own kernel stays as it is."""
        known = {macro: of for of, macros in self.guards.items() for macro in macros}
        code = self.source_without(methods)
        others = {
            macro: ""
            for macro in code.macros
            if self.name != START_KEY
            and macro not in known
            and not re.search(_DEFINES.format(macro), code.text)
        }
        return {macro: int(of not in methods) for macro, of in {**known, **others}.items()}

    def rung(self, base: Rung, without: Sequence[str] = ()) -> Rung:
        """The kernel of a loop with this source, without some methods."""
        code, launch = self.source_without(without), base.launch
        if code.launches:
            told = (code.launches, code.workspace, code.numbers, self.switches(without))
            launch = LaunchesOf(*told)
        name = base.id
        if self.name != START_KEY:
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", "_".join([base.id, self.name, *without]))
        return dataclasses.replace(
            base,
            id=name,
            source=Path(code.file).absolute(),
            read_text=code.text,
            text=None,
            edited=True,
            launch=launch,
            defines_extra=_Defines(base.defines_extra, self.definitions(without)),
        )

    def definitions(self, without: Sequence[str] = ()) -> dict[str, str]:
        """Its own definitions, without some methods: of a macro that is left out where the source
        only asks whether it is defined there is none."""
        code, found = self.source_without(without), dict(self.source_without(without).defines)
        for macro, value in self.switches(without).items():
            asks = re.search(_DEFINED.format(macro), code.text)
            if value or not asks or re.search(_DEFINES.format(macro), code.text):
                found[macro] = str(value)
        return found

    def say_claims(self, before: Mapping[str, str] | None = None) -> dict[str, str]:
        """How each method that it claims is taken out of it, and its class of ``before``."""
        found = {}
        for one in self.methods:
            if one in self.guards:
                found[one] = f"guard {self.guards[one][0]}"
            elif one in self.without:
                found[one] = f"without it {Path(self.without[one].file).name}"
            else:
                found[one] = "checked and not ablated: neither a guard nor a source without it"
            if known := (before or {}).get(one):
                found[one] += f"; {known.replace('_', ' ')} in an earlier round"
        return found

    def diff_without(self, method: str) -> str:
        """The lines that go with a method, where another source says so."""
        left = self.without.get(method)
        return "" if left is None else diff_of(left, self.code)


@dataclass(frozen=True)
class _Defines:
    """The definitions of a kernel and of what was written in its place."""

    base: Callable[..., Mapping[str, str]] | None
    own: Mapping[str, str]

    def __call__(self, problem: Any, limits: Any, knobs: Mapping[str, int]) -> dict[str, str]:
        """Both, the own ones last."""
        found = dict(self.base(problem, limits, knobs)) if self.base is not None else {}
        return {**found, **self.own}


def macro_of(method: str) -> str:
    """The macro that guards a method: ``METHOD_memory_vectorize``, of which case does not count,
    nor whether the axis stands in it."""
    return f"METHOD_{method.replace('.', '_')}"


def diff_of(before: SourceText, after: SourceText) -> str:
    """What changed from one source to another, and in its launches, as a unified diff."""
    first, second = ([*_say_launches(one), *one.text.splitlines()] for one in (before, after))
    names = Path(before.file).name, Path(after.file).name
    return "\n".join(difflib.unified_diff(first, second, *names, lineterm="", n=2))


def _say_launches(code: SourceText) -> list[str]:
    return [
        f"// {one.entry}: grid {one.grid}, block {one.block}, shared memory {one.smem}"
        for one in code.launches
    ]


# ----------------------------------------------------------------------------------------- reading


def read_branch(
    asked: AskedBranch,
    name: str,
    base: Rung,
    problem: Problem,
    known: Mapping[str, Method],
    judged: Sequence[str] = (),
) -> BranchSource:
    """A branch that somebody asks for, its files read. ``known`` are methods that it may claim, and
    ``judged`` those of earlier rounds, which it still has where their guards stand in it.

    Raises LabError: a file cannot be used, a method is not known, or a guard or another source is
    that of no method that it claims, or says the same with the method and without it.
    """
    code = _read_code(asked.source, base, problem, asked.launch)
    described = tuple(_describe(*one, known) for one in asked.describe.items())
    named = {**known, **{one.id: one for one in described}}
    methods = tuple(dict.fromkeys(asked.methods))
    for one in methods:
        if one not in named:
            near = difflib.get_close_matches(one, named, 3, 0.4) or list(named)[:3]
            raise LabError(
                f"The catalogue has no method {one!r}.",
                f"it has {', '.join(near)} and {how_many(len(named) - len(near), 'other')}",
                f"--describe '{one}=more LDG' says by what the machine code shows it, or "
                "'...=blocks > blocks_without'",
            )
    for one in (*asked.without, *asked.describe):
        if one not in methods:
            raise LabError(
                f"{one} is not claimed by {asked.source}.",
                f"it claims {', '.join(methods) or 'none'}",
                f"--method {one} beside it, or neither",
            )
    guards = {one: found for one in (*methods, *judged) if (found := _guards(code, one))}
    idle = [one for one, macros in guards.items() if not code.asks_for(macros)]
    for one in idle:
        if one in methods:
            macro = guards[one][0]
            raise LabError(
                f"The guard of {one} changes nothing.",
                f"{asked.source} says the same with {macro} 1 and 0",
                f"#if {macro} around what the method adds, and #else with what stood there",
            )
        del guards[one]
    for one in asked.without:
        if one in guards:
            raise LabError(
                f"{asked.source} has a guard of {one}, and another source without it is given.",
                f"{guards[one][0]} stands in it",
                "one of the two",
            )
    carried = tuple(one for one in judged if one in guards and one not in methods)
    made = BranchSource(name, code, methods, carried, guards, described=described)
    without = {}
    for one, text in asked.without.items():
        launch = asked.launch if not text.endswith(".toml") else ""
        without[one] = _read_code(text, base, problem, launch)
        if without[one].words == code.words:
            why = f"{text} says what {asked.source} says"
            raise LabError(f"The source without {one} changes nothing.", why, "one without it")
    return dataclasses.replace(made, without=without)


def _read_code(text: str, base: Rung, problem: Problem, launch: str = "") -> SourceText:
    """A source by its path, or by that of a launch file that names it."""
    path, told = Path(text).expanduser(), Path(launch).expanduser() if launch else None
    if path.suffix == ".toml":
        told, named = path, launch_file(path).get("source")
        if named is None:
            raise LabError(f"{path} names no source.", "it needs source", "the .cu, and --launch")
        path = path.parent / str(named)
    return SourceText.read(path, base, told, problem)


def _describe(name: str, said: str, known: Mapping[str, Method]) -> Method:
    """A method that the catalogue lacks, by what shows it: patterns of machine code, between
    semicolons, or an expression over numbers of the code and the launch."""
    if name in known and known[name].idea == said:  # as with a branch of before
        return known[name]
    if name in known:
        why = f"{known[name].title}: {known[name].idea}"
        raise LabError(f"{name} needs no description.", why, "the same without --describe")
    axis = name.partition(".")[0]
    fields: dict[str, Any] = {"signature": [one.strip() for one in said.split(";")]}
    try:
        if (names := names_in(said)) and names <= proof_names():
            fields = {"proof": said, "proof_when": said}
    except ExpressionError:
        pass  # it is a signature
    told = {"id": name, "axis": axis, "title": name, "idea": said, "priority": 1, "trigger": "0"}
    try:
        made = Method.model_validate({**told, **fields})
        patterns = made.patterns
    except (ValidationError, ValueError) as error:
        faults = error.errors() if isinstance(error, ValidationError) else []
        why = "; ".join(f"{'.'.join(map(str, x['loc']))}: {x['msg']}" for x in faults)
        raise LabError(
            f"The method {name!r} cannot be described as {said!r}.",
            why or str(error),
            "an id as latency.prefetch and a signature as 'more LDG; !BAR', or a proof as "
            "'registers_per_thread < registers_per_thread_without'",
        ) from error
    if patterns and all(one.kind == "none" for one in patterns):
        why = "an empty kernel holds it"
        raise LabError(f"The signature of {name} proves nothing.", why, "name what must be there")
    return made


def _guards(code: SourceText, method: str) -> tuple[str, ...]:
    """The macros of a source, or of its launches, that guard a method."""
    names = {method.replace(".", "_").lower(), method.partition(".")[2].lower()}
    return tuple(one for one in code.macros if one[len("METHOD_") :].lower() in names)


_DIRECTIVE = re.compile(r"#(if|ifdef|ifndef|elif|else|endif)\b ?(.*)")


def switched_text(text: str, values: Mapping[str, int]) -> str:
    """What a source says with some guards at a value, the others at 1: conditions that only guards
    decide are decided, and others stay."""
    kept: list[str] = []
    # of each open condition: whether its part is kept, whether one was, whether it is decided
    stack: list[tuple[bool, bool, bool]] = []

    def decide(word: str, condition: str) -> bool | None:
        if word in ("ifdef", "ifndef"):
            condition = f"{'!' * (word == 'ifndef')}defined({condition.strip()})"
        plain = re.sub(r"defined ?\(? ?(METHOD_\w+) ?\)?", r"\1", condition)
        plain = _MACRO.sub(lambda one: str(values.get(one[0], 1)), plain)
        if plain == condition or not re.fullmatch(r"[\d!&|()<>= ]+", plain):
            return None
        plain = plain.replace("&&", " and ").replace("||", " or ")
        try:
            return bool(evaluate_expression(re.sub(r"!(?!=)", " not ", plain).strip(), {}))
        except LabError:
            return None

    for line in normalise_source(text).split("\n"):
        found = _DIRECTIVE.match(line)
        word = found[1] if found else ""
        if found and word in ("if", "ifdef", "ifndef"):
            holds = decide(word, found[2])
            stack.append((holds is not False, holds is True, holds is not None))
            if holds is not None:
                continue
        elif found and stack:
            _, done, is_decided = stack[-1]
            if is_decided:
                holds = decide(word, found[2]) if word == "elif" else True
                stack[-1] = (not done and holds is not False, done or holds is True, True)
                if word == "endif":
                    stack.pop()
                continue
            if word == "endif":
                stack.pop()
        if all(one[0] for one in stack):
            kept.append(_MACRO.sub(lambda one: str(values.get(one[0], 1)), line))
    return "\n".join(kept)


def check_fits(rung: Rung, problem: Problem, limits: Limits, knobs: Mapping[str, int]) -> None:
    """Refuse source that does not compile, lacks a kernel of its launches, takes other arguments
    than these pass, or cannot be launched.

    Raises LabError.
    """
    launches = rung.launches(problem, limits, knobs)
    cubin = compile_rung(rung, problem, limits, knobs)
    for one in launches:
        cubin.resources_of(one.entry)
        try:
            fitted_launch(rung, one, cubin)
        except LabError as error:
            raise LabError(
                f"{rung.source.name} changes the signature of {one.entry}.",
                error.clause,
                "the parameters that the loop's kernel has; other ones by --launch FILE.toml, "
                "whose launches name their args",
            ) from error
        refuse_launch(cubin, one, limits)
