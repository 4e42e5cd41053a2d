"""A forecast's chain, a loop's instructions in time: its figures, and what it says of the waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from labtools.predict import ChainLink, Forecast, LaunchForecast, list_gpus, load_gpu
from labtools.predict.result import waits_for_memory
from labtools.problem import LabError

from ...figures import SHADES, draw_picture
from ...tables import Shown
from .causes import cause_of, in_legend_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from labtools.toolchain.sass import Sass

_NAMED = 3
_SMALL_SHARE = 0.02
_SMALL: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8}
_BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "fontsize": 8}


def plot_chain(launch: LaunchForecast, title: str = "") -> Shown:
    """One trip of the main loop: every instruction's wait and issue, coloured by cause."""
    links = launch.chain
    if not links:
        why = "the forecast holds no instruction of it"
        raise LabError(f"There is no chain of {launch.entry} to draw.", why, "its stack is there")
    cycles = links[-1].issue
    named = [row for row in longest_waits(links, _NAMED) if waited(links[row]) > 0.015 * cycles]
    causes = in_legend_order(name for link in links for name in link.cycles)
    title = title or launch.entry
    height = min(6.4, 1.6 + 0.055 * len(links))

    def paint(axes: Axes) -> None:
        drawn: dict[str, Any] = {}
        for row, link in enumerate(links):
            for name, start, length in segments(link):
                colour = cause_of(name).colour
                bar = axes.barh(row, length, left=start, height=1.0, linewidth=0, color=colour)
                drawn.setdefault(name, bar)
        for row in named:
            link = links[row]
            length = link.issue - link.start
            place, shift, side = (link.issue, (5, 0), "left")
            if length > 0.25 * cycles:  # the text fits on the bar
                place, shift, side = (link.start + length / 2, (0, 9), "center")
            elif link.issue > 0.6 * cycles:
                place, shift, side = (link.start, (-5, 0), "right")
            text = f"{operation(link.text)} +{length:.0f}"
            axes.annotate(text, (place, row), shift, **_SMALL, va="center", ha=side)
        axes.set(xlabel="cycles of one trip", ylabel="instruction", title=title)
        axes.set_xlim(0, cycles * 1.02)
        axes.set_ylim(len(links) + 0.5, -1.5)
        axes.grid(axis="y", visible=False)
        axes.legend([drawn[name] for name in causes], causes, **_BESIDE)

    spoken = "; ".join(say_wait(links, row) for row in named)
    where = "one trip of the main loop" if launch.main_loop else "the whole kernel"
    alt = f"{title}: {len(links)} instructions in order, {cycles:.0f} cycles, {where}."
    if spoken:
        alt += f" The longest waits: {spoken}."
    caption = (
        f"{where[0].upper()}{where[1:]}, {len(links)} instructions, {cycles:.0f} cycles: each row "
        "is an instruction, its bar runs from the issue before to its own."
    )
    return draw_picture(paint, alt, caption, "forecast", size=(7.2, height))


def plot_stacks(forecasts: Mapping[str, Forecast], title: str = "") -> Shown:
    """What one warp of the longest launch waits for from start to end, one bar a forecast."""
    if not forecasts:
        raise LabError("There is no stack to draw.", "no forecast was given", "give one")
    longest = max(sum(part.cycles for part in forecast.stack) for forecast in forecasts.values())
    # A cause that is small in every bar has no place in the legend.
    parts = [part for forecast in forecasts.values() for part in forecast.stack]
    shown = {part.name for part in parts if part.share >= _SMALL_SHARE}
    causes = in_legend_order(part.name for part in parts)

    def paint(axes: Axes) -> None:
        for row, forecast in enumerate(forecasts.values()):
            cycles = {part.name: part.cycles for part in forecast.stack}
            left = 0.0
            for name in causes:
                look = cause_of(name)
                length = cycles.get(name, 0.0) / 1e3
                label = name if row == 0 and name in shown else None
                style: dict[str, Any] = {"color": look.colour, "hatch": look.hatch, "label": label}
                axes.barh(row, length, left=left, edgecolor="white", linewidth=0.4, **style)
                left += length
            said = f" {forecast.time_us:.0f} us"
            axes.text(left + longest / 1e5, row, said, va="center", fontsize=9)
        axes.set_yticks(range(len(forecasts)), list(forecasts))
        axes.invert_yaxis()
        axes.set_xlim(0, longest / 1e3 * 1.18)
        axes.set(xlabel="thousand cycles of one warp", title=title)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_color(SHADES[1])
        axes.legend(**_BESIDE)

    told = []
    for label, forecast in forecasts.items():
        large = (part for part in forecast.stack if part.share >= _SMALL_SHARE)
        shares = ", ".join(f"{part.name} {part.share:.0%}" for part in large)
        told.append(f"{label}, {forecast.time_us:.0f} us: {shares}")
    names = dict.fromkeys(forecast.gpu for forecast in forecasts.values())
    gpus = ", ".join(load_gpu(name).title if name in list_gpus() else name for name in names)
    caption = f"One warp of the longest launch, first to last cycle; {gpus}."
    alt = f"{title + '. ' if title else ''}{'. '.join(told)}."
    height = max(1.9, 0.9 + 0.45 * len(forecasts))
    return draw_picture(paint, alt, caption, "forecast", size=(7.2, height))


