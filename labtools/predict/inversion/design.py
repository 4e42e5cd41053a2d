"""What a derivation against a bound comes to, of whatever operation."""

from __future__ import annotations

from dataclasses import dataclass

from .capacity import SharedLimits
from .layouts import AlignmentProof, LayoutChoice
from .parts import AnyDesign
from .traffic import SlopePoint


@dataclass(frozen=True)
class BoundDesign(AnyDesign):
    """A tile, derived against the bound of its operation."""

    op: str  # such as ``gemm`` or ``prefill``
    workload: str  # its short form
    target: float  # share of the bound that is aimed at
    bound: str  # what takes longest at its peak, such as ``memory`` or ``matrix units``
    floor_us: float  # the time of that bound
    target_us: float  # the floor over the target
    reaches_target: bool  # whether the expected time is within the target
    layouts: tuple[LayoutChoice, ...]  # the paddings and xor beside each other
    alignment: tuple[AlignmentProof, ...]  # a proof for each kind of access
    shared: SharedLimits  # what the sheet and the compiler say of shared memory
    slope: tuple[SlopePoint, ...]  # least traffic by size of a buffer
    # kernel, knobs: the shipped kernel that this specifies, with its knobs; None where there is
    # none
    kernel: str | None
    knobs: dict[str, int] | None
    stops: str  # where analysis stops

    @property
    def specified(self) -> tuple[str, dict[str, int]] | None:
        """The shipped kernel to build and its knobs, or None where there is none."""
        return None if self.kernel is None or self.knobs is None else (self.kernel, self.knobs)
