"""nvJitLink, which makes machine code of PTX."""

from __future__ import annotations

from collections.abc import Sequence

from labtools.problem.text import first_line

from .apart import OWN_LIMIT_S, allowed_s, run_compiler


def link_ptx(texts: Sequence[str], arch: str, name: str) -> tuple[bytes, str, str]:
    """One cubin of all of them, what was said, and why there is no nvJitLink.

    Raises CompileError: it was stopped.
    """
    data = [text.encode() for text in texts]
    return run_compiler(lambda: _link(data, arch, name), name, allowed_s(OWN_LIMIT_S))


def _link(texts: Sequence[bytes], arch: str, name: str) -> tuple[bytes, str, str]:
    try:
        from cuda.bindings import nvjitlink

        options = [f"-arch={arch}", "-verbose", "-lineinfo"]
        linker = nvjitlink.create(len(options), options)
    except Exception as error:  # a missing library surfaces as any of several types
        return b"", "", f"{type(error).__name__}: {first_line(str(error))}"

    def read(what: str) -> bytes:
        held = bytearray(getattr(nvjitlink, f"get_{what}_size")(linker))
        getattr(nvjitlink, f"get_{what}")(linker, held)
        return bytes(held)

    try:
        for data in texts:
            nvjitlink.add_data(linker, nvjitlink.InputType.PTX, data, len(data), name)
        nvjitlink.complete(linker)
        made, log = read("linked_cubin"), read("info_log")
    except nvjitlink.nvJitLinkError as error:
        made, log = b"", read("error_log") + f"\n{error}".encode()
    finally:
        nvjitlink.destroy(linker)
    return made, log.decode("utf-8", "replace").replace("\0", ""), ""
