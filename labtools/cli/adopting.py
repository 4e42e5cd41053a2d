"""``labtools adopt``: a stranger's kernel, as far as its parameters tell how it is launched."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labtools.predict.launched import constant_launch, matching, signatures
from labtools.problem import LabError
from labtools.problem.launched import KERNEL_FILES, OF_TRITON, WITHOUT_SOURCE
from labtools.problem.text import given_path, is_file, read_given
from labtools.record.whole import write_whole
from labtools.toolchain.triton_code import triton_parameters

from .outcome import Answer, typed

if TYPE_CHECKING:
    from rich.console import Console

    from labtools.toolchain.progress import Progress

_TYPES = {
    **{"float": "f32", "double": "f64", "half": "f16", "__half": "f16", "__nv_bfloat16": "bf16"},
    **{"int": "i32", "unsigned": "u32", "unsigned int": "u32", "uint": "u32", "char": "i8"},
    **{"signed char": "i8", "unsigned char": "u8", "short": "i16", "unsigned short": "u16"},
    **{"long long": "i64", "long": "i64", "size_t": "u64", "unsigned long long": "u64"},
    **{
        f"{sign}int{bits}_t": f"{sign or 'i'}{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    **{"bool": "bool", "nv_bfloat16": "bf16", "__nv_fp8_e4m3": "f8e4m3", "__nv_fp8_e5m2": "f8e5m2"},
}
_SIZES = {8: "f32[?]", 4: "i32:?", 2: "f16:?", 1: "i8:?"}


@dataclass(frozen=True)
class Adopted(Answer):
    """Where the launch of a kernel was written down."""

    kernel: str
    wrote: str

    def to_dict(self) -> dict[str, Any]:
        """What the JSON holds."""
        return vars(self)

    def show(self, console: Console) -> None:
        """What is still to be done."""
        console.print(f"Wrote {self.wrote}: put a number in the place of each ? in it, then")
        console.print(f"  labtools forecast {self.wrote}")


def adopt_kernel(name: str, entry: str | None, progress: Progress) -> Adopted:
    """Write ``NAME.launch.toml`` beside a kernel's file. Raises LabError: it is there already, or
    the kernel is not."""
    with typed():
        path = given_path(name)
        kinds = (*KERNEL_FILES[:-1], OF_TRITON)
        if path.suffix not in kinds or not is_file(path):
            why = f"a kernel's file is one of {', '.join(kinds)}"
            raise LabError(f"{name} is no kernel's file.", why, "another file")
        wrote = path.with_suffix(".launch.toml")
        if wrote.exists():
            why = "what somebody wrote there would be lost"
            raise LabError(f"{wrote} is there already.", why, "the same when it is moved away")
        known = signatures(path)
        if not known:
            why = "no function in it is marked __global__, or @triton.jit"
            raise LabError(f"{path.name} has no kernel.", why, "a file with one")
        if entry and entry.count("<") != entry.count(">"):
            why = "of a template it is written as 'softmax<float, 4>'"
            raise LabError(f"{entry!r} is no name of a kernel.", why, "its whole name")
        found = matching(known, path.name, entry) if entry else list(known)
        if len(found) != 1:
            why = f"its kernels are {', '.join(known) or 'none'}"
            raise LabError(f"Which kernel of {path.name}?", why, "--entry NAME says it")
    scope, _, _ = found[0].partition("<")[0].rpartition("::")
    kernel = re.sub("<.*", "<?>", found[0])
    if entry:
        kernel = entry if "::" in entry or not scope else f"{scope}::{entry}"
    write_whole(wrote, _launch_of(path, kernel, found[0], known[found[0]]).encode())
    return Adopted(kernel, str(wrote))


def _launch_of(path: Path, kernel: str, known: str, signature: str) -> str:
    if path.suffix == OF_TRITON:
        return _launch_of_triton(path, kernel)
    is_source = path.suffix not in WITHOUT_SOURCE
    text = read_given(path) if is_source else ""
    smem = "?" if re.search(r"\bextern\b[^;]*\b__shared__\b", text) else "0"
    grid = block = "?"
    if is_source and (read := constant_launch(path, known.partition("<")[0])) is not None:
        grid, block = read.grid or "?", read.block or "?"
        smem = read.smem if read.smem not in ("", "0") else smem
        kernel = read.entry if "?" in kernel and "<" in read.entry else kernel
    args = _of_source(signature, _types_of(known, kernel)) if is_source else _of_sizes(signature)
    lines = [
        f"# How {path.name} is launched. Put a number, a size of [args] or a sum of them in the",
        "# place of each ?, a type in the place of each TYPE, and :out behind what is written. The",
        "# members of a structure stand in it, struct(x,out,i32:4096); a number is so many bytes.",
        f'source = "{path.name}"',
        "",
        "[args]",
        *(f'{name} = "{said}"' for name, said in args),
        "",
        "[[launch]]",
        f'entry = "{kernel}"',
        f'grid = "{grid}"',
        f'block = "{block}"',
        f'smem = "{smem}"',
    ]
    return "\n".join(lines) + "\n"


def _launch_of_triton(path: Path, kernel: str) -> str:
    told = triton_parameters(read_given(path), kernel)
    of = {"in": "TYPE[?]", "out": "TYPE[?]:out", "number": "i32:?"}
    args = {name: of[kind] for name, kind in told.items() if kind != "constant"}
    args |= {name: "f32:?" for name in args if re.search("scale|eps|alpha|beta", name)}
    lines = [
        f"# How {path.name} is launched. Put a number, a size of [args] or a sum of them in the",
        "# place of each ?, and a type in the place of each TYPE. [defines] are the kernel's",
        "# constants and options of Triton's; an argument may stand there too, as None.",
        f'source = "{path.name}"',
        "",
        "[args]",
        *(f'{name} = "{said}"' for name, said in args.items()),
        "",
        "[defines]",
        *(f'{name} = "?"' for name, kind in told.items() if kind == "constant"),
        "num_warps = 4",
        "",
        "[[launch]]",
        f'entry = "{kernel}"',
        'grid = "?"',
    ]
    return "\n".join(lines) + "\n"


def _of_sizes(signature: str) -> list[tuple[str, str]]:
    sizes = [int(size) for size in re.findall(r"\d+", signature.rpartition(" of ")[2])]
    told = (_SIZES.get(size, f"struct({size})") for size in sizes)
    return [(f"p{place}", one) for place, one in enumerate(told)]


_COMMA = r",(?![^<]*>)"


def _types_of(known: str, kernel: str) -> dict[str, str]:
    """The types that a template's parameters stand for: ``known`` has their names, ``kernel`` what
    was asked for."""
    told = (re.split(_COMMA, one.partition("<")[2].rpartition(">")[0]) for one in (known, kernel))
    pairs = ((name.split(), of.strip()) for name, of in zip_longest(*told, fillvalue="?"))
    return {name[1]: of for name, of in pairs if len(name) > 1 and name[0] in ("typename", "class")}


def _of_source(signature: str, types: Mapping[str, str]) -> list[tuple[str, str]]:
    inside = signature[signature.index("(") + 1 : signature.rindex(")")]
    found = []
    single = sum("*" in one and "const" not in one.split() for one in inside.split(",")) == 1
    for place, one in enumerate(filter(None, re.split(_COMMA, inside))):
        words = re.sub(
            r"\b(?:__restrict__|__restrict|restrict|volatile|__grid_constant__)\b", "", one
        )
        match = re.fullmatch(r"\s*(.*?)\s*(\w+)?\s*(?:\[\d*\])?(?:=.*)?\s*", words)
        kind, name = (match[1], match[2]) if match else (words, None)
        constant, pointer = re.search(r"\bconst\b", kind) is not None, "*" in kind
        plain = re.sub(r"\bconst\b|\*|&", "", kind).strip()
        plain = re.sub(r"^(?:std|cuda)::(?:std::)?", "", re.sub(r"\s+", " ", plain))
        by_value = plain not in (*_TYPES, *types) and re.fullmatch(r"(?:\w+::)*[A-Z]\w*", plain)
        said = _TYPES.get(types.get(plain, plain), "TYPE")
        written = "" if constant or not pointer else ":out" if single else ":out?"
        of_value = "struct(?)" if by_value else f"{said}:?"
        found.append((name or f"p{place}", f"{said}[?]{written}" if pointer else of_value))
    return found
