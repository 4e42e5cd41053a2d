"""What one method is worth: the time without it against the time with it, and what can be told."""

from __future__ import annotations

from dataclasses import dataclass

from .classes import Decision


@dataclass(frozen=True)
class AA:
    """The smallest effect that can be told here, from identical kernels timed against each other.

    Args:
        effect: relative; a smaller one is noise.
        pairs: of identical kernels that it follows from.
        origin: live, recorded or forecast.
    """

    effect: float
    pairs: int
    origin: str


@dataclass(frozen=True)
class Attribution:
    """One method of a point, by the point without it; both were timed in one call.

    Args:
        method: its id.
        without: key of the point without it.
        delta_us: time without it less the time with it, microseconds; positive where it helps.
        relative: of the time with it.
        low: lower end of the 95 % interval of ``relative``.
        high: upper end.
        threshold: relative, from which an effect counts.
        decided: on which side of it the whole interval lies, or None.
    """

    method: str
    without: str
    delta_us: float
    relative: float
    low: float
    high: float
    threshold: float
    decided: Decision | None
