"""Machine code for tests, from the text of its instructions."""

from __future__ import annotations

from labtools.toolchain.sass import Sass, parse_listing

HIGH = 0x000FE20000000000
"""Upper half of an encoding without scoreboards."""


def listing_of(*lines: str, entry: str = "k", arch: str = "sm_90", high: int = HIGH) -> str:
    """A listing of instructions in order; a line that ends with a colon is a label."""
    shown = [f"\t.target {arch}", f'\t.section .text.{entry},"ax",@progbits']
    address = 0
    for line in lines:
        if line.endswith(":"):
            shown.append(line)
            continue
        shown.append(f"        /*{address:04x}*/      {line} ;   /* 0x{0:016x} */")
        shown.append(f"                                        /* 0x{high:016x} */")
        address += 16
    return "\n".join(shown)


def code_of(*lines: str, entry: str = "k", arch: str = "sm_90") -> Sass:
    """The kernel of `listing_of`."""
    return parse_listing(listing_of(*lines, entry=entry, arch=arch), entry)
