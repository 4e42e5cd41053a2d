"""How many methods a round takes on each axis: slots apportioned by the gaps, exactly.

The source of this loop shares its three slots in proportion to the gaps, but gives (0.92, 0.57,
0.61) as 2, 0, 1, which no proportional rule gives: so the rule is a choice. Divisor methods:
Balinski and Young, Fair Representation (1982), chapter 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from labtools.problem import LabError

from .gaps import Gaps
from .method import METHOD_AXES, Axis

# fmt: off
ApportionmentRule = Literal[
    "largest-remainder", "dhondt", "sainte-lague", "adams", "hill", "squared", "fill-largest"
]
# fmt: on
DEFAULT_RULE: ApportionmentRule = "largest-remainder"
SLOTS = 3  # methods a round. Source: the loop's V2.
CAP = 2  # most of them on one axis. Source: the loop's V2.
DEFAULT_BRANCHES = 4  # candidates a round. Source: the loop's V2.
NEGLIGIBLE = 0.10  # a gap below this gets no slot. Source: the loop's V2.


@dataclass(frozen=True)
class Budget:
    """Slots for methods on each axis."""

    # compute, memory, latency: slots
    compute: int
    memory: int
    latency: int
    rule: ApportionmentRule  # that shared them out
    reason: str  # why, in sentences

    def of(self, axis: Axis) -> int:
        """The slots of one axis."""
        found: int = getattr(self, axis)
        return found

    @property
    def total(self) -> int:
        """The slots of all axes."""
        return self.compute + self.memory + self.latency


Seats = dict[Axis, int]
_Weights = Mapping[Axis, Fraction]
_Order = Callable[[Axis], tuple[float, ...]]  # who comes first among equals: the greatest


def rule_named(name: str) -> ApportionmentRule:
    """The rule of a name."""
    for one in get_args(ApportionmentRule):
        if one == name:
            return one  # type: ignore[no-any-return]
    raise LabError(
        f"There is no rule {name!r} to share slots out by.",
        f"the rules are {', '.join(get_args(ApportionmentRule))}",
        f"name one of them; {DEFAULT_RULE} is the default",
    )


def allocate(
    gaps: Gaps,
    rule: str = DEFAULT_RULE,
    slots: int = SLOTS,
    cap: int = CAP,
    negligible: float = NEGLIGIBLE,
    rising: Sequence[Axis] = (),
) -> Budget:
    """Share slots out over the axes whose gap is known and not negligible. Axes in ``rising`` win a
    tie, then the larger gap, then the order of the axes; fewer are given where the caps leave no
    room."""
    chosen = rule_named(rule)
    if slots < 0 or cap < 0:
        raise LabError(
            f"{slots} slots with at most {cap} an axis cannot be shared out.",
            "a number of slots is 0 or more",
            f"the usual {SLOTS} with {CAP}",
        )
    weights: dict[Axis, Fraction] = {}
    said = []
    for axis in METHOD_AXES:
        gap = gaps.of(axis)
        if gap is None:
            said.append(f"The {axis} gap is missing, so {axis} gets no slot.")
        elif gap < negligible or gap <= 0:
            close = f"{gap:.2f}" == f"{negligible:.2f}"  # rounded it would not look smaller
            shown = f"{gap:.6g}" if close else f"{gap:.2f}"
            said.append(f"The {axis} gap {shown} is negligible, below {negligible:.2f}.")
        else:
            weights[axis] = Fraction(gap)

    def order(axis: Axis) -> tuple[float, ...]:
        return (axis in rising, float(weights[axis]), -METHOD_AXES.index(axis))

    given = min(slots, cap * len(weights))
    seats: Seats = dict.fromkeys(METHOD_AXES, 0)
    seats |= _RULES[chosen](weights, given, cap, order)
    shared = ", ".join(f"{axis} {seats[axis]}" for axis in METHOD_AXES)
    said.insert(0, f"By {chosen}: {shared}.")
    said += [f"The {axis} gap rose two rounds running." for axis in METHOD_AXES if axis in rising]
    if given < slots:
        said.append(f"{slots - given} of {slots} slots are left: at most {cap} go to an axis.")
    return Budget(**seats, rule=chosen, reason=" ".join(said))


def _largest_remainder(weights: _Weights, slots: int, cap: int, order: _Order) -> Seats:
    """Whole parts of the quotas, then the largest remainders; who would pass the cap gets it, and
    the others share what is left."""
    seats: Seats = {}
    open_to = dict(weights)
    while open_to:
        whole = sum(open_to.values())
        left = slots - sum(seats.values())
        quotas = {axis: left * weight / whole for axis, weight in open_to.items()}
        full = [axis for axis, quota in quotas.items() if quota > cap]
        if not full:
            break
        seats |= dict.fromkeys(full, cap)
        for axis in full:
            del open_to[axis]
    else:
        return seats
    seats |= {axis: math.floor(quota) for axis, quota in quotas.items()}
    by_remainder = sorted(
        quotas, key=lambda axis: (quotas[axis] - seats[axis], order(axis)), reverse=True
    )
    for axis in by_remainder[: slots - sum(seats.values())]:
        seats[axis] += 1
    return seats


def _by_divisors(
    priority: Callable[[Fraction, int], Fraction | float],
) -> Callable[[_Weights, int, int, _Order], Seats]:
    """The rule that gives slot after slot to whom it is worth most."""

    def share_out(weights: _Weights, slots: int, cap: int, order: _Order) -> Seats:
        seats: Seats = dict.fromkeys(weights, 0)
        for _ in range(slots):
            axis = max(
                (axis for axis in weights if seats[axis] < cap),
                key=lambda axis: (priority(weights[axis], seats[axis]), order(axis)),
            )
            seats[axis] += 1
        return seats

    return share_out


def _fill_largest(weights: _Weights, slots: int, cap: int, order: _Order) -> Seats:
    """The largest gap gets as much as it may, then the next."""
    seats: Seats = {}
    for axis in sorted(weights, key=lambda axis: (weights[axis], order(axis)), reverse=True):
        seats[axis] = min(cap, slots - sum(seats.values()))
    return seats


def _squared(weights: _Weights, slots: int, cap: int, order: _Order) -> Seats:
    squares = {axis: weight * weight for axis, weight in weights.items()}
    return _largest_remainder(squares, slots, cap, order)


_RULES: Mapping[ApportionmentRule, Callable[[_Weights, int, int, _Order], Seats]] = {
    "largest-remainder": _largest_remainder,
    "dhondt": _by_divisors(lambda weight, seats: weight / (seats + 1)),
    "sainte-lague": _by_divisors(lambda weight, seats: weight / (2 * seats + 1)),
    "adams": _by_divisors(lambda weight, seats: weight / seats if seats else math.inf),
    # By its square, weight squared over n(n + 1): the order is the same, and exact.
    "hill": _by_divisors(
        lambda weight, seats: weight**2 / (seats * (seats + 1)) if seats else math.inf
    ),
    "squared": _squared,
    "fill-largest": _fill_largest,
}
