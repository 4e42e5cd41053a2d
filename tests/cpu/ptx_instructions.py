"""Instructions of PTX, each with what a GPU makes of some words.

$0 is the result and $1, $2 are the words given, all of 32 bits. Lane 0 of one warp is asked.
"""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np


def f(x: float) -> int:
    """The bits of a float."""
    return int(struct.unpack("<I", struct.pack("<f", x))[0])


def h(x: float) -> int:
    """Of a half."""
    return int(np.float16(x).view(np.uint16))


def b(x: float) -> int:
    """Of a bfloat16."""
    return int(np.array(x, ml_dtypes.bfloat16).view(np.uint16))


def e4(x: float) -> int:
    """Of an e4m3."""
    return int(np.array(x, ml_dtypes.float8_e4m3fn).view(np.uint8))


def e5(x: float) -> int:
    """Of an e5m2."""
    return int(np.array(x, ml_dtypes.float8_e5m2).view(np.uint8))


def hh(low: float, high: float) -> int:
    """Of two halves."""
    return h(low) | h(high) << 16


def bb(low: float, high: float) -> int:
    """Of two of bfloat16."""
    return b(low) | b(high) << 16


M = 0xFFFFFFFF
INSTRUCTIONS: list[tuple[str, tuple[int, ...], int]] = [
    ("add.s32 $0, $1, $2;", (M, 5), 4),
    ("add.sat.s32 $0, $1, $2;", (0x7FFFFFFF, 5), 0x7FFFFFFF),
    ("sub.s32 $0, $1, $2;", (3, 5), M - 1),
    ("mul.lo.s32 $0, $1, $2;", (0x10001, 0x10001), 0x20001),
    ("mul.hi.u32 $0, $1, $2;", (M, M), 0xFFFFFFFE),
    ("mul.hi.s32 $0, $1, $2;", (M, 7), M),
    ("mad.lo.s32 $0, $1, $2, $1;", (7, M), 0),
    ("mad.hi.u32 $0, $1, $2, $2;", (0x80000000, 4), 6),
    ("mul24.lo.s32 $0, $1, $2;", (0xFFFFFF, 3), M - 2),
    (
        "{.reg .b64 t; mul.wide.s32 t, $1, $2; cvt.u32.u64 $0, t; "
        "shr.u64 t, t, 32; cvt.u32.u64 $0, t;}",
        (M, 5),
        M,
    ),
    (
        "{.reg .b64 t; mad.wide.u32 t, $1, $2, 1; shr.u64 t, t, 32; cvt.u32.u64 $0, t;}",
        (M, M),
        0xFFFFFFFE,
    ),
    ("div.s32 $0, $1, $2;", (M - 6, 2), M - 2),
    ("rem.s32 $0, $1, $2;", (M - 6, 4), M - 2),
    ("div.u32 $0, $1, $2;", (M, 16), 0xFFFFFFF),
    ("abs.s32 $0, $1;", (M - 4,), 5),
    ("neg.s32 $0, $1;", (5,), M - 4),
    ("min.s32 $0, $1, $2;", (M, 5), M),
    ("min.u32 $0, $1, $2;", (M, 5), 5),
    ("max.s32 $0, $1, $2;", (M, 5), 5),
    ("and.b32 $0, $1, $2;", (12, 10), 8),
    ("xor.b32 $0, $1, $2;", (12, 10), 6),
    ("not.b32 $0, $1;", (0,), M),
    ("cnot.b32 $0, $1;", (0,), 1),
    ("shl.b32 $0, $1, $2;", (1, 31), 1 << 31),
    ("shl.b32 $0, $1, $2;", (1, 32), 0),
    ("shr.u32 $0, $1, $2;", (M, 40), 0),
    ("shr.s32 $0, $1, $2;", (0x80000000, 40), M),
    ("shf.l.wrap.b32 $0, $1, $2, 8;", (0x12345678, 0x9ABCDEF0), 0xBCDEF012),
    ("shf.r.clamp.b32 $0, $1, $2, 40;", (0x12345678, 0x9ABCDEF0), 0x9ABCDEF0),
    ("shf.r.wrap.b32 $0, $1, $2, 40;", (0x12345678, 0x9ABCDEF0), 0xF0123456),
    ("lop3.b32 $0, $1, $2, 0xff00ff00, 0xea;", (0x0000FFFF, 0x0F0F0F0F), 0xFF00FF0F),
    ("lop3.b32 $0, $1, $2, $1, 0x96;", (0x1234, 0xFF), 0xFF),
    ("prmt.b32 $0, $1, $2, 0x5410;", (0x33221100, 0x77665544), 0x55441100),
    ("prmt.b32 $0, $1, $2, 0x8;", (0x80, 0), 0x808080FF),
    ("bfe.u32 $0, $1, 4, 8;", (0xABCDEF12,), 0xF1),
    ("bfe.s32 $0, $1, 4, 8;", (0xABCDEF12,), 0xFFFFFFF1),
    ("bfe.u32 $0, $1, 28, 8;", (0xABCDEF12,), 0xA),
    ("bfe.s32 $0, $1, 28, 8;", (0xABCDEF12,), 0xFFFFFFFA),
    ("bfe.u32 $0, $1, 0, 32;", (0xABCDEF12,), 0xABCDEF12),
    ("bfi.b32 $0, $1, $2, 8, 8;", (0xFF, 0x12345678), 0x1234FF78),
    ("bfi.b32 $0, $1, $2, 28, 8;", (0xFF, 0), 0xF0000000),
    ("bfind.u32 $0, $1;", (0x1000,), 12),
    ("bfind.s32 $0, $1;", (M,), M),
    ("bfind.s32 $0, $1;", (0xFFFFFFF0,), 3),
    ("bfind.shiftamt.u32 $0, $1;", (0x1000,), 19),
    ("popc.b32 $0, $1;", (0xF0F0,), 8),
    ("clz.b32 $0, $1;", (1,), 31),
    ("clz.b32 $0, $1;", (0,), 32),
    ("brev.b32 $0, $1;", (1,), 1 << 31),
    ("sad.u32 $0, $1, $2, $2;", (3, 10), 17),
    ("dp4a.s32.s32 $0, $1, $2, $2;", (0x01FF0203, 0x01010101), (1 - 1 + 2 + 3 + 0x01010101)),
    ("dp4a.u32.u32 $0, $1, $2, 0;", (0x01FF0203, 0x01010101), 261),
    ("{.reg .b32 lo; add.cc.u32 lo, $1, $2; addc.u32 $0, 0, 0;}", (M, 1), 1),
    ("{.reg .b32 lo; sub.cc.u32 lo, $1, $2; subc.u32 $0, 0, 0;}", (0, 1), M),
    ("{.reg .b32 lo; mad.lo.cc.u32 lo, $1, $2, $1; addc.u32 $0, 0, 0;}", (M, 1), 1),
    ("{.reg .pred p; setp.lt.s32 p, $1, $2; selp.b32 $0, 7, 9, p;}", (M, 0), 7),
    ("{.reg .pred p, q; setp.lt.u32 p|q, $1, $2; selp.b32 $0, 7, 9, q;}", (M, 0), 7),
    (
        "{.reg .pred p, q; setp.eq.s32 q, $1, $1; "
        "setp.ge.and.s32 p, $1, $2, q; selp.u32 $0, 1, 0, p;}",
        (5, 5),
        1,
    ),
    (
        "{.reg .pred p, q; setp.eq.s32 q, $1, $2; "
        "setp.ge.or.s32 p, $1, $2, !q; selp.u32 $0, 1, 0, p;}",
        (1, 5),
        1,
    ),
    ("{.reg .pred p; setp.gtu.f32 p, $1, $2; selp.u32 $0, 1, 0, p;}", (0x7FC00000, f(1)), 1),
    ("{.reg .pred p; setp.gt.f32 p, $1, $2; selp.u32 $0, 1, 0, p;}", (0x7FC00000, f(1)), 0),
    ("{.reg .pred p; setp.nan.f32 p, $1, $1; selp.u32 $0, 1, 0, p;}", (0x7FC00000,), 1),
    ("set.lt.u32.s32 $0, $1, $2;", (M, 0), M),
    ("set.gt.f32.s32 $0, $1, $2;", (1, 0), f(1)),
    ("slct.b32.s32 $0, 3, 4, $1;", (M,), 4),
    ("add.f32 $0, $1, $2;", (f(1.5), f(2.25)), f(3.75)),
    ("add.rz.f32 $0, $1, $2;", (f(1), f(2**-24)), f(1)),
    ("add.rp.f32 $0, $1, $2;", (f(1), f(2**-30)), f(1 + 2**-23)),
    ("fma.rn.f32 $0, $1, $2, $2;", (f(1 + 2**-23), f(-1)), f(-(1 + 2**-23) - 1)),
    ("mul.sat.f32 $0, $1, $2;", (f(3), f(2)), f(1)),
    (
        "{.reg .b16 x, y; cvt.u16.u32 x, $1; cvt.u16.u32 y, $2; "
        "fma.rn.relu.f16 x, x, y, y; cvt.u32.u16 $0, x;}",
        (h(1), h(-3)),
        0,
    ),
    ("min.f32 $0, $1, $2;", (0x7FC00000, f(2)), f(2)),
    ("max.NaN.f32 $0, $1, $2;", (0x7FC00000, f(2)), 0x7FC00000),
    ("ex2.approx.ftz.f32 $0, $1;", (f(3),), f(8)),
    ("lg2.approx.f32 $0, $1;", (f(8),), f(3)),
    ("rcp.approx.ftz.f32 $0, $1;", (f(4),), f(0.25)),
    ("rsqrt.approx.f32 $0, $1;", (f(4),), f(0.5)),
    ("sqrt.rn.f32 $0, $1;", (f(9),), f(3)),
    ("div.full.f32 $0, $1, $2;", (f(9), f(2)), f(4.5)),
    ("copysign.f32 $0, $1, $2;", (f(-1), f(3)), f(-3)),
    ("neg.f32 $0, $1;", (f(2),), f(-2)),
    ("abs.f32 $0, $1;", (f(-2),), f(2)),
    ("add.f16x2 $0, $1, $2;", (hh(1, 2), hh(0.5, -4)), hh(1.5, -2)),
    ("fma.rn.f16x2 $0, $1, $2, $1;", (hh(1, 2), hh(0.5, -4)), hh(1.5, -6)),
    ("max.f16x2 $0, $1, $2;", (hh(1, 2), hh(0.5, 4)), hh(1, 4)),
    ("neg.f16x2 $0, $1;", (hh(1, -2),), hh(-1, 2)),
    ("fma.rn.bf16x2 $0, $1, $2, $2;", (bb(1.5, 2), bb(2, -1)), bb(5, -3)),
    ("mul.bf16x2 $0, $1, $2;", (bb(1.5, 2), bb(2, -1)), bb(3, -2)),
    ("ex2.approx.f16x2 $0, $1;", (hh(1, 3),), hh(2, 8)),
    ("tanh.approx.f32 $0, $1;", (f(0),), f(0)),
    (
        "{.reg .pred p, q; setp.lt.f16x2 p|q, $1, $2; selp.u32 $0, 1, 0, q;}",
        (hh(5, 1), hh(1, 5)),
        1,
    ),
    ("set.lt.f16x2.f16x2 $0, $1, $2;", (hh(5, 1), hh(1, 5)), hh(0, 1)),
    ("cvt.rni.s32.f32 $0, $1;", (f(2.5),), 2),
    ("cvt.rzi.s32.f32 $0, $1;", (f(-2.9),), M - 1),
    ("cvt.rmi.s32.f32 $0, $1;", (f(-2.1),), M - 2),
    ("cvt.rpi.u32.f32 $0, $1;", (f(2.1),), 3),
    ("cvt.rzi.u32.f32 $0, $1;", (f(-5),), 0),
    ("cvt.rzi.s32.f32 $0, $1;", (f(1e20),), 0x7FFFFFFF),
    ("cvt.rn.f32.s32 $0, $1;", (M,), f(-1)),
    ("cvt.rn.f32.u32 $0, $1;", (M,), f(4294967296.0)),
    ("cvt.rmi.f32.f32 $0, $1;", (f(-2.1),), f(-3)),
    ("cvt.s32.s8 $0, $1;", (0x80,), 0xFFFFFF80),
    ("cvt.u32.u8 $0, $1;", (0x180,), 0x80),
    ("cvt.sat.u8.s32 $0, $1;", (300,), 255),
    ("cvt.sat.s8.s32 $0, $1;", (M - 300,), 0xFFFFFF80),
    ("cvt.u32.u16 $0, $1;", (0x12345,), 0x2345),
    ("{.reg .b16 t; cvt.rn.f16.f32 t, $1; cvt.u32.u16 $0, t;}", (f(1.0009765),), h(1.0009765)),
    ("{.reg .b16 t; mov.b32 {t, _}, $1; cvt.f32.f16 $0, t;}", (h(3.5),), f(3.5)),
    ("{.reg .b16 t; cvt.rn.bf16.f32 t, $1; cvt.u32.u16 $0, t;}", (f(1.005),), b(1.005)),
    ("cvt.rn.f16x2.f32 $0, $1, $2;", (f(2), f(1)), hh(1, 2)),
    ("cvt.rz.f16x2.f32 $0, $1, $2;", (f(2), f(1.9999)), hh(1.999, 2)),
    ("cvt.rn.bf16x2.f32 $0, $1, $2;", (f(2), f(1)), bb(1, 2)),
    ("cvt.rn.relu.bf16x2.f32 $0, $1, $2;", (f(-2), f(1)), b(1)),
    (
        "{.reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, $1, $2; cvt.u32.u16 $0, t;}",
        (f(-3.3), f(0.017)),
        e4(0.017) | e4(-3.3) << 8,
    ),
    (
        "{.reg .b16 t; cvt.rn.satfinite.e4m3x2.f32 t, $1, $2; cvt.u32.u16 $0, t;}",
        (f(1000), f(0.002)),
        e4(0.002) | e4(448) << 8,
    ),
    (
        "{.reg .b16 t; cvt.rn.satfinite.e5m2x2.f32 t, $1, $2; cvt.u32.u16 $0, t;}",
        (f(1.3), f(3e-5)),
        e5(3e-5) | e5(1.3) << 8,
    ),
    (
        "{.reg .b16 t; cvt.u16.u32 t, $1; cvt.rn.f16x2.e4m3x2 $0, t;}",
        (e4(1.5) | e4(-0.015625) << 8,),
        hh(1.5, -0.015625),
    ),
    (
        "{.reg .b16 t; cvt.rn.satfinite.e4m3x2.f16x2 t, $1; cvt.u32.u16 $0, t;}",
        (hh(2.5, -7),),
        e4(2.5) | e4(-7) << 8,
    ),
    ("cvt.rna.tf32.f32 $0, $1;", (f(1 + 2**-11),), f(1 + 2**-10)),
    ("{.reg .b64 t; mov.b64 t, {$1, $2}; mov.b64 {_, $0}, t;}", (5, 9), 9),
    ("{.reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a};}", (0x12345678,), 0x56781234),
    (
        "{.reg .f64 d; cvt.f64.f32 d, $1; mul.f64 d, d, 0d4000000000000000; cvt.rn.f32.f64 $0, d;}",
        (f(1.25),),
        f(2.5),
    ),
    ("mov.u32 $0, %laneid;", (), 0),
    ("mov.u32 $0, %ntid.x;", (), 32),
    ("mov.u32 $0, %lanemask_lt;", (), 0),
    ("mov.u32 $0, %lanemask_ge;", (), M),
    ("mov.u32 $0, WARP_SZ;", (), 32),
    ("{.reg .pred p; setp.eq.u32 p, lane, 0; vote.sync.ballot.b32 $0, p, -1;}", (), 1),
    (
        "{.reg .pred p; setp.lt.u32 p, lane, 40; "
        "vote.sync.all.pred p, p, -1; selp.u32 $0, 1, 0, p;}",
        (),
        1,
    ),
    ("redux.sync.add.s32 $0, $1, -1;", (3,), 96),
    ("redux.sync.max.u32 $0, lane, -1;", (), 31),
    ("match.any.sync.b32 $0, $1, -1;", (5,), M),
    ("match.any.sync.b32 $0, lane, -1;", (), 1),
    ("{.reg .pred p; elect.sync $0|p, -1; selp.u32 $0, 1, 0, p;}", (), 1),
    ("shfl.sync.down.b32 $0, lane, 3, 31, -1;", (), 3),
    (
        "{.reg .b32 l; .reg .pred p; shfl.sync.up.b32 l|p, lane, 1, 0, -1; selp.u32 $0, 1, 0, p;}",
        (),
        0,
    ),
    ("shfl.sync.idx.b32 $0, lane, 9, 0x181f, -1;", (), 1),
    ("shfl.sync.bfly.b32 $0, lane, 16, 31, -1;", (), 16),
    ("{.reg .pred p; setp.eq.u32 p, 0, 0; bar.red.popc.u32 $0, 0, p;}", (), 32),
]


def instruction_ptx() -> str:
    """A kernel that stores the results in their order."""
    lines, count = [], 0
    for i, (text, given, _) in enumerate(INSTRUCTIONS):
        names = [f"%v{count + k}" for k in range(len(given) + 1)]
        count += len(names)
        moved = [f"mov.b32 {name}, {one};" for name, one in zip(names[1:], given, strict=True)]
        for k, name in enumerate(names):
            text = text.replace(f"${k}", name)
        lines += [*moved, text, f"@%first st.global.b32 [%out+{4 * i}], {names[0]};"]
    return "\n".join(
        [
            ".version 8.5\n.target sm_90\n.address_size 64",
            ".visible .entry k(.param .u64 .ptr .global .align 4 k_0) {",
            f".reg .b32 %v<{count}>; .reg .b64 %out; .reg .pred %first; .reg .b32 lane;",
            "mov.u32 lane, %laneid; setp.eq.u32 %first, lane, 0;",
            "ld.param.u64 %out, [k_0]; cvta.to.global.u64 %out, %out;",
            *lines,
            "ret;\n}\n",
        ]
    )
