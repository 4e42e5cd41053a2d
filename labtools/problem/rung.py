"""A rung of the ladder: one kernel, its knobs, its launch and what it is for."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import LabError
from .paths import kernels_dir
from .workload import Workload, element_dtype

if TYPE_CHECKING:
    from .quantise import Scheme

PAGE_TABLE = "page_table"
INPUT_BUFFERS = ("q", "k", "v", "seq_lens", PAGE_TABLE)
"""The page table is there for paged workloads only."""
OUTPUT_BUFFER = "out"


@dataclass(frozen=True)
class Knob:
    """A compile-time choice; ``unroll`` becomes ``-DUNROLL=<value>``.

    Args:
        name: lower-case name.
        choices: the values it may take.
        default: one of them.
        doc: what it changes, one line.
        compiled: False for a knob that the launch alone reads, such as a number of blocks: it is
            no definition, so all its values share one machine code.
    """

    name: str
    choices: tuple[int, ...]
    default: int
    doc: str
    compiled: bool = True

    def __post_init__(self) -> None:
        if self.default not in self.choices:
            raise ValueError(f"knob {self.name}: default {self.default} is not a choice")


@dataclass(frozen=True)
class Workspace:
    """A scratch buffer that a launch needs.

    Args:
        name: what launches call it.
        shape: of the array.
        dtype: of its elements.
        in_call: False allocates it once, outside the timed region. True allocates it with
            ``cudaMalloc`` before the first launch of every timed call and frees it with
            ``cudaFree`` after the last, so that both are timed.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    in_call: bool = False

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return int(np.prod(self.shape)) * element_dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Args:
        entry: name of the ``extern "C"`` kernel.
        grid: blocks in x, y, z.
        block: threads in x, y, z.
        smem_bytes: dynamic shared memory.
        args: in the kernel's order: the name of a buffer (``q``, ``k``, ``v``, ``seq_lens``,
            ``page_table`` of a paged workload, ``out`` or a workspace) or a numpy scalar such as
            ``np.int32(4096)``.
        workspace: scratch buffers, shared by name between the launches of one rung.
        prepare: run once for each set of buffers, before checking and timing and outside the
            timed region, as a cache is quantised when it is written and not when it is read. The
            workspaces that it names keep what it wrote. Such launches stand before all others.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    smem_bytes: int = 0
    args: tuple[Any, ...] = ()
    workspace: tuple[Workspace, ...] = ()
    prepare: bool = False

    def __post_init__(self) -> None:
        for name in ("grid", "block"):
            dims = tuple(int(n) for n in getattr(self, name))
            if not 1 <= len(dims) <= 3 or min(dims) < 1:
                raise LabError(
                    f"The launch of {self.entry} has {name} {dims}.",
                    "a launch needs one to three sizes of at least 1",
                    "correct the launch function",
                )
            object.__setattr__(self, name, (*dims, 1, 1)[:3])
        known = {*INPUT_BUFFERS, OUTPUT_BUFFER, *(w.name for w in self.workspace)}
        for arg in self.args:
            if isinstance(arg, str):
                if arg not in known:
                    raise LabError(
                        f"The launch of {self.entry} names a buffer {arg!r}.",
                        f"the buffers are {sorted(known)}",
                        "correct the launch function",
                    )
            elif not isinstance(arg, np.generic):
                raise LabError(
                    f"The launch of {self.entry} passes {arg!r} of type {type(arg).__name__}.",
                    "a scalar needs its width, for example np.int32(4) or np.float32(0.5)",
                    "correct the launch function",
                )

    @property
    def num_blocks(self) -> int:
        """Blocks of the grid."""
        return int(np.prod(self.grid))

    @property
    def num_threads(self) -> int:
        """Threads of one block."""
        return int(np.prod(self.block))


def timed_launches(launches: Sequence[Launch]) -> list[Launch]:
    """The launches that belong to every call: all but the preparation."""
    return [launch for launch in launches if not launch.prepare]


LaunchFunction = Callable[[Workload, Mapping[str, int]], list[Launch]]