def segments(link: ChainLink) -> list[tuple[str, float, float]]:
    """(cause, start, cycles) of one instruction's wait, in the order in which they happen."""
    found, at = [], link.start
    for name, cycles in link.cycles.items():
        found.append((name, at, cycles))
        at += cycles
    return found


def waited(link: ChainLink) -> float:
    """Cycles from the issue before to this one, beyond the one that an issue takes."""
    return max(0.0, link.issue - link.start - link.cycles.get("issue", 0.0))


def longest_waits(links: tuple[ChainLink, ...], count: int) -> list[int]:
    """Places of the instructions that waited longest, longest first."""
    return sorted(range(len(links)), key=lambda place: -waited(links[place]))[:count]


def producer_place(links: tuple[ChainLink, ...], place: int) -> int | None:
    """Place of the instruction that one waited for, or None if it is not in the trip. A producer
    that stands at or behind its consumer belongs to the trip before.
    """
    wanted = links[place].producer
    if wanted is None:
        return None
    before = [at for at in range(place) if links[at].index == wanted]
    if before:
        return before[-1]
    return next((at for at in range(place, len(links)) if links[at].index == wanted), None)


def operation(text: str) -> str:
    """``LDG`` of ``@P0 LDG.E.64 R2, desc[UR4][R4.64]``."""
    words = text.split()
    word = words[1] if words and words[0].startswith("@") and len(words) > 1 else words[0]
    return word.split(".")[0].rstrip(";")


def say_wait(links: tuple[ChainLink, ...], place: int) -> str:
    """``HADD2 (number 12) 707 cycles for memory: DRAM, from LDG (number 3)``."""
    link = links[place]
    said = f"{operation(link.text)} (number {place}) {waited(link):.0f} cycles for {link.cause}"
    source = producer_place(links, place)
    if source is None:
        return said
    return f"{said}, from {operation(links[source].text)} (number {source})"


def longest_wait(launch: LaunchForecast) -> tuple[int, int | None]:
    """(place of the instruction that waits longest in a trip, place of what it waits for)."""
    (place,) = longest_waits(launch.chain, 1)
    return place, producer_place(launch.chain, place)


def loads_and_uses(
    launch: LaunchForecast, sass: Sass
) -> list[tuple[int, str, float, int | None, float]]:
    """Of each load of a trip its place, its text, the cycle of its issue, the place of the first
    instruction that uses it (None if that is in the next trip), and the cycles that one waited.
    """
    links = launch.chain
    code = [sass.instructions[link.index] for link in links]
    found = []
    for place, instruction in enumerate(code):
        if operation(links[place].text) != "LDG":
            continue
        wanted = set(instruction.defines)
        use = next((at for at in range(place + 1, len(code)) if wanted & set(code[at].uses)), None)
        wait = waited(links[use]) if use is not None else 0.0
        found.append((place, links[place].text, links[place].issue, use, wait))
    return found


def loads_before_first_wait(launch: LaunchForecast) -> int:
    """Loads that a trip has issued when it first waits for memory."""
    count = 0
    for link in launch.chain:
        if any(waits_for_memory(name) and cycles > 1 for name, cycles in link.cycles.items()):
            return count
        count += operation(link.text) == "LDG"
    return count
