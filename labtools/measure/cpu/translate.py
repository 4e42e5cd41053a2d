"""PTX as C++ on the CPU runner: a statement an instruction, at the line that its ``.loc`` names.

A register is a local variable, a label a label, a shared variable a thread-local one as in the C++
of a kernel. So barriers, races, bounds and alignment are watched in the same way, and told with the
same lines. What is more than one expression is a function of ``native/ptx.h``.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .ptx_text import (
    Function,
    NotTranslated,
    PtxModule,
    Statement,
    Variable,
    bits_of,
    operands_of_ptx,
    read_variable,
    shorten_ptx,
)


@dataclass(frozen=True)
class TranslatedKernel:
    """One kernel of PTX: its C++ function, and kinds and bytes of its parameters."""

    function: str
    parameters: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Translated:
    """C++ for the runner, and the kernels in it by symbol."""

    text: str
    kernels: Mapping[str, TranslatedKernel]


def translate_ptx(
    text: str,
    name: str,
    own_files: Callable[[str], str | None],
    lines: Mapping[int, int] = MappingProxyType({}),
    wanted: Iterable[str] = (),
) -> Translated:
    """C++ that does on the CPU runner what PTX does on a GPU.

    Of its kernels those are taken whose symbols are ``wanted``, and all where none is.

    ``own_files`` says of a file that ``.file`` names what messages call it, or None where it is
    none of the reader's. Without any of his the lines are those of the PTX, called ``name``.
    ``lines`` are those of the source ``name`` that are told as others.

    Raises NotTranslated: an instruction, or a form of one, that is not here.
    """
    module = PtxModule(text, name, own_files, lines)
    names = {one.name: f"lab_f{i}" for i, one in enumerate(module.functions.values())}
    known, declared = {}, {}
    for i, one in enumerate(module.variables):
        known[one.name] = _Place(f"lab_v{i}", one.space)
        declared[f"lab_v{i}"] = _declaration(one, f"lab_v{i}", known)
    bodies: dict[str, str] = {}
    left = list(wanted) or [one.name for one in module.functions.values() if one.is_entry]
    while left:
        if (name := left.pop()) not in bodies and name in module.functions:
            body = _Body(module.functions[name], names, known)
            bodies[name] = body.text()
            left += body.called
    named = set(re.findall(r"\blab_v\d+\b", "\n".join(bodies.values())))
    for plain in reversed(declared):  # what nothing names is left out; a value may name another
        named |= set(re.findall(r"\blab_v\d+\b", declared[plain])) if plain in named else set()
    variables = [said for plain, said in declared.items() if plain in named]
    taken = [one for name, one in module.functions.items() if name in bodies]
    others = [one for one in taken if not one.is_entry]
    heads = [f"static void {names[one.name]}({_signature(one)});" for one in others]
    kernels = {
        one.name: TranslatedKernel(
            names[one.name], tuple((_kind(p), p.bytes) for p in one.parameters)
        )
        for one in taken
        if one.is_entry
    }
    return Translated(
        "\n".join(['#include "ptx.h"', *variables, *heads, *bodies.values(), ""]), kernels
    )


@dataclass(frozen=True)
class _Place:
    name: str  # in C++
    space: str


def _kind(parameter: Variable) -> str:
    """As `lab_parameter` has it; what may be a pointer or a number is anything of its size."""
    if parameter.is_pointer:
        return "p"
    if parameter.type in ("f32", "f64"):
        return "f"
    return "s" if parameter.is_array or parameter.type[1:] in ("64", "16", "8") else "u"


def _plain(name: str) -> str:
    return "r_" + name.replace("%", "")


def _signature(one: Function) -> str:
    return ", ".join(f"unsigned char* {_plain(p.name)}" for p in (*one.returned, *one.parameters))


def _declaration(one: Variable, plain: str, known: Mapping[str, _Place]) -> str:
    given = f'__asm__("{one.name}") __attribute__((aligned({one.alignment})))'
    if one.space == "shared" and not one.count:
        return f'extern "C" thread_local unsigned char {plain}[] {given};'
    if one.space == "shared":
        return f"thread_local unsigned char {plain}[{one.bytes}] {given} __attribute__((used));"
    unsigned, values = f"uint{bits_of(one.type)}_t", []
    for value in filter(None, re.split(r"[\s,{}]+", one.value)):
        name = re.fullmatch(r"(?:generic\()?([\w$]+)\)?", value)
        if number := re.fullmatch(r"0[fFdD]([0-9a-fA-F]{8,16})", value):
            values.append(f"0x{number[1]}u")
        elif re.fullmatch(r"-?(?:\d+|0[xX][0-9a-fA-F]+)U?", value):
            values.append(f"{unsigned}({_number(value)})")
        elif name and name[1] in known:
            values.append(f"({unsigned}){known[name[1]].name}")
        else:
            raise NotTranslated(f"the initial value `{shorten_ptx(value)}`")
    filled = f" = {{{', '.join(values)}}}" if values else ""
    if one.space == "const" or one.name.startswith("$"):
        of = f"const {unsigned} {plain}[{one.count}]"  # has its name outside where that is said
        return f"extern {of} {given};\n{of}{filled or ' = {}'};"
    return f"{unsigned} {plain}[{one.count}] {given}{filled};"


def _number(text: str) -> str:
    text = text.rstrip("U")
    if re.fullmatch(r"-?0[0-7]+", text):
        text = str(int(text, 8))
    return text + ("ll" if text.startswith("-") else "ull")


# ---- types and tables ----

_FLOATS = {"f32": "float", "f64": "double"}
_SIXTEENS = {"f16": "Half", "bf16": "Bfloat", "f16x2": "Half", "bf16x2": "Bfloat"}


def _c_type(type_: str) -> str:
    signed = re.fullmatch(r"s(\d+)", type_)
    named = {**_FLOATS, "pred": "bool"}.get(type_)
    return named or (f"int{signed[1]}_t" if signed else f"uint{bits_of(type_)}_t")


_AXES = {"tid": "thread_index", "ntid": "block_dim", "ctaid": "block_index", "nctaid": "grid_dim"}
_AXES |= {"clusterid": "block_index", "nclusterid": "grid_dim"}  # a cluster is one block
_SPECIAL = {f"%{name}.{a}": f"lab_{of}().{a}" for name, of in _AXES.items() for a in "xyz"}
_SPECIAL |= {
    f"%cluster_{name}.{a}": n for name, n in (("ctaid", "0"), ("nctaid", "1")) for a in "xyz"
}
_SPECIAL |= dict.fromkeys(("%cluster_ctarank", "%is_explicit_cluster", "%smid", "%gridid"), "0")
_SPECIAL |= dict.fromkeys(("%cluster_nctarank", "%nsmid"), "1")
_SPECIAL |= dict.fromkeys(("%clock", "%clock64", "%globaltimer", "%globaltimer_lo"), "lab_clock()")
_SPECIAL |= dict.fromkeys(("%clock_hi", "%globaltimer_hi"), "0")
_SPECIAL |= dict.fromkeys(("%dynamic_smem_size", "%total_smem_size"), "lab_dynamic_bytes()")
_SPECIAL |= {"%laneid": "lab::ptx::lane()", "%warpid": "lab::ptx::warp()", "WARP_SZ": "32"}
_SPECIAL |= {
    "%nwarpid": "(lab::ptx::threads() + 31) / 32",
    "%lanemask_eq": "1u << lab::ptx::lane()",
}
_SPECIAL |= {"%lanemask_lt": "(1u << lab::ptx::lane()) - 1"}
_SPECIAL |= {"%lanemask_le": "(2u << lab::ptx::lane()) - 1"}
_SPECIAL |= {"%lanemask_gt": "~((2u << lab::ptx::lane()) - 1)"}
_SPECIAL |= {"%lanemask_ge": "~((1u << lab::ptx::lane()) - 1)"}

_OF_FLOATS = {
    **{"add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}"},
    **{"neg": "-{0}", "abs": "std::fabs({0})", "copysign": "std::copysign({1}, {0})"},
    **{"sqrt": "std::sqrt({0})", "rsqrt": "1 / std::sqrt({0})", "rcp": "1 / {0}"},
    **{"ex2": "std::exp2({0})", "lg2": "std::log2({0})", "tanh": "std::tanh({0})"},
    **{"sin": "std::sin({0})", "cos": "std::cos({0})"},
    **{"min": "lab::ptx::least({0}, {1})", "max": "lab::ptx::most({0}, {1})"},
    **dict.fromkeys(("fma", "mad"), "lab::ptx::fused({0}, {1}, {2})"),
}
_ROUNDED = ("rz", "towards_zero"), ("rm", "down"), ("rp", "up")
_FLOAT_MODS = {"rn", "rz", "rm", "rp", "ftz", "sat", "relu", "approx", "full", "NaN", "noftz"}
_OF_WHOLES = {
    **{"add": "{0} + {1}", "sub": "{0} - {1}", "div": "{0} / {1}", "rem": "{0} % {1}"},
    **{"and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}", "neg": "-{0}"},
    **{"abs": "({0} < 0 ? -{0} : {0})", "cnot": "({0} == 0)"},
    **{"min": "({1} < {0} ? {1} : {0})", "max": "({0} < {1} ? {1} : {0})"},
}
_OF_PREDICATES = {"not": "!{0}", "and": "{0} && {1}", "or": "{0} || {1}", "xor": "{0} != {1}"}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARED |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
_UNORDERED = {"equ": "!({0} < {1} || {0} > {1})", "neu": "!({0} == {1})", "ltu": "!({0} >= {1})"}
_UNORDERED |= {"leu": "!({0} > {1})", "gtu": "!({0} <= {1})", "geu": "!({0} < {1})"}
_UNORDERED |= {"num": "({0} == {0} && {1} == {1})", "nan": "({0} != {0} || {1} != {1})"}
_UNORDERED |= {"ne": "({0} < {1} || {0} > {1})"}
_TO_WHOLE = {"rni": "NEAREST", "rzi": "TOWARDS_ZERO", "rmi": "DOWN", "rpi": "UP"}
_ATOMICS = {"add": "ADD", "min": "MIN", "max": "MAX", "exch": "EXCHANGE", "cas": "CAS"}
_ATOMICS |= {"and": "AND", "or": "OR", "xor": "XOR", "inc": "INC", "dec": "DEC"}
_NUMBERS = {"u32": "UNSIGNED", "s32": "INT", "b32": "UNSIGNED", "f32": "FLOAT", "f64": "DOUBLE"}
_NUMBERS |= {"u64": "UNSIGNED_LONG", "s64": "LONG", "b64": "UNSIGNED_LONG", "b16": "SHORT"}
_ELEMENTS = {"f16": "Sixteen<lab::ptx::Half>", "bf16": "Sixteen<lab::ptx::Bfloat>", "tf32": "Tf32"}
_ELEMENTS |= {"s8": "Eight<int8_t>", "u8": "Eight<uint8_t>"}
_ELEMENTS |= {"e4m3": "Fp8<lab::ptx::E4m3>", "e5m2": "Fp8<lab::ptx::E5m2>"}

_WORDS = {"idx": "SHFL", "bfly": "SHFL_XOR", "up": "SHFL_UP", "down": "SHFL_DOWN"}
_WORDS |= {"wrap": "", "clamp": "c", "b32": "", "b64": "ll"}
_S = r"(?:\.(?P<s>global|shared|generic)(?:::\w+)?)?"
_MBARRIER = r"(?:\.(?:release|acquire|relaxed)(?:\.(?:cta|cluster))?)?"
_MATRICES = (
    r"\.sync\.aligned(?=.*\.m8n8\b)(?=.*\.x(?P<n>[124])\b)(?=(?:.*(?P<trans>\.trans\b))?)"
    r"(?:\.(?:m8n8|x[124]|trans))+"
)
_WMMA = r"\.sync\.aligned\.(?P<m>row|col)\.m16n16k16"
_PRODUCT = r"wmma\.mma\.sync\.aligned\.(?:row|col)\.(?:row|col)\.m16n16k16"
_RULES = [
    (re.compile(form), text)
    for form, text in (
        # How a form of an instruction is written: $0:u32 is an operand of a type, read or assigned
        # to, $0a and $0b are the parts of `a|b`, $1*s is where an address in the space s leads;
        # what names a part that is not there is left out. <t> is what the form holds of that name,
        # <T> the type of C++ and <b> the bits of t, <w:m> a word of C++ for m.
        (r"shl\.(?P<t>\w+)", "$0:<t> = lab::ptx::shifted_left<<T>>($1:<t>, $2:u32)"),
        (r"shr\.(?P<t>\w+)", "$0:<t> = lab::ptx::shifted_right<<T>>($1:<t>, $2:u32)"),
        (r"shf\.(?P<d>[lr])\.(?P<m>wrap|clamp)\.b32",
         "$0:b32 = __funnelshift_<d><w:m>($1:u32, $2:u32, $3:u32)"),
        (r"lop3\.b32", "$0:b32 = lab::ptx::lop3<$4:u32>($1:b32, $2:b32, $3:b32)"),
        (r"prmt\.b32", "$0:b32 = __byte_perm($1:b32, $2:b32, $3:b32)"),
        (r"bfe\.(?P<t>[us](?:32|64))", "$0:<t> = lab::ptx::field<<T>>($1:<t>, $2:u32, $3:u32)"),
        (r"bfi\.(?P<t>b32|b64)",
         "$0:<t> = lab::ptx::inserted<<T>>($1:<t>, $2:<t>, $3:u32, $4:u32)"),
        (r"bfind\.(?P<t>\w+)", "$0:u32 = lab::ptx::highest<<T>>($1:<t>)"),
        (r"bfind\.shiftamt\.(?P<t>\w+)",
         "const uint32_t t = lab::ptx::highest<<T>>($1:<t>); $0:u32 = t == ~0u ? t : <b> - 1 - t"),
        (r"popc\.(?P<t>b32|b64)", "$0:u32 = __popc<w:t>($1:<t>)"),
        (r"clz\.(?P<t>b32|b64)", "$0:u32 = __clz<w:t>($1:<t>)"),
        (r"brev\.(?P<t>b32|b64)", "$0:<t> = __brev<w:t>($1:<t>)"),
        (r"sad\.(?P<t>\w+)",
         "$0:<t> = ($1:<t> < $2:<t> ? $2:<t> - $1:<t> : $1:<t> - $2:<t>) + $3:<t>"),
        (r"mul24\.lo\.(?P<t>[us]32)", "$0:<t> = ($1:<t> << 8 >> 8) * ($2:<t> << 8 >> 8)"),
        (r"dp4a\.(?P<p>[us])32\.(?P<q>[us])32",
         "$0:u32 = uint32_t(lab::dot4<<p:8>, <q:8>>($1:b32, $2:b32)) + $3:u32"),
        (r"selp\.(?P<t>\w+)", "$0:<t> = $3:pred ? $1:<t> : $2:<t>"),
        (r"slct(?:\.ftz)?\.(?P<t>\w+)\.(?P<u>s32|f32)", "$0:<t> = $3:<u> >= 0 ? $1:<t> : $2:<t>"),
        (r"testp\.finite\.(?P<t>f32|f64)", "$0:pred = std::isfinite($1:<t>)"),
        (r"testp\.infinite\.(?P<t>f32|f64)", "$0:pred = std::isinf($1:<t>)"),
        (r"testp\.notanumber\.(?P<t>f32|f64)", "$0:pred = std::isnan($1:<t>)"),
        (r"testp\.normal\.(?P<t>f32|f64)", "$0:pred = std::isnormal($1:<t>)"),
        (r"(?:mapa|cvta(?:\.to)?)(?:\.(?:global|local|const|param|shared::cluster))?\.(?P<t>u32|u64)",
         "$0:<t> = $1:<t>"),
        (r"cvta\.to\.shared(?:::cta)?\.u64", "$0:u64 = uint64_t((char*)$1:u64 - sh)"),
        (r"cvta\.shared(?:::\w+)?\.u64", "$0:u64 = uint64_t(sh + $1:u32)"),
        (r"isspacep\.shared(?:::\w+)?", "$0:pred = lab_is_shared((const void*)$1:u64) != 0"),
        (r"isspacep\.global", "$0:pred = lab_is_shared((const void*)$1:u64) == 0"),
        (r"(?:membar|fence(?:\.\w+)?)\.cta", "lab_fence_block()"),
        (r"membar\.(?:gl|sys)|fence(?:\.(?:sc|acq_rel|acquire|release))?\.(?:gpu|sys|cluster)",
         "lab_fence()"),
        # Hints, and the order of engines that are none here.
        (r"wgmma\.(?:fence|commit_group|wait_group)\.sync\.aligned", ""),
        (r"(?:prefetchu?|griddepcontrol|setmaxnreg|discard|applypriority|fence\.proxy|pmevent"
         r"|fence\.mbarrier_init|cp\.async\.bulk\.(?:prefetch|commit_group|wait_group))\b.*", ""),
        (r"createpolicy\..*", "$0:b64 = 0"),
        (r"ret(?:\.uni)?|exit", "return"),
        (r"trap", 'lab_trap("trap")'),
        (r"brkpt", ""),
        (r"nanosleep\.u32", "lab_give_way()"),
        (r"bar\.warp\.sync", "lab_collective(LAB_SYNCWARP, $0:u32, 0, 0, 32)"),
        (r"bar(?:rier)?(?:\.cta)?\.sync(?:\.aligned)?",
         "lab::ptx::named_barrier($0:u32, $1:u32?, true)"),
        (r"bar(?:rier)?(?:\.cta)?\.arrive(?:\.aligned)?",
         "lab::ptx::named_barrier($0:u32, $1:u32?, false)"),
        (r"bar(?:rier)?(?:\.cta)?\.red\.popc(?:\.aligned)?\.u32",
         "$0:u32 = lab::ptx::reduced(LAB_BARRIER_COUNT, $1:u32, $2:pred)"),
        (r"bar(?:rier)?(?:\.cta)?\.red\.and(?:\.aligned)?\.pred",
         "$0:pred = lab::ptx::reduced(LAB_BARRIER_AND, $1:u32, $2:pred) != 0"),
        (r"bar(?:rier)?(?:\.cta)?\.red\.or(?:\.aligned)?\.pred",
         "$0:pred = lab::ptx::reduced(LAB_BARRIER_OR, $1:u32, $2:pred) != 0"),
        (r"barrier\.cluster\.arrive\b.*", ""),
        (r"barrier\.cluster\.wait\b.*", "lab_barrier(LAB_BARRIER, 0)"),
        (r"shfl\.sync\.(?P<m>idx|bfly|up|down)\.b32",
         "bool in; $0a:b32 = lab::ptx::shuffled(LAB_<w:m>, $4:u32, $1:b32, $2:u32, $3:u32, in); "
         "$0b:pred = in"),
        (r"vote\.sync\.ballot\.b32",
         "$0:b32 = lab_collective(LAB_BALLOT, $2:u32, $1:pred, 0, 32)"),
        (r"vote\.sync\.(?P<m>any|all)\.pred",
         "$0:pred = lab_collective(LAB_<up:m>, $2:u32, $1:pred, 0, 32) != 0"),
        (r"vote\.sync\.uni\.pred",
         "const uint64_t b = lab_collective(LAB_BALLOT, $2:u32, $1:pred, 0, 32); "
         "$0:pred = !b || b == $2:u32"),
        (r"match\.any\.sync\.(?P<t>b32|b64)",
         "$0:b32 = lab_collective(LAB_MATCH_ANY, $2:u32, $1:<t>, 0, 32)"),
        (r"match\.all\.sync\.(?P<t>b32|b64)",
         "const uint64_t e = lab_collective(LAB_MATCH_ANY, $2:u32, $1:<t>, 0, 32); "
         "$0b:pred = e == $2:u32; $0a:b32 = e == $2:u32 ? e : 0"),
        (r"redux\.sync\.(?P<m>add|and|or|xor)\.(?:[usb]32)",
         "$0:b32 = lab_collective(LAB_REDUCE_<up:m>, $2:u32, $1:b32, 0, 32)"),
        (r"redux\.sync\.(?P<m>min|max)\.s32",
         "$0:b32 = lab_collective(LAB_REDUCE_<up:m>_SIGNED, $2:u32, $1:b32, 0, 32)"),
        (r"redux\.sync\.(?P<m>min|max)\.u32",
         "$0:b32 = lab_collective(LAB_REDUCE_<up:m>_UNSIGNED, $2:u32, $1:b32, 0, 32)"),
        (r"activemask\.b32", "$0:b32 = lab_active_mask()"),
        (r"elect\.sync",
         "const uint32_t l = lab::ptx::elected($1:u32); $0a:b32 = l; "
         "$0b:pred = l == lab::ptx::lane()"),
        (r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16",
         "$0:b32 = lab::ptx::transposed_matrix($1:b32)"),
        (r"cp\.async\.commit_group", "lab_copy_commit()"),
        (r"cp\.async\.wait_group", "lab_copy_wait($0:u32)"),
        (r"cp\.async\.wait_all", "lab_copy_commit(); lab_copy_wait(0)"),
        (rf"cp\.async\.mbarrier\.arrive\.noinc{_S}\.b64", "lab::ptx::copies_arrive($0*s, true)"),
        (rf"cp\.async\.mbarrier\.arrive{_S}\.b64", "lab::ptx::copies_arrive($0*s, false)"),
        (r"cp\.async\.bulk\.shared::(?:cta|cluster)\.global\.mbarrier::complete_tx::bytes"
         r"(?:\.L2::cache_hint)?",
         "lab::ptx::copy_bulk($0*shared, $1*global, $2:u32, $3*shared)"),
        (r"cp\.async\.bulk\.global\.shared::cta\.bulk_group(?:\.L2::cache_hint)?",
         "lab::ptx::copy_bulk($0*global, $1*shared, $2:u32, nullptr)"),
        (rf"mbarrier\.init{_S}\.b64", "lab_phase_init($0*s, $1:u32)"),
        (rf"mbarrier\.inval{_S}\.b64", "lab::ptx::end_of_barrier($0*s)"),
        (rf"mbarrier\.expect_tx{_MBARRIER}{_S}\.b64", "lab_phase_arrive($0*s, 0, $1:u32)"),
        (rf"mbarrier\.complete_tx{_MBARRIER}{_S}\.b64",
         "lab_phase_arrive($0*s, 0, -(long long)$1:u32)"),
        (rf"mbarrier\.arrive\.expect_tx{_MBARRIER}{_S}\.b64",
         "$0:b64 = lab::ptx::arrived($1*s, 1, $2:u32)"),
        (rf"mbarrier\.arrive(?:\.noComplete)?{_MBARRIER}{_S}\.b64",
         "$0:b64 = lab::ptx::arrived($1*s, $2:u32?1, 0)"),
        (rf"mbarrier\.(?P<m>try|test)_wait(?P<p>\.parity)?{_MBARRIER}{_S}\.b64",
         "$0:pred = lab::ptx::waited($1*s, $2:u64, <is:m:try>)"),
        (rf"ldmatrix{_MATRICES}{_S}\.b16",
         "const lab_words t = lab_load_matrices($1*s, <n>, <has:trans>); $0:{b32} = t.word[i]"),
        (rf"wmma\.load\.(?P<f>[ab]){_WMMA}{_S}\.b?f16",
         "const lab::ptx::Fragment t = lab::ptx::fragment_at($1*s, $2:u32, <is:m:row>, <is:f:b>); "
         "$0:{b32} = t.word[i]"),
        (rf"wmma\.load\.c{_WMMA}{_S}\.f32",
         "const auto t = lab::ptx::sums_at<lab::ptx::Word4>($1*s, $2:u32, <is:m:row>); "
         "$0:{f32} = t.at[i]"),
        (rf"wmma\.load\.c{_WMMA}{_S}\.f16",
         "const auto t = lab::ptx::halves_of(lab::ptx::sums_at<lab::ptx::Word2>("
         "$1*s, $2:u32, <is:m:row>)); $0:{b32} = t.word[i]"),
        (rf"wmma\.store\.d{_WMMA}{_S}\.f32",
         "lab::ptx::store_sums<lab::ptx::Word4>($0*s, $2:u32, <is:m:row>, {{$1:{f32}}})"),
        (rf"wmma\.store\.d{_WMMA}{_S}\.f16",
         "lab::ptx::store_sums<lab::ptx::Word2>($0*s, $2:u32, <is:m:row>, "
         "lab::ptx::sums_of({{$1:{b32}}}))"),
        (_PRODUCT + r"\.f32\.f32",
         "const auto t = lab::ptx::product_of_16<lab::ptx::Half>("
         "{{$3:{f32}}}, {{$1:{b32}}}, {{$2:{b32}}}); $0:{f32} = t.at[i]"),
        (_PRODUCT + r"\.f32\.bf16\.bf16\.f32",
         "const auto t = lab::ptx::product_of_16<lab::ptx::Bfloat>("
         "{{$3:{f32}}}, {{$1:{b32}}}, {{$2:{b32}}}); $0:{f32} = t.at[i]"),
        (_PRODUCT + r"\.f16\.f16",
         "const auto t = lab::ptx::halves_of(lab::ptx::product_of_16<lab::ptx::Half>("
         "lab::ptx::sums_of({{$3:{b32}}}), {{$1:{b32}}}, {{$2:{b32}}})); $0:{b32} = t.word[i]"),
        (rf"stmatrix{_MATRICES}{_S}\.b16",
         "lab::ptx::store_matrices($0*s, <n>, <has:trans>, lab_words{$1:{b32}})"),
    )
]  # fmt: skip


class _Body:
    """One function, written statement by statement."""

    def __init__(
        self, function: Function, names: Mapping[str, str], known: Mapping[str, _Place]
    ) -> None:
        self.function, self.names, self.known = function, names, known
        self.registers: dict[tuple[int, str], str] = {}  # types; of many alike by what they share
        self.used: dict[str, str] = {}  # C++ names of registers, and their types
        self.labels: dict[tuple[int, str], str] = {}
        self.targets: dict[str, list[str]] = {}
        self.memory: dict[tuple[int, str], _Place] = {}
        self.arrays: list[str] = []
        self.called: set[str] = set()
        self.scope = 0

    # -- names and operands --

    def _in_scope(self, table: Mapping[tuple[int, str], str], name: str) -> tuple[int, str] | None:
        scope: int | None = self.scope
        while scope is not None:
            if (scope, name) in table:
                return scope, table[scope, name]
            scope = self.function.parents.get(scope)
        return None

    def register(self, name: str) -> str | None:
        """The C++ name of a register, which is then declared; None where there is none."""
        found = self._in_scope(self.registers, name)
        found = found or self._in_scope(self.registers, name.rstrip("0123456789") + "<")
        if found is None:
            return None
        plain = _plain(name) + (f"_s{found[0]}" if found[0] else "")
        self.used[plain] = found[1]
        return plain

    def place(self, name: str) -> _Place | None:
        """A variable or a parameter."""
        scope: int | None = self.scope
        while scope is not None:
            if (scope, name) in self.memory:
                return self.memory[scope, name]
            scope = self.function.parents.get(scope)
        return self.known.get(name)

    def read(self, operand: str, type_: str) -> str:
        """An operand as a value of a type."""
        wanted = _c_type(type_)
        if operand.startswith("!") and type_ == "pred":
            return f"!{self.read(operand[1:], 'pred')}"
        if (name := self.register(operand)) is not None:
            return _as(name, self.used[name], type_)
        if operand in _SPECIAL:
            return f"{wanted}({_SPECIAL[operand]})"
        if number := re.fullmatch(r"0[fFdD]([0-9a-fA-F]{8,16})", operand):
            of = "f32" if len(number[1]) == 8 else "f64"
            value = f"lab::bits<{_c_type(of)}>(uint{bits_of(of)}_t(0x{number[1]}ull))"
            return value if wanted == _c_type(of) else (
                f"{wanted}({value})" if type_ in _FLOATS else f"{wanted}(0x{number[1]}ull)"
            )  # fmt: skip
        if re.fullmatch(
            r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?|[-+\s\d()*/]*[-+*/()][-+\s\d()*/]*", operand
        ):
            return f"{wanted}({operand})"
        if re.fullmatch(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?", operand):
            return operand if type_ == "pred" else f"{wanted}({_number(operand)})"
        found = re.fullmatch(r"([\w$%]+)\s*(?:\+\s*(-?\w+))?", operand)
        if found is None or (place := self.place(found[1])) is None:
            raise NotTranslated(f"the operand `{shorten_ptx(operand)}`")
        start = f"(char*){place.name}" + (" - sh" if place.space == "shared" else "")
        return f"{wanted}(uint64_t({start}) + {found[2] or 0})"

    def write(self, operand: str, type_: str, value: str) -> str:
        """A statement by which an operand gets a value of a type."""
        if operand == "_":
            return f"(void)({value});"
        if (name := self.register(operand)) is None:
            raise NotTranslated(f"the operand `{shorten_ptx(operand)}`")
        return f"{name} = {_as(f'{_c_type(type_)}({value})', type_, self.used[name])};"

    def pointer(self, operand: str, space: str, type_: str = "char") -> str:
        """Where ``[...]`` leads, as a pointer to a type."""
        found = re.fullmatch(r"\[\s*([\w$%.]+)\s*(?:([+-])\s*(-?\w+))?\s*\]", operand)
        if found is None:
            raise NotTranslated(f"the address `{shorten_ptx(operand)}`")
        far = f" {found[2]} ({found[3]})" if found[2] else ""
        name = self.register(found[1])
        if name is None and (place := self.place(found[1])) is not None:
            return f"({type_}*)((char*){place.name}{far})"
        start = name if name is not None else self.read(found[1], "u64")
        if space == "shared":
            return f"({type_}*)(sh + uint32_t({start}{far}))"
        return f"({type_}*)(uint64_t({start}){far})"

    # -- the text --

    def text(self) -> str:
        """The function in C++. Raises NotTranslated, with the line."""
        one, lines, last = self.function, [""], None
        for i, given in enumerate((*one.parameters, *one.returned)):
            plain = _plain(given.name)
            self.memory[0, given.name] = _Place(plain, "param")
            if one.is_entry:
                word = f"{{ const uint64_t w = lab_argument({i}); __builtin_memcpy({plain}, &w, "
                word = f"{word}{given.bytes}); }}" if given.bytes <= 8 else (
                    f"lab_read_structure({plain}, {i}, {given.bytes});"
                )  # fmt: skip
                self.arrays.append(f"alignas(16) unsigned char {plain}[{given.bytes}]; {word}")
        for statement in one.statements:
            name, _, rest = statement.text.partition(":")
            if statement.kind == "label":
                self.labels[statement.scope, name.strip()] = f"L{len(self.labels)}"
            elif statement.kind == "targets":
                listed = rest.partition(".branchtargets")[2].strip(" ;").split(",")
                self.targets[name.strip()] = [part.strip() for part in listed]
        for statement in one.statements:
            try:
                written = self._statement(statement)
            except NotTranslated as error:
                error.line = statement.at[1] if statement.at else None
                raise
            if written and statement.at and statement.at != last:
                last = statement.at
                lines += [f'#line {last[1]} "{last[0]}"', ""]
            lines[-1] += f" {written}"
        declared: dict[str, list[str]] = {}
        for name, type_ in self.used.items():
            declared.setdefault(_c_type(type_), []).append(name)
        head = [f"{c_type} {', '.join(names)};" for c_type, names in declared.items()]
        signature = "" if one.is_entry else _signature(one)
        begin = ['#line 1 "<ptx>"', f"static void {self.names[one.name]}({signature}) {{"]
        begin += ["char* const sh = lab_shared_base(); (void)sh; bool carry = false; (void)carry;"]
        return "\n".join([*begin, *head, *self.arrays, *lines, ";}"])

    def _statement(self, one: Statement) -> str:
        self.scope = one.scope
        if one.kind == "instruction":
            return self._instruction(one.text)
        if one.kind == "label":
            return f"{self.labels[one.scope, one.text.rstrip(' :')]}:;"
        if one.kind == "reg":
            found = re.match(r"\.reg\s*\.(\w+)\s+(.*)$", one.text)
            if found is None or found[1].startswith("v") or bits_of(found[1]) > 64:
                raise NotTranslated(f"the registers `{shorten_ptx(one.text)}`")
            for name in found[2].split(","):
                self.registers[one.scope, re.sub(r"<\s*\d+\s*>", "<", name.strip())] = found[1]
        elif one.kind == "variable":
            given = read_variable(one.text)
            size = given.bytes if given.is_array else bits_of(given.type) // 8
            plain = f"{_plain(given.name)}_m{len(self.memory)}"
            self.memory[one.scope, given.name] = _Place(plain, given.space)
            self.arrays.append(f"alignas(16) unsigned char {plain}[{size}];")
        return ""

    def _instruction(self, text: str) -> str:
        found = re.fullmatch(r"(?:@\s*(!?)\s*([\w$%]+)\s+)?([\w.:]+)\s*(.*)", text)
        if found is None:
            raise NotTranslated(f"`{shorten_ptx(text)}`")
        guard = f"if ({found[1]}{self.read(found[2], 'pred')}) " if found[2] else ""
        opcode, operands = found[3], operands_of_ptx(found[4])
        written = self._by_rule(opcode, operands)
        if written is None:
            op, *mods = opcode.split(".")
            plain = functools.partial(self._arithmetic, op) if op in _ARITHMETIC else None
            write: Callable[..., str | None] | None = getattr(self, f"_{op}", plain)
            # An IndexError: a form with fewer words or operands than any that is here, and so on.
            with contextlib.suppress(IndexError, ValueError, KeyError):
                written = write(mods, operands) if write else None
        if written is None:
            raise NotTranslated(f"the PTX instruction `{opcode}`")
        return f"{guard}{{ {written} }}"

    def _by_rule(self, opcode: str, operands: list[str]) -> str | None:
        for form, text in _RULES:
            if held := form.fullmatch(opcode):
                if opcode.startswith("mbarrier.arrive") and operands[0].startswith("["):
                    operands = ["_", *operands]
                parts = [self._of_rule(one, held.groupdict(), operands) for one in text.split("; ")]
                return " ".join(filter(None, parts)) or ";"
        return None

    def _of_rule(self, text: str, held: Mapping[str, str | None], operands: list[str]) -> str:
        """A statement of a rule, with the operands of an instruction."""

        def fill(found: re.Match[str]) -> str:
            word, _, name = found[1].partition(":")
            name, _, test = name.partition(":")
            of = held.get(name or word) or ""
            kinds = {"w": _WORDS.get(of, of), "up": of.upper(), "has": str(int(bool(of)))}
            kinds |= {"is": str(int(of == test)), "p": f"{'' if of == 's' else 'u'}int8_t"}
            if name:
                return kinds.get("p" if name == "8" else word, of)
            return of

        type_ = held.get("t") or ""
        text = re.sub(r"<([pq]):8>", lambda m: "int8_t" if held[m[1]] == "s" else "uint8_t", text)
        text = text.replace("<T>", _c_type(type_) if type_ else "").replace(
            "<b>", str(bits_of(type_))
        )
        text = re.sub(
            r"<(\w+(?::\w+)*)>", lambda m: fill(m) if _is_held(m[1], held) else m[0], text
        )
        named = [int(n) for n in re.findall(r"\$(\d)(?![^ ]*\?)", text)]
        if any(n >= len(operands) for n in named):
            raise IndexError(text)

        def part_of(number: str, which: str) -> str:
            first, _, second = (one.strip() for one in operands[int(number)].partition("|"))
            return {"a": first, "b": second, "": operands[int(number)]}[which]

        def value(found: re.Match[str]) -> str:
            number, which, space, list_type, kind, default = found.groups()
            if kind and default is not None and int(number) >= len(operands):
                return default or "0"
            operand = part_of(number, which)
            if space:
                return self.pointer(operand, (held.get("s") or "") if space == "s" else space)
            if list_type:
                return ", ".join(self.read(one, list_type) for one in _listed(operand))
            return f"({self.read(operand, kind)})"

        form = r"\$(\d)([ab]?)(?:\*(\w+)|:\{(\w+)\}|:(\w+)(?:\?(\d*))?)"
        if to := re.match(r"\$(\d)([ab]?):(\{?)(\w+)\}? = (.*)$", text):
            operand, of = part_of(to[1], to[2]), re.sub(form, value, to[5])
            if to[3]:
                parts = enumerate(_listed(operand))
                return " ".join(
                    self.write(one, to[4], of.replace("[i]", f"[{i}]")) for i, one in parts
                )
            return self.write(operand, to[4], of) if operand else ""
        return re.sub(form, value, text) + ";" if text else ""

    # -- arithmetic --

    def _arithmetic(self, op: str, mods: list[str], operands: list[str]) -> str | None:
        type_, given = mods[-1], operands[1:]
        if type_ in _FLOATS or type_ in _SIXTEENS:
            return self._of_floats(op, mods, operands)
        form = (_OF_PREDICATES if type_ == "pred" else _OF_WHOLES).get(op)
        if form is None or type_.endswith("x2") or "xorsign" in mods or len(given) > 2:
            return None
        values = [f"({self.read(one, type_)})" for one in given]
        if "cc" in mods:
            return self._with_carry(op, type_, operands, "false" if op == "add" else "true")
        wanted = _c_type(type_)
        if "sat" in mods:
            sign = {"add": "+", "sub": "-"}[op]
            sum_ = f"(__int128){values[0]} {sign} (__int128){values[1]}"
            return self.write(operands[0], type_, f"lab::ptx::within<{wanted}>({sum_})")
        value = form.format(*values)
        relu = f"std::max<{wanted}>(0, {value})" if "relu" in mods else value
        return self.write(operands[0], type_, relu)

    def _with_carry(self, op: str, type_: str, operands: list[str], before: str) -> str:
        unsigned = f"uint{bits_of(type_)}_t"
        x, y = (self.read(one, type_) for one in operands[1:3])
        y = f"~({y})" if op.startswith("sub") else y
        sum_ = f"lab::ptx::with_carry<{unsigned}>({x}, {unsigned}({y}), {before}, carry)"
        return self.write(operands[0], type_, sum_)

    def _addc(self, mods: list[str], operands: list[str], op: str = "add") -> str:
        written = self._with_carry(op, mods[-1], operands, "carry")
        return written if "cc" in mods else f"const bool kept = carry; {written} carry = kept;"

    def _subc(self, mods: list[str], operands: list[str]) -> str:
        return self._addc(mods, operands, "sub")

    def _of_floats(self, op: str, mods: list[str], operands: list[str]) -> str | None:
        type_, form, given = mods[-1], _OF_FLOATS.get(op), operands[1:]
        if form is None or not set(mods[:-1]) <= _FLOAT_MODS or len(given) > form.count("{"):
            return None
        if "NaN" in mods:
            form = form.replace("least", "least_or_nan").replace("most", "most_or_nan")
        side = next((name for mod, name in _ROUNDED if mod in mods), None)
        wrap = "lab::ptx::saturated_float({})" if "sat" in mods else "{}"
        wrap = "lab::ptx::not_negative({})" if "relu" in mods else wrap
        if type_ in _FLOATS:
            values = [f"({self.read(one, type_)})" for one in given]
            if side:
                if type_ != "f32" or op not in ("add", "sub", "mul", "div", "fma", "rcp", "sqrt"):
                    return None
                values, wrap = [f"double({one})" for one in values], f"lab::{side}({wrap})"
            return self.write(operands[0], type_, wrap.format(form.format(*values)))
        if side:
            return None
        names = ["x", "y", "z"][: len(given)]
        value = form.replace("fused", "fused_16").format(*names)
        value = value if op in ("fma", "mad") else f"float({value})"
        function = (
            f"[]({', '.join(f'float {name}' for name in names)}) {{ return {wrap.format(value)}; }}"
        )
        which = "pair" if type_.endswith("x2") else "one"
        values = [function, *(self.read(one, type_) for one in given)]
        each = f"lab::ptx::{which}<lab::ptx::{_SIXTEENS[type_]}>({', '.join(values)})"
        return self.write(operands[0], type_, each)

    def _mul(self, mods: list[str], operands: list[str]) -> str | None:
        type_ = mods[-1]
        if type_ in _FLOATS or type_ in _SIXTEENS:
            return self._of_floats("mul" if len(operands) == 3 else "fma", mods, operands)
        to, bits, signed = type_, bits_of(type_), type_[0] == "s"
        x, y = (f"({self.read(one, type_)})" for one in operands[1:3])
        if "wide" in mods:
            to = f"{type_[0]}{2 * bits}"
            value = f"{_c_type(to)}({x}) * {_c_type(to)}({y})"
        elif "hi" in mods and not {"sat", "cc"} & set(mods):
            long = f"{'' if signed else 'unsigned '}__int128"
            value = f"{_c_type(type_)}(({long}){x} * ({long}){y} >> {bits})"
        elif "lo" in mods:
            value = f"{_c_type(type_)}(uint64_t({x}) * uint64_t({y}))"
        else:
            return None
        if len(operands) == 4:
            more = self.read(operands[3], to)
            value = f"({value}) + {more}"
            if "cc" in mods:
                product = f"uint{bits}_t(uint64_t({x}) * uint64_t({y}))"
                value = f"lab::ptx::with_carry<uint{bits}_t>({product}, {more}, false, carry)"
        return self.write(operands[0], to, value)

    _mad = _mul

    def _test(self, how: str, type_: str, operands: list[str]) -> str:
        """A comparison; of pairs two, as bits."""
        floats = type_ in _FLOATS or type_ in _SIXTEENS
        form = _UNORDERED.get(how) if floats else None
        form = form or f"({{0}} {_COMPARED[how]} {{1}})"
        if type_.endswith("x2"):
            function = f"[](float x, float y) {{ return {form.format('x', 'y')}; }}"
            values = ", ".join(self.read(one, type_) for one in operands)
            return f"lab::ptx::pair_of_tests<lab::ptx::{_SIXTEENS[type_]}>({function}, {values})"
        return form.format(*(self._as_number(one, type_) for one in operands))

    def _as_number(self, operand: str, type_: str) -> str:
        value = self.read(operand, type_)
        return (
            f"lab::ptx::{_SIXTEENS[type_]}::from({value})" if type_ in _SIXTEENS else f"({value})"
        )

    def _setp(self, mods: list[str], operands: list[str]) -> str | None:
        type_, to = mods[-1], [one.strip() for one in operands[0].split("|")]
        joined = next((_OF_PREDICATES[one] for one in mods if one in ("and", "or", "xor")), "{0}")
        third = [f"({self.read(one, 'pred')})" for one in operands[3:]]
        values = ("(t & 1) != 0", "(t & 2) != 0") if type_.endswith("x2") else ("t", "!t")
        written = [f"const auto t = {self._test(mods[0], type_, operands[1:3])};"]
        for one, value in zip(to, values, strict=False):
            written.append(self.write(one, "pred", joined.format(f"({value})", *third)))
        return " ".join(written)

    def _set(self, mods: list[str], operands: list[str]) -> str | None:
        to, type_ = mods[-2:]
        test = self._test(mods[0], type_, operands[1:3])
        if len(operands) != 3:
            return None
        if type_.endswith("x2"):
            one = f"uint32_t(lab::ptx::{_SIXTEENS[to]}::to(1.0f))" if to in _SIXTEENS else "0xffffu"
            both = f"(t & 1 ? {one} : 0u) | (t & 2 ? {one} << 16 : 0u)"
            return f"const uint32_t t = {test}; {self.write(operands[0], 'b32', both)}"
        if to in _SIXTEENS:
            value = f"lab::ptx::{_SIXTEENS[to]}::to({test} ? 1.0f : 0.0f)"
            return self.write(operands[0], to, value)
        return self.write(operands[0], to, f"({test} ? {'1' if to in _FLOATS else '-1'} : 0)")

    def _cvt(self, mods: list[str], operands: list[str]) -> str | None:
        (to, of), how = mods[-2:], set(mods[:-2])
        if "pack" in how:
            return None
        relu = "lab::ptx::not_negative({})" if "relu" in how else "{}"
        if len(operands) == 3:  # two floats to a pair; the first goes to the upper half
            high, low = (relu.format(self.read(one, "f32")) for one in operands[1:])
            if to in ("e4m3x2", "e5m2x2"):
                both = f"lab::ptx::pair_of_fp8<lab::ptx::E{to[1:4]}>({low}, {high})"
            else:
                zero = "towards_zero_16<" if "rz" in how else "nearest_16<"
                name = f"lab::ptx::{zero}lab::ptx::{_SIXTEENS[to]}>"
                both = f"uint32_t({name}({low})) | uint32_t({name}({high})) << 16"
            return self.write(operands[0], to, both)
        value = f"({self.read(operands[1], of)})"
        if to in ("e4m3x2", "e5m2x2"):
            form = relu.format(f"lab::ptx::{_SIXTEENS[of]}::from(uint16_t(t >> {{}}))")
            both = (
                f"lab::ptx::pair_of_fp8<lab::ptx::E{to[1:4]}>({form.format(0)}, {form.format(16)})"
            )
            return f"const uint32_t t = {value}; {self.write(operands[0], 'b16', both)}"
        if of in ("e4m3x2", "e5m2x2"):
            name = f"lab::ptx::E{of[1:4]}::from"
            half = "uint32_t(lab::ptx::Half::to({}))".format
            both = f"{half(f'{name}(uint8_t(t))')} | {half(f'{name}(uint8_t(t >> 8))')} << 16"
            return f"const uint16_t t = {value}; {self.write(operands[0], 'f16x2', both)}"
        if to == "tf32":
            return self.write(operands[0], "b32", f"lab::ptx::rounded_tf32({value})")
        if "x" in to or "x" in of or not _is_number(to) or not _is_number(of):
            return None
        value, is_float = self._as_number(operands[1], of), of in _FLOATS or of in _SIXTEENS
        whole = next((_TO_WHOLE[one] for one in how if one in _TO_WHOLE), "")
        if to not in _FLOATS and to not in _SIXTEENS:
            if is_float:
                how_far = f"lab::ptx::{whole or 'TOWARDS_ZERO'}"
                value = f"lab::ptx::whole<{_c_type(to)}>(double({value}), {how_far})"
            elif "sat" in how:
                value = f"lab::ptx::within<{_c_type(to)}>({value})"
            return self.write(operands[0], to, value)
        value = f"lab::ptx::to_side(double({value}), lab::ptx::{whole})" if whole else value
        target = "double" if to == "f64" or (to in _SIXTEENS and of != "f32") else "float"
        value = f"lab::ptx::saturated_float({target}({value}))" if "sat" in how else value
        value = relu.format(f"{target}({value})") if "relu" in how else value
        side = next((name for mod, name in _ROUNDED if mod in how), None)
        if to in _SIXTEENS:
            if side not in (None, "towards_zero"):
                return None
            zero = "towards_zero_16" if side else "nearest_16"
            value = f"lab::ptx::{zero}<lab::ptx::{_SIXTEENS[to]}>({target}({value}))"
        elif side and to == "f32":
            value = f"lab::{side}(double({value}))"
        return self.write(operands[0], to, value)

    # -- memory --

    def _mov(self, mods: list[str], operands: list[str]) -> str:
        type_, (to, of) = f"b{bits_of(mods[-1])}", operands
        if to.startswith("{"):
            parts = _listed(to)
            each = bits_of(type_) // len(parts)
            return f"const auto t = {self.read(of, type_)}; " + " ".join(
                self.write(one, f"b{each}", f"t >> {each * i}") for i, one in enumerate(parts)
            )
        if of.startswith("{"):
            parts = _listed(of)
            each, whole = bits_of(type_) // len(parts), _c_type(type_)
            shifted = (f"{whole}({self.read(one, f'b{each}')})" for one in parts)
            joined = " | ".join(f"{one} << {each * i}" for i, one in enumerate(shifted))
            return self.write(to, type_, joined)
        return self.write(to, mods[-1], self.read(of, mods[-1]))

    def _access(self, mods: list[str]) -> tuple[str, int, int, str, str] | None:
        """Space, number and bits of elements, order and fence of a load or store."""
        plain = [one.partition("::")[0] for one in mods]
        spaces = ("global", "shared", "local", "param", "const")
        size = next((int(one[1:]) for one in mods if re.fullmatch(r"v[248]", one)), 1)
        bits = bits_of(mods[-1])
        if size * bits > 128 or {"unified", "mmio", "async", "bulk", "b128"} & set(mods):
            return None
        strong = ("relaxed", "acquire", "release", "volatile")
        order = next((one for one in mods if one in strong), "")
        fence = f"lab_fence{'_block' if 'cta' in mods else ''}();"
        space = next((one for one in plain if one in spaces), "generic")
        return space, size, bits, order, fence

    def _ld(self, mods: list[str], operands: list[str]) -> str | None:
        if (how := self._access(mods)) is None:
            return None
        (space, size, bits, order, fence), type_ = how, mods[-1]
        word = f"lab::ptx::Word{size * bits // 8}"
        written = [f"const auto p = {self.pointer(operands[1], space, f'const {word}')};"]
        if "nc" in mods:
            written.append(f"lab_read_only((const void*)p, {size * bits // 8});")
        value = "*p"
        if order in ("relaxed", "acquire") and size == 1 and bits >= 32:
            op = "LAB_ATOMIC_OR | LAB_IN_BLOCK" if "cta" in mods else "LAB_ATOMIC_OR"
            value = f"lab_atomic((void*)p, {op}, LAB_{_NUMBERS[f'b{bits}']}, 0, 0)"
        elif order and size == 1:
            value = f"*(const volatile {word}*)p"
        written.append(f"const {word} t = {value};")
        of = "lab::ptx::part_of<{}>(t, {})"
        for i, one in enumerate(_listed(operands[0])):
            if one != "_":
                written.append(self.write(one, type_, of.format(_c_type(type_), i)))
        return " ".join([*written, fence if order == "acquire" else ""])

    _ldu = _ld

    def _st(self, mods: list[str], operands: list[str]) -> str | None:
        if (how := self._access(mods)) is None:
            return None
        space, size, bits, order, fence = how
        word = f"lab::ptx::Word{size * bits // 8}"
        to = self.pointer(operands[0], space, f"volatile {word}" if order and size == 1 else word)
        parts = ", ".join(self.read(one, f"b{bits}") for one in _listed(operands[1]))
        value = parts if size == 1 else f"lab::ptx::joined<{word}, uint{bits}_t>({{{parts}}})"
        return f"{fence if order == 'release' else ''} *{to} = {value};"

    def _atom(self, mods: list[str], operands: list[str]) -> str | None:
        op, how = next((one for one in mods if one in _ATOMICS), None), self._access(mods)
        if op is None or how is None:
            return None
        (space, _size, bits, _, fence), type_ = how, mods[-1]
        where, parts = self.pointer(operands[1], space), _listed(operands[2])
        scope = " | LAB_IN_BLOCK" if "cta" in mods else ""
        written = [fence] if {"release", "acq_rel"} & set(mods) else []
        for i, one in enumerate(parts):
            place, of = f"{where} + {i * bits // 8}", self.read(one, f"b{bits}")
            if type_ in _SIXTEENS:
                number = _NUMBERS[f"b{bits}"]
                given = f"({place}, LAB_{number}, {of})"
                value = f"lab::ptx::add_16<lab::ptx::{_SIXTEENS[type_]}>{given}"
                if op != "add":
                    return None
            else:
                swapped = (self.read(operands[3], f"b{bits}"), of) if op == "cas" else (of, "0")
                kind = f"LAB_ATOMIC_{_ATOMICS[op]}{scope}, LAB_{_NUMBERS[type_]}"
                value = f"lab_atomic({place}, {kind}, {', '.join(swapped)})"
            to = _listed(operands[0])[i] if operands[0] != "_" else "_"
            written.append(self.write(to, f"b{bits}", value))
        return " ".join([*written, fence if {"acquire", "acq_rel"} & set(mods) else ""])

    def _red(self, mods: list[str], operands: list[str]) -> str | None:
        return self._atom(mods, ["_", *operands])

    def _cp(self, mods: list[str], operands: list[str]) -> str | None:
        if mods[:2] not in (["async", "ca"], ["async", "cg"]):
            return None
        to, of = self.pointer(operands[0], "shared"), self.pointer(operands[1], "global")
        size = left = self.read(operands[2], "u32")
        if len(operands) > 3 + ("L2::cache_hint" in mods):
            name = self.register(operands[3].lstrip("!"))
            is_test = name is not None and self.used[name] == "pred"
            left = f"{self.read(operands[3], 'pred' if is_test else 'u32')}"
            left = f"{left} ? 0 : {size}" if is_test else left
        return f"lab::ptx::copy_async({to}, {of}, {size}, {left});"

    # -- control --

    def _bra(self, mods: list[str], operands: list[str]) -> str | None:
        found = self._in_scope(self.labels, operands[0])
        return f"goto {found[1]};" if found else None

    def _brx(self, mods: list[str], operands: list[str]) -> str:
        targets = enumerate(self.targets[operands[1]])
        cases = " ".join(f"case {i}: {self._bra([], [one])}" for i, one in targets)
        return f"switch ({self.read(operands[0], 'u32')}) {{ {cases} }}"

    def _call(self, mods: list[str], operands: list[str]) -> str | None:
        name = next(one for one in operands if not one.startswith("("))
        lists = [operands_of_ptx(one[1:-1]) for one in operands if one.startswith("(")]
        places = [self.place(one) for of in lists for one in of]
        given = [place.name for place in places if place is not None]
        if name == "vprintf":
            back, *of = given
            form, values = (f"(const char*)*(const lab::ptx::Word8*){one}" for one in of)
            return f"*(lab::ptx::Word4*){back} = lab::ptx::print({form}, {values});"
        if name == "__assertfail":
            return f"lab_assertion((const char*)*(const lab::ptx::Word8*){given[0]});"
        if name not in self.names:
            raise NotTranslated(f"a call of `{name}`")
        self.called.add(name)
        return f"{self.names[name]}({', '.join(given)});"

    # -- matrices --

    def _mma(self, mods: list[str], operands: list[str]) -> str | None:
        shape, (to, a, b, of) = mods[2], mods[-4:]
        *_, (k,) = [re.fullmatch(r"m16n8k(\d+)", shape).groups()]  # type: ignore[union-attr]
        if to != of or to not in ("f32", "s32", "f16") or len(mods) != 9 or mods[1] != "aligned":
            return None
        d, a_words, b_words, c = (_listed(one) for one in operands)
        each = {"f16": 2, "bf16": 2, "tf32": 1}.get(a, 4)
        if int(k) != 4 * each * len(b_words) or len(a_words) != 2 * len(b_words):
            return None
        words = [", ".join(self.read(one, "b32") for one in part) for part in (a_words, b_words)]
        result = "int32_t" if to == "s32" else "float"
        kinds = f"lab::ptx::{_ELEMENTS[a]}, lab::ptx::{_ELEMENTS[b]}, {result}, {len(b_words)}"
        if to == "f16":
            half = "lab::ptx::Half::from(uint16_t({} >> {}))".format
            start = [half(self.read(one, "b32"), s) for one in c for s in (0, 16)]
            pair = "lab::ptx::two_halves(t.at[{}], t.at[{}])"
            back = [
                self.write(one, "b32", pair.format(2 * i, 2 * i + 1)) for i, one in enumerate(d)
            ]
        else:
            start = [self.read(one, to) for one in c]
            back = [self.write(one, to, f"t.at[{i}]") for i, one in enumerate(d)]
        sums = f"lab::ptx::Four<{result}>{{{{{', '.join(start)}}}}}"
        second = words[1] if len(b_words) == 2 else f"{words[1]}, 0"
        product = f"lab::ptx::product<{kinds}>({sums}, lab_words{{{{{words[0]}}}}}, {second})"
        return f"const auto t = {product}; {' '.join(back)}"

    def _wgmma(self, mods: list[str], operands: list[str]) -> str | None:
        found = re.fullmatch(r"m64n(\d+)k16", mods[3])
        (to, a, b), (d, of, by, adds, *signs) = mods[-3:], operands
        along = signs[2:]  # whether A, where it lies in shared memory, and B go along M and N
        if (
            found is None
            or to != "f32"
            or a != b
            or a not in ("f16", "bf16")
            or mods[-4] != mods[3]
        ):
            return None
        if signs[:2] != ["1", "1"] or len(along) != (1 if of.startswith("{") else 2):
            return None
        if of.startswith("{"):
            words = ", ".join(self.read(one, "b32") for one in _listed(of))
            rows = f"lab_words{{{{{words}}}}}"
        else:
            rows = f"lab::ptx::rows_of_tile(sh, {self.read(of, 'b64')}, {along[0]})"
        sums, n = _listed(d), int(found[1])
        start = f"lab::ptx::Sums<{n}>{{{{{', '.join(self.read(one, to) for one in sums)}}}}}"
        given = (
            f"sh, {start}, {rows}, {self.read(by, 'b64')}, {along[-1]}, {self.read(adds, 'pred')}"
        )
        product = f"lab::ptx::product_of_four<lab::ptx::{_SIXTEENS[a]}, {n}>({given})"
        back = (self.write(one, to, f"t.at[{i}]") for i, one in enumerate(sums))
        return f"const auto t = {product}; {' '.join(back)}" if len(sums) == n // 2 else None


_ARITHMETIC = {*_OF_FLOATS, *_OF_WHOLES} - {"mul", "mad"}


def _is_number(type_: str) -> bool:
    return re.fullmatch(r"[usf](?:8|16|32|64)|bf16", type_) is not None


def _listed(operand: str) -> list[str]:
    return operands_of_ptx(operand[1:-1]) if operand.startswith("{") else [operand]


def _is_held(word: str, held: Mapping[str, str | None]) -> bool:
    return any(part in held for part in word.split(":"))


def _as(value: str, type_: str, wanted: str) -> str:
    """A value of one type of PTX as one of another: bits are kept, and none are added but zeros,
    or the sign of what has one."""
    have, to = _c_type(type_), _c_type(wanted)
    if have == to:
        return value
    if "bool" in (have, to):
        raise NotTranslated(f"a predicate as `{type_ if to == 'bool' else wanted}`")
    if have in _FLOATS.values():
        value = f"lab::bits<uint{bits_of(type_)}_t>({value})"
    if to in _FLOATS.values():
        return f"lab::bits<{to}>(uint{bits_of(wanted)}_t({value}))"
    return f"{to}({value})"
