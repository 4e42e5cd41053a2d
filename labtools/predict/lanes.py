"""Who runs a launch, and what its parameters and buffers hold before it does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from labtools.problem import Launch, TensorMap
from labtools.problem.rung import Struct, argument_bytes
from labtools.toolchain.options import split_arch

BUFFER_SPACING = 1 << 40
"""Buffers lie this far apart, so that an address says which buffer it is in."""
PARAMETERS_AT = 1 << 60
"""Where the constant bank lies in the address space of all memory: far beyond the buffers."""
TENSOR_MAP_BYTES, TENSOR_MAP_ALIGNMENT = 128, 64
MOST_ASSUMED = 1 << 22
"""Numbers of a workspace, at most, whose content is taken as known."""


@dataclass(frozen=True)
class Lanes:
    """Who runs: lane i is thread ``thread[i]`` of block ``block[i]``."""

    block: np.ndarray  # [N, 3] block index x, y, z
    thread: np.ndarray  # [N, 3] thread index x, y, z
    grid: tuple[int, int, int]
    block_shape: tuple[int, int, int]
    # constant bank 0 as bytes by offset: (first offset, values) of the parameters
    bank: bytes = field(repr=False)
    # every lane is a warp of its own, so that each may run ahead of the others
    independent: bool = False
    # by address, what the copy engine is told
    tensor_maps: Mapping[int, TensorMap] = field(default_factory=dict, repr=False)

    @property
    def count(self) -> int:
        """Number of lanes."""
        return len(self.block)

    @cached_property
    def linear_thread(self) -> np.ndarray:
        """Thread number in its block."""
        x, y, _ = self.block_shape
        return self.thread[:, 0] + x * (self.thread[:, 1] + y * self.thread[:, 2])

    @cached_property
    def lane(self) -> np.ndarray:
        """Lane 0..31 in its warp."""
        return (self.linear_thread % 32).astype(np.uint32)

    @cached_property
    def warp(self) -> np.ndarray:
        """Warp number from 0; warps of different blocks are different."""
        x, y, _ = self.grid
        block = self.block[:, 0] + x * (self.block[:, 1] + y * self.block[:, 2])
        per_block = -(-int(np.prod(self.block_shape)) // 32)
        code = block.astype(np.int64) * per_block + self.linear_thread // 32
        return np.unique(code, return_inverse=True)[1].reshape(-1)

    @cached_property
    def true(self) -> np.ndarray:
        """A predicate that holds everywhere."""
        return np.ones(self.count, bool)

    @cached_property
    def _constants(self) -> dict[int, np.ndarray]:
        return {}

    def constant(self, value: int) -> np.ndarray:
        """The same 32 bits on every lane; the array is shared and must not be written to."""
        found = self._constants.get(value)
        if found is None:
            found = self._constants[value] = np.full(self.count, value, np.uint32)
        return found

    def parameter(self, offset: int) -> np.ndarray | None:
        """32 bits of constant bank 0, or None where its content is not known."""
        if offset < 0 or offset + 4 > len(self.bank):
            return None
        return self.constant(int.from_bytes(self.bank[offset : offset + 4], "little"))

    def special(self, name: str) -> np.ndarray | None:
        """A special register such as ``SR_TID.X``."""
        register, _, axis_name = name.rpartition(".")
        axis = {"X": 0, "Y": 1, "Z": 2}.get(axis_name, 0)
        if register in ("SR_TID", "SR_CTAID"):
            index = self.thread if register == "SR_TID" else self.block
            return index[:, axis].astype(np.uint32)
        if register in ("SR_NTID", "SR_NCTAID"):
            return self.constant((self.block_shape if register == "SR_NTID" else self.grid)[axis])
        if name == "SR_LANEID":
            return self.lane
        if name in ("SRZ", "SR_CgaCtaId", "SR_CgaSize"):
            return self.constant(0)
        return None


@dataclass(frozen=True)
class Buffers:
    """Addresses and known contents of a launch's buffers."""

    names: tuple[str, ...]  # buffer names; number i lies at ``(i + 1) * BUFFER_SPACING``
    # integer arrays that decide trip counts (lengths, block tables), by name
    contents: Mapping[str, np.ndarray]
    bytes: Mapping[str, int]  # size of each buffer, where known
    # what integer workspaces are taken to hold, by name, for want of their content
    assumed: Mapping[str, np.ndarray] = field(default_factory=dict)
    # what atomic counters gave to each block, by (kernel, instruction, round, block); written while
    # one thread of every block is followed, read when a block is
    tickets: dict[tuple[str, int, int, int], int] = field(default_factory=dict, repr=False)
    # what the inputs hold, by name, where jumps that depend on data are followed
    data: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)

    def address_of(self, name: str) -> int:
        """First byte."""
        return (self.names.index(name) + 1) * BUFFER_SPACING

    def name_at(self, address: int) -> str | None:
        """The buffer in which an address lies."""
        number = int(address) // BUFFER_SPACING - 1
        return self.names[number] if 0 <= number < len(self.names) else None

    def read(
        self, address: np.ndarray, width_bytes: int, words: int, deciding: bool = False
    ) -> list[np.ndarray | None]:
        """What 32-bit words a load finds, None where unknown; ``deciding``: in `data` too."""
        number = (address // np.uint64(BUFFER_SPACING)).astype(np.int64) - 1
        if not len(number) or (number != number[0]).any() or not 0 <= number[0] < len(self.names):
            return [None] * words
        name = self.names[int(number[0])]
        content = self.contents.get(name, self.assumed.get(name))
        if content is None and deciding:
            content = self.data.get(name)
        if content is None:
            return [None] * words
        raw = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        offset = (address % np.uint64(BUFFER_SPACING)).astype(np.int64)
        found: list[np.ndarray | None] = []
        for word in range(words):
            size = min(4, width_bytes)
            place = offset[:, None] + 4 * word + np.arange(size)
            inside = (place < len(raw)).all(axis=1)
            place = np.minimum(place, max(0, len(raw) - 1))
            value = np.zeros(len(address), np.uint32)
            for byte in range(size):
                value |= raw[place[:, byte]].astype(np.uint32) << np.uint32(8 * byte)
            found.append(np.where(inside, value, np.uint32(0)))
        return found


def parameter_base(arch: str) -> int:
    """First byte of kernel parameters in constant bank 0 (EIATTR_PARAM_CBANK of cubins)."""
    major, _ = split_arch(arch)
    return 0x160 if major < 9 else 0x210 if major == 9 else 0x380


def constant_bank(launch: Launch, buffers: Buffers, arch: str) -> bytes:
    """Constant bank 0 of a launch: block and grid shape, and the parameters, each at a multiple of
    its size, a tensor map at one of 64 bytes."""
    base = parameter_base(arch)
    bank = bytearray(base)
    for arg in launch.args:
        raw, alignment = _parameter(arg, buffers)
        bank += bytes(-len(bank) % alignment) + raw
    bank += bytes(8)
    if base == 0x210:  # the address of the parameters, of which that of a tensor map is made
        bank[0x198:0x1A0] = (PARAMETERS_AT + base).to_bytes(8, "little")
    shape_at = 0x360 if base == 0x380 else 0
    shapes = (*launch.block, *launch.grid)
    places = (0, 4, 8, 0x10, 0x14, 0x18) if shape_at else (0, 4, 8, 0xC, 0x10, 0x14)
    for place, size in zip(places, shapes, strict=True):
        bank[shape_at + place : shape_at + place + 4] = int(size).to_bytes(4, "little")
    return bytes(bank)


def _parameter(arg: str | np.generic | TensorMap | Struct, buffers: Buffers) -> tuple[bytes, int]:
    """The bytes of an argument, and what its place is a multiple of."""
    if isinstance(arg, TensorMap):  # a kernel hands its address on, and reads none of it
        return bytes(TENSOR_MAP_BYTES), TENSOR_MAP_ALIGNMENT
    size, alignment = argument_bytes(arg)
    if isinstance(arg, str):
        return int(buffers.address_of(arg)).to_bytes(8, "little"), alignment
    if isinstance(arg, Struct):
        held = bytearray(size)
        for place, member in arg.layout[:-1]:
            raw, _ = _parameter(member, buffers)
            held[place : place + len(raw)] = raw
        return bytes(held), alignment
    return np.asarray(arg).tobytes(), alignment


def tensor_maps(launch: Launch, buffers: Buffers, arch: str) -> dict[int, TensorMap]:
    """The tensor maps of a launch by the addresses that a kernel knows them by."""
    found: dict[int, TensorMap] = {}
    place = parameter_base(arch)
    for arg in launch.args:
        raw, alignment = _parameter(arg, buffers)
        place += -place % alignment
        if isinstance(arg, TensorMap):
            found[PARAMETERS_AT + place] = arg
        place += len(raw)
    return found


def lanes_of_block(launch: Launch, buffers: Buffers, arch: str, block: int = 0) -> Lanes:
    """Every thread of one block."""
    return _lanes(launch, buffers, arch, np.array([block]), np.arange(launch.num_threads))


def lanes_of_blocks(
    launch: Launch, buffers: Buffers, arch: str, blocks: np.ndarray, thread: int = 0
) -> Lanes:
    """One thread of each of some blocks, for what differs between blocks."""
    return _lanes(launch, buffers, arch, blocks, np.array([thread]), independent=True)


def _lanes(
    launch: Launch,
    buffers: Buffers,
    arch: str,
    blocks: np.ndarray,
    threads: np.ndarray,
    independent: bool = False,
) -> Lanes:
    return Lanes(
        np.repeat(_indices(blocks, launch.grid), len(threads), axis=0),
        np.tile(_indices(threads, launch.block), (len(blocks), 1)),
        launch.grid,
        launch.block,
        constant_bank(launch, buffers, arch),
        independent,
        tensor_maps(launch, buffers, arch),
    )


def _indices(number: np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    x, y, _ = shape
    return np.stack([number % x, number // x % y, number // (x * y)], axis=1)


def make_buffers(
    launches: Iterable[Launch], contents: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> Buffers:
    """Lay out every buffer that some launches name: ``sizes`` are their bytes, ``contents`` what is
    known of integer inputs, such as lengths, int32 [B]."""
    names: dict[str, None] = {}
    assumed: dict[str, np.ndarray] = {}
    # Sums over what is known, as of lengths of sequences, are what an offset into it would be.
    sums = {len(known) + 1: known for known in contents.values() if known.ndim == 1}
    for launch in launches:
        names |= dict.fromkeys(launch.named)
        for one in launch.workspace:
            if one.name in contents or one.dtype not in ("int32", "uint32", "int64"):
                continue
            if len(one.shape) == 1 and one.shape[0] in sums:
                content = np.r_[0, np.cumsum(sums[one.shape[0]])]
            else:
                content = np.arange(min(int(np.prod(one.shape)), MOST_ASSUMED))
            assumed[one.name] = content.astype(one.dtype)
    return Buffers(tuple(names), dict(contents), dict(sizes), assumed)