def kernel_supports(
    head_dims: Sequence[int] = (64, 128),
    dtypes: Sequence[str] = ("float16",),
    layouts: Sequence[str] = ("contiguous",),
    groups: Sequence[int] | None = None,
) -> Callable[[Workload], str | None]:
    """A ``supports`` function for a kernel that is written for certain workloads only.

    Args:
        head_dims: the head dimensions D that it takes.
        dtypes: the element types that it takes.
        layouts: the layouts of K and V that it takes.
        groups: the query heads a KV head (Hq / Hkv) that it takes; None takes any.
    """

    def supports(workload: Workload) -> str | None:
        if workload.head_dim not in head_dims:
            return f"head_dim is {workload.head_dim}; this kernel is written for {list(head_dims)}"
        if workload.dtype not in dtypes:
            return f"its elements are {workload.dtype}; this kernel is written for {list(dtypes)}"
        if workload.layout not in layouts:
            return f"its cache is {workload.layout}; this kernel is written for {list(layouts)}"
        if groups is not None and workload.group_size not in groups:
            return (
                f"{workload.group_size} query heads share a KV head; this kernel is written for "
                f"{list(groups)}"
            )
        return None

    return supports


def head_dims(*choices: int) -> Callable[[Workload], str | None]:
    """A ``supports`` function for fp16 kernels over a contiguous cache, for certain dimensions."""
    return kernel_supports(choices)


def _supports_every_shape(workload: Workload) -> str | None:
    """What a rung supports that says nothing: other elements or pages need other code."""
    return kernel_supports((workload.head_dim,))(workload)


