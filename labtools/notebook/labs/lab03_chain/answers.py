"""What the model says of the waits in a loop: the longest one, and the loads behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labtools.predict import LaunchForecast
from labtools.predict.result import waits_for_memory

from .figures import operation, producer_place, waited

if TYPE_CHECKING:
    from labtools.toolchain.sass import Sass


def longest_wait(launch: LaunchForecast) -> tuple[int, int | None]:
    """(place of the instruction that waits longest in a trip, place of what it waits for)."""
    links = launch.chain
    place = max(range(len(links)), key=lambda at: waited(links[at]))
    return place, producer_place(links, place)


def loads_and_uses(
    launch: LaunchForecast, sass: Sass
) -> list[tuple[int, str, float, int | None, float]]:
    """The loads of a trip in order, and where each one's result is first used.

    Returns:
        For each load: its place in the trip, its text, the cycle of its issue, the place of the
        first instruction that uses it (None if that is in the next trip), and how long that
        instruction waited, in cycles.
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
