"""What a derivation against a bound comes to, of whatever operation."""

from __future__ import annotations

from dataclasses import dataclass

from .capacity import SharedLimits
from .layouts import AlignmentProof, LayoutChoice
from .parts import AnyDesign
from .traffic import SlopePoint


@dataclass(frozen=True)
class BoundDesign(AnyDesign):
    """A tile, derived against the bound of its operation.

    Attributes:
        op: such as ``gemm`` or ``prefill``.
        workload: its short form.
        target: share of the bound that is aimed at.
        bound: what takes longest at its peak, such as ``memory`` or ``matrix units``.
        floor_us: the time of that bound.
        target_us: the floor over the target.
        reaches_target: whether the expected time is within the target.
        layouts: the paddings and xor beside each other.
        alignment: a proof for each kind of access.
        shared: what the sheet and the compiler say of shared memory.
        slope: least traffic by size of a buffer.
        kernel, knobs: the shipped kernel that this specifies, with its knobs; None where there is
            none.
        stops: where analysis stops.
    """

    op: str
    workload: str
    target: float
    bound: str
    floor_us: float
    target_us: float
    reaches_target: bool
    layouts: tuple[LayoutChoice, ...]
    alignment: tuple[AlignmentProof, ...]
    shared: SharedLimits
    slope: tuple[SlopePoint, ...]
    kernel: str | None
    knobs: dict[str, int] | None
    stops: str

    @property
    def specified(self) -> tuple[str, dict[str, int]] | None:
        """The shipped kernel to build and its knobs, or None where there is none."""
        return None if self.kernel is None or self.knobs is None else (self.kernel, self.knobs)