@dataclass(frozen=True)
class Rung:
    """One kernel of the guide, or of a reader.

    Args:
        id: the file name without its ending, for example ``r03_one_warp``.
        title: a few words.
        source: the ``.cu`` file.
        idea: what this rung changes from its parent.
        limiter: what it attacks.
        cost: what it gives up.
        launch: pure function of a workload and resolved knobs.
        knobs: compile-time choices.
        parent: id of the rung it changes, or None.
        parent_knobs: knobs at which the parent is compared.
        supports: returns why a workload cannot run, or None. A rung that gives none takes every
            shape, but fp16 and a contiguous cache only.
        tolerance: largest relative error of one (sequence, head) against the oracle, for a kernel
            that rounds more than its output; None takes `TOLERANCE` of the output's type.
        kv_scheme: how the rung stores K and V, from workload and resolved knobs; its output is
            held against the oracle of the inputs as they are after that. None: as they are.
        min_arch: the oldest architecture that has what the kernel needs.
        defines_extra: more preprocessor definitions, from the workload and the resolved knobs.
        text: replaces the content of ``source`` (an edited cell), or None.
        edited: True when source or launch is not the shipped one.
    """

    id: str
    title: str
    source: Path
    idea: str
    limiter: str
    cost: str
    launch: LaunchFunction
    knobs: tuple[Knob, ...] = ()
    parent: str | None = None
    parent_knobs: Mapping[str, int] = field(default_factory=dict)
    supports: Callable[[Workload], str | None] = _supports_every_shape
    text: str | None = None
    edited: bool = False
    tolerance: float | None = None
    kv_scheme: Callable[[Workload, Mapping[str, int]], Scheme] | None = None
    min_arch: str = "sm_75"
    defines_extra: Callable[[Workload, Mapping[str, int]], dict[str, str]] | None = None

    def __post_init__(self) -> None:
        if self.tolerance is not None and not 0 < self.tolerance < 1:
            raise LabError(
                f"{self.id} states a tolerance of {self.tolerance!r}.",
                "it is a relative error, above 0 and below 1",
                "state the bound, or leave it out",
            )

    def runs_on(self, arch: str) -> bool:
        """Whether an architecture, such as ``sm_75``, has what the kernel needs."""
        return int(arch.removeprefix("sm_")) >= int(self.min_arch.removeprefix("sm_"))

    @property
    def source_text(self) -> str:
        """The CUDA C++ source.

        Raises:
            LabError: the file is not text, or is gone.
        """
        if self.text is not None:
            return self.text
        try:
            return self.source.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise LabError(
                f"The source of {self.id} cannot be read.",
                f"{self.source}: {error}",
                "a source is text in UTF-8; every other rung is unaffected",
            ) from error

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        """Where ``#include "..."`` is looked up: the rung's own folder, then the shared one."""
        return (self.source.resolve().parent, kernels_dir() / "include")

    def resolve_knobs(self, chosen: Mapping[str, int] | None = None) -> dict[str, int]:
        """Every knob with its value: the chosen one or the default.

        Raises:
            LabError: an unknown knob or a value that is no choice.
        """
        chosen = dict(chosen or {})
        values = {}
        for knob in self.knobs:
            value = chosen.pop(knob.name, knob.default)
            if value not in knob.choices:
                raise LabError(
                    f"{self.id} cannot run with {knob.name}={value}.",
                    f"{knob.name} may be {list(knob.choices)}: {knob.doc}",
                    "choose one of these values",
                )
            values[knob.name] = int(value)
        if chosen:
            raise LabError(
                f"{self.id} has no knob {sorted(chosen)}.",
                f"its knobs are {[knob.name for knob in self.knobs] or 'none'}",
                "leave the knob out",
            )
        return values

    def defines(self, workload: Workload, knobs: Mapping[str, int] | None = None) -> dict[str, str]:
        """Preprocessor definitions: ``HEAD_DIM`` and every compiled knob in upper case.

        ``BF16=1`` for bfloat16 and ``PAGE_SIZE`` for a paged cache come on top, and what
        `defines_extra` gives.

        Raises:
            LabError: `defines_extra` gives a name that is taken.
        """
        values = self.resolve_knobs(knobs)
        defines = {
            "HEAD_DIM": str(workload.head_dim),
            **{one.name.upper(): str(values[one.name]) for one in self.knobs if one.compiled},
        }
        if workload.dtype == "bfloat16":
            defines["BF16"] = "1"
        if workload.is_paged:
            defines["PAGE_SIZE"] = str(workload.page_size)
        extra = self.defines_extra(workload, values) if self.defines_extra is not None else {}
        if taken := sorted(set(extra) & set(defines)):
            raise LabError(
                f"{self.id} defines {', '.join(taken)} twice.",
                "knobs, HEAD_DIM, BF16 and PAGE_SIZE are defined already",
                "give the definition another name",
            )
        return defines | {name: str(value) for name, value in extra.items()}

    def scheme(self, workload: Workload, knobs: Mapping[str, int] | None = None) -> Scheme | None:
        """How K and V are stored for a workload; None where they stay as they are.

        Raises:
            LabError: one scale a tensor, which no part of a cache can be checked by itself with.
        """
        if self.kv_scheme is None:
            return None
        scheme = self.kv_scheme(workload, self.resolve_knobs(knobs))
        if "tensor" in (scheme.k.axis, scheme.v.axis):
            raise LabError(
                f"{self.id} stores K or V with one scale for the whole tensor ({scheme.name}).",
                "a rung is checked one sequence and head at a time, and a cache that grows token "
                "by token has no such scale",
                "a scheme with a scale a row, a group or a channel",
            )
        return scheme

    def launches(self, workload: Workload, knobs: Mapping[str, int] | None = None) -> list[Launch]:
        """`launch` with every knob resolved and the result checked.

        Raises:
            LabError: the rung does not support the workload, or launches nothing.
        """
        reason = self.supports(workload)
        if reason:
            raise LabError(f"{self.id} cannot run {workload}.", reason, "choose another workload")
        launches = self.launch(workload, self.resolve_knobs(knobs))
        if not isinstance(launches, (list, tuple)) or not all(
            isinstance(one, Launch) for one in launches
        ):
            raise LabError(
                f"The launch function of {self.id} returned {launches!r}.",
                "it must return a list of Launch(...)",
                "correct the launch function",
            )
        if not launches:
            raise LabError(
                f"{self.id} launches nothing for {workload}.",
                "its launch function returned an empty list",
                "return at least one Launch",
            )
        timed = timed_launches(launches)
        if not timed or list(launches[-len(timed) :]) != timed:
            raise LabError(
                f"{self.id} prepares too late, or does nothing else.",
                "launches with prepare=True stand before the others, and there must be others",
                "correct the launch function",
            )
        _check_buffers(self.id, workload, launches)
        return list(launches)

    def knob_combinations(self) -> list[dict[str, int]]:
        """Every combination of the values of compiled knobs; the others have their defaults."""
        names = [knob.name for knob in self.knobs]
        products = itertools.product(
            *(knob.choices if knob.compiled else (knob.default,) for knob in self.knobs)
        )
        return [dict(zip(names, values, strict=True)) for values in products]

    def with_source(self, text: str) -> Rung:
        """A copy that compiles ``text`` instead of the file."""
        edited = self.edited or text.strip() != self.source.read_text("utf-8").strip()
        return dataclasses.replace(self, text=text, edited=edited)

    def with_launch(self, launch: LaunchFunction) -> Rung:
        """A copy that launches with ``launch``."""
        edited = self.edited or not _same_text(launch, self.launch)
        return dataclasses.replace(self, launch=launch, edited=edited)


