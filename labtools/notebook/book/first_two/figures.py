"""Which element each thread of a launch owns, and how the threads of a block join their sums."""

from __future__ import annotations

from labtools.problem import Launch

from ...figures import SHADES, Axes, draw_arrow, draw_box, draw_sketch
from ...tables import Shown

_LANES = 32


def owners_drawing(launch: Launch, count: int) -> Shown:
    """The warps of each block with the elements that they own, one a thread, and the lanes of the
    warp in which a vector of ``count`` elements ends."""
    threads, warps = launch.num_threads, launch.num_threads // _LANES
    last = (count - 1) // _LANES * _LANES  # first element of the warp in which the vector ends
    block, warp = last // threads, last % threads // _LANES
    idle = last + _LANES - count

    def paint(axes: Axes) -> None:
        for row in range(launch.num_blocks):
            axes.text(1.5, 0.55 * row + 0.22, f"block {row}", ha="right", va="center", fontsize=9)
            for column in range(warps):
                first = row * threads + column * _LANES
                spot, owned = (1.6 + 1.6 * column, 0.55 * row), min(max(count - first, 0), _LANES)
                name = f"{first} to {first + owned - 1}" if owned else "nothing"
                draw_box(axes, spot, (1.5, 0.44), dashed=owned < _LANES)
                if owned:
                    draw_box(axes, spot, (1.5 * owned / _LANES, 0.44), shade=SHADES[2])
                middle = (spot[0] + 0.75, spot[1] + 0.22)
                axes.text(*middle, name, ha="center", va="center", fontsize=8)
        top = 0.55 * launch.num_blocks + 0.55
        below = (2.35 + 1.6 * warp, 0.55 * block + 0.46)
        draw_arrow(axes, below, (below[0], top - 0.3))
        for line, name in enumerate(("lane", "element", "lane", "element")):
            here = top + 0.2 + 0.4 * line + 0.25 * (line // 2)
            axes.text(1.5, here, name, ha="right", va="center", fontsize=9)
        for lane in range(_LANES):
            owns = last + lane < count
            half, place = divmod(lane, _LANES // 2)
            spot = (1.6 + 0.394 * place, top + 1.05 * half)
            draw_box(axes, spot, (0.394, 0.4), f"{lane}", shade=SHADES[3], fontsize=7)
            name, shade = (f"{last + lane}", SHADES[2]) if owns else ("", "white")
            spot = (spot[0], spot[1] + 0.4)
            draw_box(axes, spot, (0.394, 0.4), name, shade=shade, dashed=not owns, fontsize=6.5)

    return draw_sketch(
        paint,
        f"{launch.num_blocks} blocks of {threads} threads, each cut into {warps} warps of {_LANES} "
        f"threads, with the elements that they own, {threads} a block. The vector ends in warp "
        f"{warp} of block {block}: its lanes 0 to {_LANES - 1 - idle} own elements {last} to "
        f"{count - 1}, and its other {idle} lanes and all warps behind it own none.",
        f"{count} elements: each warp with its elements, and the lanes of the last warp that owns "
        "some",
        extent=(8.0, 0.55 * launch.num_blocks + 2.45),
        size=(4.9, 2.7),
        word="computed",
    )


def tree_drawing(launch: Launch) -> Shown:
    """The sums of a block's threads, step by step halved: who adds, and whose sum is added."""
    threads, width = launch.num_threads, 6.4
    left = [threads >> step for step in range(threads.bit_length())]  # sums before each step

    def paint(axes: Axes) -> None:
        for row, sums in enumerate(left):
            top, size = 0.75 * row, width / threads
            told = f"{sums} sums" if sums > 1 else "the total"
            axes.text(1.5, top + 0.2, told, ha="right", va="center", fontsize=9)
            for number in range(sums):
                shade = SHADES[2] if number < max(1, sums // 2) else SHADES[1]
                draw_box(axes, (1.6 + size * number, top), (size, 0.4), shade=shade)
            if sums > 1:
                middle = 1.6 + size * sums / 4
                draw_arrow(axes, (middle + size * sums / 2, top + 0.42), (middle, top + 0.73))
                beside = (1.8 + size * sums, top + 0.2)
                adds = f"threads 0 to {sums // 2 - 1} add" if sums > 2 else "thread 0 adds"
                if sums < threads:
                    axes.text(*beside, adds, va="center", fontsize=8)

    steps = "; ".join(f"{sums} sums become {sums // 2}" for sums in left[:-1])
    return draw_sketch(
        paint,
        f"The sums of {threads} threads side by side. In each step the threads of the lower half "
        f"each add one sum of the upper half to their own: {steps}.",
        f"{threads} sums become one: the lower half (blue) adds the upper half (orange), "
        f"{len(left) - 1} times",
        extent=(8.1, 0.75 * len(left) - 0.3),
        size=(4.9, 3.3),
        word="computed",
    )