def _check_buffers(rung: str, workload: Workload, launches: Sequence[Launch]) -> None:
    """Refuse a page table where there are no pages, and what cannot be allocated in a call."""
    if not workload.is_paged and any(PAGE_TABLE in _named(one) for one in launches):
        raise LabError(
            f"{rung} asks for a page table on {workload}.",
            "the cache of this workload is contiguous",
            "a paged workload, such as 8,32,8,4096,128/paged16; or correct the launch function",
        )
    prepared = {name for one in launches if one.prepare for name in _named(one)}
    for one in launches:
        for space in one.workspace:
            if space.in_call and space.name in prepared:
                raise LabError(
                    f"{rung} allocates {space.name} in every call and fills it before all calls.",
                    "what a launch with prepare=True writes must last",
                    "leave out in_call=True, or the preparation",
                )


def _named(launch: Launch) -> list[str]:
    return [arg for arg in launch.args if isinstance(arg, str)]


def _same_text(first: Callable[..., Any], second: Callable[..., Any]) -> bool:
    try:
        return inspect.getsource(first).strip() == inspect.getsource(second).strip()
    except (OSError, TypeError):
        return False


def list_rungs(family: str = "decode") -> list[Rung]:
    """The shipped rungs of one family, in ladder order."""
    return [load_rung(path) for path in sorted((kernels_dir() / family).glob("*.py"))]


def list_studies() -> list[Rung]:
    """The shipped study kernels: more kernels to be forecast, which are no steps of the ladder."""
    return list_rungs("studies")


def load_rung(name: str | Path) -> Rung:
    """Load a rung by id (``r03_one_warp``), by number (``r03``) or by the path of its ``.py``.

    Study kernels are found in the same way: ``s01_warp_rows``, ``s01``.

    Raises:
        LabError: no such rung, or the file does not define ``RUNG``.
    """
    path = _find_rung(name)
    module = load_by_path(path)
    rung = getattr(module, "RUNG", None)
    if not isinstance(rung, Rung):
        raise LabError(
            f"{path} is not a rung.",
            "it does not define RUNG = Rung(...)",
            "compare it with kernels/decode/r03_one_warp.py",
        )
    if not rung.source.is_file():
        raise LabError(
            f"The rung {rung.id} has no source.",
            f"{rung.source} does not exist",
            "a rung is two files: NAME.py and NAME.cu beside it",
        )
    return rung


def _find_rung(name: str | Path) -> Path:
    text = str(name)
    if text.endswith((".py", ".cu")) or "/" in text:
        path = Path(text).expanduser()
        path = path if path.suffix == ".py" else path.with_suffix(".py")
        if path.is_file():
            return path.resolve()
        raise LabError(
            f"There is no rung at {text}.",
            f"{path} is not a file",
            "give the path of the rung's .py file, or the id of a shipped rung",
        )
    shipped = sorted(kernels_dir().glob("*/*.py"))
    shipped = [path for path in shipped if path.parent.name not in ("baselines",)]
    found = [path for path in shipped if path.stem == text or path.stem.split("_")[0] == text]
    if len(found) == 1:
        return found[0]
    raise LabError(
        f"There is no rung {text!r}.",
        f"the shipped rungs are {', '.join(path.stem for path in shipped)}",
        "name one of them, its number (r03), or the path of your own rung's .py file",
    )


def load_by_path(path: Path) -> ModuleType:
    """Import a Python file by path, afresh, under a name that clashes with nothing.

    Raises:
        LabError: the file does not import.
    """
    name = f"_labtools_loaded_{abs(hash(str(path))):x}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # so that inspect and pickle find the module's functions
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, LabError):
            raise
        raise LabError(
            f"{path} could not be loaded.",
            f"{type(error).__name__}: {error}",
            "every other rung is unaffected",
        ) from error
    return module
