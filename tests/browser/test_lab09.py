"""Lab 9: the game plays whole in the browser, as the loop itself goes, and a link restores it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from driver import (
    Server,
    expect,
    fits_the_screen,
    open_notebook,
    run_all,
    shoot,
    unrun_cells,
    wait_for,
)
from test_lab07 import answer_in_cell
from test_labs import in_sight, kernel_is_idle
from test_loop_recorded import DROPPED, OTHER_FORM, TO_DROPPED

from labtools.notebook.labs.lab09_loop import view
from labtools.notebook.labs.lab09_loop.view import open_game, read_game
from labtools.notebook.static_page import site_script
from labtools.optimize import loop
from labtools.optimize.bench import RecordedBench
from labtools.optimize.branch import variants
from labtools.optimize.budget import DEFAULT_BRANCHES, DEFAULT_RULE
from labtools.optimize.family import METHOD_AXES, Point
from labtools.optimize.loop import open_loop
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.pick import Retry, Taken, retried_form, retried_settings
from labtools.optimize.searches import Searches
from labtools.optimize.state import METHOD_CLASSES, LoopState, RoundKept
from labtools.problem.rung import say_knobs

LAB09 = "labs/lab09_loop.md"
ANSWERS = 2
SEED, ROUNDS, RESTARTED = 0, 4, 3
WORDS = {name: name.replace("_", " ") for name in METHOD_CLASSES}


@pytest.fixture(scope="module")
def read() -> tuple[RecordedBench, Searches]:
    return read_game()


@dataclass(frozen=True)
class Reference:
    """The loop's own play of a game, a round after the other."""

    folder: Path
    bench: RecordedBench

    def rounds(self) -> Iterator[tuple[LoopState, LoopState, str]]:
        """Each round: with its branches run, when it is over, and what of the frontier it began
        from, or nothing."""
        family, steps = self.bench.family, self.folder
        loop.init(
            *(steps, family, self.bench.problem, "recorded", SEED, DEFAULT_BRANCHES, DEFAULT_RULE)
        )
        for number in range(1, ROUNDS + 1):
            begun = self._restart() if number == RESTARTED else ""
            with open_loop(steps, family) as played:
                played.gaps()
                played.budget()
                if not played.pick().current.methods or played.branch().stopped:
                    return
                tried = played.ablate()
                played.check()
                yield tried, played.update(), begun

    def _restart(self) -> str:
        """The next round begins from the fastest of the frontier; its key."""
        with LoopFolder.opened(self.folder) as opened:
            frontier = opened.state.frontier
            fastest = min(range(len(frontier)), key=lambda entry: frontier[entry].time_us)
            opened.restart(fastest)
            return frontier[fastest].point


def game(page: Any) -> Any:
    return page.locator(".lt-loop")


def press(page: Any, name: str) -> None:
    game(page).get_by_role("button", name=name).click()


def say_time(time_us: float) -> str:
    return f"{time_us:.2f} us"


def share_out(page: Any, slots: list[int]) -> None:
    for axis, count in enumerate(slots):
        page.locator(".lt-loop-axis").nth(axis).get_by_role("radio").nth(count).check()
    press(page, "Commit the slots")


def predict(page: Any, factor: str) -> None:
    game(page).get_by_role("radio", name="faster").check()
    game(page).get_by_label("by a factor of").fill(factor)
    press(page, "Commit prediction")


def play_round(
    page: Any, bench: RecordedBench, tried: LoopState, done: LoopState, begun: str
) -> None:
    """Take a round of the loop by clicks, and find what the loop found, and nothing before."""
    family, methods, now = bench.family, tried.current.methods, game(page)
    axes = [family.method(name).axis for name in methods]
    if begun:
        place = str(bench.grid.number(family.read_key(begun)))
        now.get_by_label("This round begins from").select_option(value=place)
    share_out(page, [axes.count(axis) for axis in METHOD_AXES])
    for name in methods:
        page.locator(f'[data-method="{name}"]').check()
    press(page, "Take these methods")
    best_us = min(one.time_us for one in tried.current.branches if one.time_us is not None)
    expect(page.locator(".lt-loop-now")).not_to_contain_text(say_time(best_us))
    predict(page, "2")
    expect(page.locator(".lt-loop-now")).not_to_contain_text(say_time(best_us))
    for box in page.locator("[data-point]").all():
        box.uncheck()
    for one in tried.current.branches:
        number = bench.grid.number(family.read_key(one.point))
        page.locator(f'[data-point="{number}"]').check()
    press(page, "Time them")
    expect(page.locator(".lt-loop-now .lt-loop-branches tbody tr").first).to_contain_text(
        say_time(best_us)
    )
    expect(page.locator(".lt-loop-now .lt-loop-verdict")).to_contain_text("You said: 2.00 times")
    press(page, "Ablate")
    expect(page.locator(".lt-loop-now .lt-loop-verdict")).to_have_count(1)  # the prediction's
    classes = done.history[-1].classes
    assert classes is not None
    ordered = [one.id for one in family.switchable if one.id in methods]
    for number, name in enumerate(ordered):
        named = WORDS["undecided"] if number else WORDS[classes[name]]
        fields = page.locator(".lt-loop-classes").nth(number)
        fields.get_by_role("radio", name=named, exact=True).check()
    press(page, "Commit the classes")
    told = page.locator(".lt-loop-past").last.locator(".lt-loop-removal .lt-loop-verdict")
    expect(told.first).to_contain_text(f"You were right: {WORDS[classes[ordered[0]]]}")
    for number, name in enumerate(ordered):
        expect(told.nth(number)).to_contain_text(WORDS[classes[name]])
    assert done.time_us is not None
    status = now.locator(".lt-loop-status")
    expect(status).to_contain_text(say_time(done.time_us))
    fastest_us = min(one.time_us for one in done.timed if one.time_us is not None)
    expect(status).to_contain_text(
        f"The fastest after {done.runs} runs takes {say_time(fastest_us)}"
    )
    expect(status).not_to_contain_text("leads")
    offered = now.get_by_label("This round begins from").locator("option")
    places = {int(one.get_attribute("value")) for one in offered.all()}
    frontier = {bench.grid.number(family.read_key(one.point)) for one in done.frontier}
    assert places == {bench.grid.number(family.read_key(done.point)), *frontier}


def play_game(page: Any, bench: RecordedBench, searches: Searches, folder: Path) -> LoopState:
    """A whole game against the loop's own, to its end."""
    last, family = None, bench.family
    for tried, done, begun in Reference(folder, bench).rounds():
        play_round(page, bench, tried, done, begun)
        last = done
    assert last is not None
    assert len(last.history) >= 3
    best = bench.best_leading()
    assert best is not None
    assert best[0].key not in game(page).inner_text(), "the best of the grid is told too soon"
    press(page, "End the game")
    expect(page.locator(".lt-loop-result")).to_contain_text(best[0].key)
    best_us = min(one.time_us for one in last.timed if one.time_us is not None)
    result = page.locator(".lt-loop-result")
    expect(result).to_contain_text(f"{best_us / searches.best_us:.3f} times")
    expect(result).to_contain_text(f"after {last.runs} runs in {len(last.history)} rounds")
    expect(page.locator(".lt-loop-plot path")).to_have_count(len(searches.searches) + 1)
    rounds = page.locator(".lt-loop-migration tbody tr")
    expect(rounds).to_have_count(len(last.history))
    for number in range(1, len(last.history) + 1):
        begun = rounds.nth(number - 1).locator('[data-column="from"]')
        from_us = bench.time([family.read_key(last.history[number - 1].start)])
        expect(begun).to_contain_text(
            say_time(from_us.median_us(family.read_key(last.history[number - 1].start)))
        )
        again = re.compile("a candidate of round|the start")
        (
            expect(begun).to_contain_text
            if number == RESTARTED
            else expect(begun).not_to_contain_text
        )(again)
    expect(page.locator(".lt-loop-scores")).to_contain_text("Directions right:")
    return last


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until what the selector names has the focus."""
    reached = f"document.activeElement?.matches({json.dumps(selector)})"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(reached):
            return
    raise AssertionError(f"no Tab leads to {selector}")


def play_by_keyboard(page: Any) -> None:
    """The first steps without a mouse; the focus follows to each new step."""
    page.locator(".lt-loop-axis input").first.focus()
    for axis in METHOD_AXES:
        page.keyboard.press("ArrowRight")
        if axis != METHOD_AXES[-1]:
            page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".lt-loop h4").first).to_be_focused()
    for name in ("compute.tensor_core", "memory.group_of_heads", "latency.split_sequences"):
        tab_to(page, f'[data-method="{name}"]')
        page.keyboard.press("Space")
    tab_to(page, ".lt-loop-buttons button")
    page.keyboard.press("Enter")
    expect(page.locator(".lt-loop h4")).to_be_focused()
    expect(page.locator(".lt-loop h4")).to_contain_text("Your prediction")
    tab_to(page, '.lt-loop input[value="faster"]')
    page.keyboard.press("Space")
    tab_to(page, ".lt-loop input[type=number]")
    page.keyboard.type("dd9")  # letters that are shortcuts of Jupyter
    tab_to(page, ".lt-loop .lt-gate .lt-gate-button")
    page.keyboard.press("Enter")
    expect(page.locator(".lt-loop h4")).to_contain_text("Branches")
    tab_to(page, ".lt-loop-buttons button")
    page.keyboard.press("Enter")
    expect(page.locator(".lt-loop-now .lt-loop-branches tbody tr")).to_have_count(DEFAULT_BRANCHES)


def not_sideways(page: Any, which: str = ".lt-loop-wide") -> bool:
    """Whether every table of the game fits its place, and there is one."""
    wide = "one => one.scrollWidth > one.clientWidth + 1"
    tables = page.locator(which).all()
    return bool(tables) and not any(one.evaluate(wide) for one in tables)


def give_one_axis_all(page: Any) -> None:
    """Slots of one axis alone: nothing of the others can be chosen, and what the rules give is
    folded. Then the slots are shared out again."""
    share_out(page, [1, 0, 0])
    expect(page.locator(".lt-loop-rules p")).to_be_hidden()
    groups = page.locator(".lt-loop-now .lt-loop-methods")
    for number, axis in enumerate(METHOD_AXES):
        legend = groups.nth(number).locator("legend")
        expect(legend).to_have_text(f"{axis}: no slot" if number else f"{axis}: 1 method at most")
        boxes = groups.nth(number).locator("input[type=checkbox]").all()
        assert boxes
        assert all(box.is_disabled() == bool(number) for box in boxes)
    press(page, "Share the slots out again")


def open_site(page: Any, address: str) -> None:
    page.goto("about:blank")  # the same page with another fragment would not be loaded
    page.goto(address)
    game(page).locator("h4").first.wait_for()


def play_on_the_site(
    page: Any, site: Path, read: tuple[RecordedBench, Searches], folder: Path
) -> None:
    """A game by clicks, its link, a broken link, a phone, the keyboard."""
    address = (site / "labs/lab09_loop.html").as_uri()
    open_site(page, address)
    page.set_viewport_size({"width": 390, "height": 844})
    assert fits_the_screen(page, ".lt-loop")
    shoot(page, "static-lab09-phone-start", game(page))
    page.set_viewport_size({"width": 1280, "height": 1000})
    give_one_axis_all(page)
    play_game(page, *read, folder)
    shoot(page, "static-lab09-end", game(page))
    assert not_sideways(page)
    link = page.url
    assert "#loop=" in link
    shown = game(page).inner_text()
    page.set_viewport_size({"width": 390, "height": 844})
    open_site(page, link)
    expect(page.locator(".lt-loop-result")).to_be_visible()
    assert fits_the_screen(page, ".lt-loop")
    assert not_sideways(page)
    shoot(page, "static-lab09-phone-end", game(page))
    page.set_viewport_size({"width": 1280, "height": 1000})
    assert game(page).inner_text() == shown
    # A link into the middle of a round, and links that cannot be played.
    text = link.split("#loop=")[1]
    begun = "~".join(text.split("~")[:3]).rsplit("-", 2)[0]
    open_site(page, f"{address}#loop={begun}")
    expect(game(page).locator("h4")).to_contain_text("Branches")
    for broken, why in (
        (text.replace("1~", "1~0", 1), "another version"),
        (f"{begun}-99999", "does not keep to the rules"),
        ("nonsense", "no moves of this game"),
    ):
        open_site(page, f"{address}#loop={broken}")
        expect(page.locator(".lt-loop-error").first).to_contain_text(why)
    # Without a link the reader's own run is there again, though links of others were opened since.
    open_site(page, address)
    expect(page.locator(".lt-loop-result")).to_be_visible()
    assert page.url == link
    press(page, "Start over")
    play_by_keyboard(page)
    held = page.url
    press(page, "Start over")
    expect(page.locator(".lt-loop-error").first).to_contain_text(
        "The moves of the run that you left"
    )
    page.get_by_text("Share this run, or open another").click()
    page.get_by_label("A link or the moves of a run").fill(held)
    press(page, "Open")
    expect(game(page).locator("h4")).to_contain_text("Ablation")
    assert page.url == held


def moves_of(
    bench: RecordedBench, searches: Searches, rounds: Iterable[tuple[Sequence[str], str, str]]
) -> str:
    """The moves of a game, as a link has them.

    Args:
        bench: of the grid that is played.
        searches: that the game shows beside.
        rounds: of each its methods, its one branch, and what is guessed: the branch's time, with
            the class of each method behind.
    """
    tables, family = open_game(bench, searches).tables, bench.family
    numbers = {one["id"]: number for number, one in enumerate(tables["methods"])}
    places = {one["number"]: place for place, one in enumerate(tables["points"])}
    parts = ["1", tables["version"]]
    for methods, branch, guessed in rounds:
        axes = [family.method(name).axis for name in methods]
        slots = "".join(str(axes.count(axis)) for axis in METHOD_AXES)
        chosen = ".".join(str(number) for number in sorted(numbers[name] for name in methods))
        place = places[bench.grid.number(family.read_key(branch))]
        factor, _, classes = guessed.partition(" ")
        parts.append(f"{slots}-{chosen}-{factor}-{place}-x{classes}")
    return "~".join(parts)


def moves_to_dropped(bench: RecordedBench, searches: Searches) -> str:
    """The moves of a game whose last round has a method that the compiler dropped."""
    rounds = ((methods, branch, f"e {'0' * len(methods)}") for methods, branch in TO_DROPPED)
    return moves_of(bench, searches, rounds)


def try_again(page: Any, site: Path, bench: RecordedBench, searches: Searches) -> None:
    """What the compiler dropped is offered again for a sentence that names a form."""
    address = (site / "labs/lab09_loop.html").as_uri()
    open_site(page, f"{address}#loop={moves_to_dropped(bench, searches)}")
    past = page.locator(".lt-loop-past").last.locator(".lt-loop-removal .lt-loop-verdict")
    expect(past).to_contain_text("It is implementation failed")
    share_out(page, [1, 0, 0])
    page.locator(f'[data-method="{DROPPED}"]').check()
    told, field = page.locator(".lt-loop-now .lt-loop-error"), page.locator(".lt-loop-again input")
    expect(told).to_contain_text("nobody wrote why")
    field.last.fill("once more, please")
    expect(told).to_contain_text("names neither a form")
    said = "a form with warps=8 ~ (not 4-5_!) * it's \u201c100 %\u201d <b>"
    field.last.fill(said)
    expect(told).to_contain_text("not timed yet")
    shoot(page, "static-lab09-again", game(page))
    press(page, "Take these methods")
    predict(page, "1.01")
    for box in page.locator("[data-point]").all():
        box.uncheck()
    number = bench.grid.number(bench.family.read_key(OTHER_FORM))
    page.locator(f'[data-point="{number}"]').check()
    press(page, "Time them")
    press(page, "Ablate")
    page.locator(".lt-loop-classes").get_by_role("radio", name="undecided").check()
    press(page, "Commit the classes")
    expect(past).not_to_contain_text("failed")
    expect(page.locator(".lt-loop-past").last).to_contain_text(said)
    shown = game(page).inner_text()
    open_site(page, page.url)
    assert game(page).inner_text() == shown


@pytest.mark.slow
def test_static_lab09_plays_whole(
    built_site: Path, page: Any, read: tuple[RecordedBench, Searches], tmp_path: Path
) -> None:
    page.context.set_offline(True)
    html = (built_site / "labs/lab09_loop.html").read_bytes()
    assert len(html) < 1_000_000
    play_on_the_site(page, built_site, read, tmp_path / "loop")
    assert page.locator(".lt-gate-static").count() == ANSWERS
    try_again(page, built_site, *read)


PLAY_DRAWN = """([tables, games, seed]) => {
  let drawn = seed;
  const draw = (some) => some[(drawn = (drawn * 48271) % 2147483647) % some.length];
  const told = [];
  for (let n = 0; n < games; n++) {
    const [moves, rounds] = [{ rounds: [], ended: false }, []];
    for (let r = 0; r < 6; r++) {
      const before = play(tables, moves);
      const move = {};
      const left = [...before.frontier.keys()];
      if (left.length && draw([0, 1, 2]) === 0) move.begin = draw(left);
      moves.rounds.push(move);
      const state = play(tables, moves);
      const choices = openChoices(tables, state).filter((methods) => {
        const slots = countAxes(tables, methods);
        return !whyNotSlots(tables, state, slots) && !whyNotMethods(tables, state, slots, methods);
      });
      if (!choices.length) { moves.rounds.pop(); break; }
      const methods = draw(choices);
      const branches = [draw(untried(tables, state, methods))];
      Object.assign(move, { slots: countAxes(tables, methods), methods, branches });
      Object.assign(move, { guess: readGuess("e"), ablated: true, classes: methods.map(() => 0) });
      const done = play(tables, moves);
      if (done.wrong) throw Error(done.wrong);
      const { ratio, gain, taken, removals } = done.rounds.at(-1);
      const found = removals.map((one) => tables.classes[one.class]);
      const began = move.begin !== undefined;
      rounds.push({ methods, found, ratio, gain, taken, began, settled: { ...done.classes } });
    }
    told.push(rounds);
  }
  return told;
}"""
"""Plays drawn games and tells of each round what it found and what is believed after it."""
GAMES = 150


def test_the_game_believes_what_the_loop_believes(
    page: Any, read: tuple[RecordedBench, Searches]
) -> None:
    tables = open_game(*read).tables
    page.goto("about:blank")
    page.add_script_tag(path=Path(view.__file__).with_name("play.js"))
    seed = random.randrange(1, 2**31 - 1)
    print(f"seed {seed}")
    games = page.evaluate(PLAY_DRAWN, [tables, GAMES, seed])
    opened = restarted = 0
    for played in games:
        kept: list[RoundKept] = []
        gains: dict[int, float | None] = {}
        for number, one in enumerate(played, start=1):
            classes = {str(m): found for m, found in zip(one["methods"], one["found"], strict=True)}
            kept = [] if one["began"] else kept
            kept.append(RoundKept(number, classes=classes, gain=one["gain"]))
            gains[number] = one["ratio"] - 1
            wanted = loop.settled(kept, gains, tables["least"])
            believed = ("effective", "ineffective")
            held = {m: found for m, found in one["settled"].items() if found in believed}
            assert held == {m: found for m, found in wanted.items() if found in believed}
            opened += len(classes.keys() - wanted.keys())
            restarted += one["began"] and number > 1
    assert opened and restarted, "nothing was opened again"


UNTRIED = """([tables, asked]) => asked.map(([at, methods, dropped, said]) => {
  const classes = {};
  for (const m of Object.keys(dropped)) classes[m] = "implementation_failed";
  return untried(tables, { at, classes, dropped, known: new Set() }, methods, said);
})"""
"""Where rounds may lead beside methods that the compiler dropped."""
ROUNDS_DRAWN = 60


def test_the_game_leads_where_the_loop_may_lead(
    page: Any, read: tuple[RecordedBench, Searches]
) -> None:
    """From drawn points with drawn methods, where the compiler dropped something of what is on or
    is tried again with drawn words."""
    bench, family = read[0], read[0].family
    tables = open_game(*read).tables
    seed = random.randrange(1, 2**31 - 1)
    print(f"seed {seed}")
    draw = random.Random(seed)
    ids = [one["id"] for one in tables["methods"]]
    points = [
        bench.family.point(dict(zip(tables["knobs"], one["knobs"], strict=True)))
        for one in tables["points"]
    ]
    asked: list[Any] = []
    while len(asked) < ROUNDS_DRAWN:
        at = draw.randrange(len(points))
        choices = [name for name in tables["points"][at]["moves"] if name]
        if not choices:
            continue
        methods = [int(name) for name in draw.choice(choices).split(",")]
        dropped: dict[int, list[int]] = {}
        said: dict[int, tuple[str, Retry]] = {}
        on = [ids.index(name) for name in family.methods_on(points[at])]
        for m in {*draw.sample(on, min(2, len(on))), draw.choice(methods)}:
            form = family.form_of(points[at], ids[m])
            every = family.method(ids[m]).on
            dropped[m] = [draw.randrange(len(every)) if form is None else form]
            if m in methods:
                number = draw.randrange(len(every))
                said[m] = draw.choice(
                    [
                        ("40 registers", Retry()),
                        ("warps=4", Retry(knob="warps", value=4)),
                        ("split=4", Retry(knob="split", value=4)),
                        (say_knobs(every[number]), Retry(form=number)),
                    ]
                )
        asked.append([at, methods, dropped, said])
    page.goto("about:blank")
    page.add_script_tag(path=Path(view.__file__).with_name("play.js"))
    in_words = [
        [at, methods, dropped, {m: words for m, (words, _) in said.items()}]
        for at, methods, dropped, said in asked
    ]
    told = page.evaluate(UNTRIED, [tables, in_words])
    led = 0
    for (at, methods, dropped, said), found in zip(asked, told, strict=True):
        names = [ids[m] for m in methods]
        retries = {ids[m]: retry for m, (_, retry) in said.items()}
        taken = Taken(failed={ids[m]: tuple(f) for m, f in dropped.items()}, acknowledged=retries)
        forms: dict[str, int] = {}
        for name in retries:
            forms |= retried_form(family.method(name), taken)
        settings = retried_settings(family, retries)
        made = variants(family, points[at], names, forms, list(taken.failed), settings)
        wanted = {one for one in made if isinstance(one, Point) and bench.crowns(one)}
        assert {points[place] for place in found} == wanted, (points[at].key, names, taken)
        led += bool(wanted)
    assert 5 < led < ROUNDS_DRAWN


# ------------------------------------------------------------------- the game alone on a page

HARMED = (
    (("memory.wide_accesses",), "width=16", "s300 0"),
    (
        ("memory.group_of_heads", "latency.split_sequences", "latency.ring_of_tiles"),
        "gqa=1 load=2 width=16 stages=3 split=4",
        "f10000 201",
    ),
    (
        ("compute.rows_together",),
        "load=2 width=16 rows=8 unroll=1 stages=3 split=4",
        "f120 0",
    ),
    (
        ("latency.more_warps",),
        "load=2 width=16 rows=8 unroll=1 stages=3 warps=4 split=4",
        "s300 3",
    ),
)
"""Two of these rounds have a method that harms."""
PAGE_ALONE = """<!DOCTYPE html><meta charset="utf-8"><title>game</title>
<style>{style}</style><script>{site}</script>
<p><a href="#the-rules">The rules</a></p><h2 id="the-rules">The rules</h2><div id="game"></div>
<script type="module">
const values = {{ tables: {tables}, moves: "", runs_us: [] }};
const model = {{
  get: (name) => values[name],
  set: (name, value) => {{ values[name] = value; }},
  save_changes() {{}}, on() {{}}, off() {{}},
}};
{script}
// A widget of the site comes after the page.
window.addEventListener("load", () => renderGame({{ model, el: document.getElementById("game") }}));
</script>"""


@pytest.fixture(scope="module")
def alone(
    read: tuple[RecordedBench, Searches], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    """The address of a page that has the game alone, as the site does; and the game's tables."""
    tables = open_game(*read).tables
    file = tmp_path_factory.mktemp("alone") / "game.html"
    file.write_text(
        PAGE_ALONE.format(
            style=view.LoopGame._css,
            site=site_script(),
            tables=json.dumps(tables).replace("</", "<\\/"),
            script=view.LoopGame._esm.replace("export default", "void"),
        )
    )
    return file.as_uri(), tables


@pytest.fixture(scope="module")
def harmed(read: tuple[RecordedBench, Searches]) -> str:
    """The moves of a whole game with `HARMED`'s rounds."""
    return f"{moves_of(*read, HARMED)}~end"


def stored(page: Any) -> str | None:
    """The reader's own run, as the browser keeps it."""
    kept: str | None = page.evaluate("localStorage.getItem('fieldguide:loop')")
    return kept


def give_a_slot(page: Any) -> str:
    """The first move of a game; the reader's own run after it."""
    share_out(page, [1, 1, 1])
    kept = stored(page)
    assert kept is not None
    return kept


def test_every_search_is_drawn_in_a_way_of_its_own(
    page: Any, alone: tuple[str, dict[str, Any]], harmed: str
) -> None:
    address, tables = alone
    open_site(page, f"{address}#loop={harmed}")
    for drawn in (".lt-loop-plot path", ".lt-loop-keys line"):
        lines = page.locator(drawn).all()
        looks = [
            (one.get_attribute("stroke-dasharray"), one.get_attribute("stroke-width"))
            for one in lines
        ]
        assert len(looks) == len(set(looks)) == len(tables["searches"]) + 1


def test_the_table_of_rounds_tells_what_each_kept(
    page: Any, alone: tuple[str, dict[str, Any]], harmed: str
) -> None:
    """The gain stands beside the kernel that it is of, and equals from over kept."""
    open_site(page, f"{alone[0]}#loop={harmed}")
    rows = page.locator(".lt-loop-migration tbody tr")

    def cells(number: int) -> dict[str, str]:
        return {
            cell.get_attribute("data-column"): cell.inner_text()
            for cell in rows.nth(number - 1).locator("td").all()
        }

    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 1000})
        assert not_sideways(page, ".lt-loop-migration")
    second, last = cells(2), cells(4)
    assert second["champion"] == "113.06 us"
    assert re.fullmatch(r"91\.58 us, without .+", second["kept"])
    assert second["gain of what is kept"] == "+486.9 %"
    assert last["champion"] == "61.78 us"
    assert last["kept"] == "52.71 us, where it began"
    assert last["gain of what is kept"] == "none"
    past = page.locator(".lt-loop-past").last.inner_text
    page.locator(".lt-loop-past").last.locator("summary").first.click()
    assert re.search(r"The champion loses [0-9.]+ %, and without .+ it gains 0\.0 %", past())
    assert not re.search(r"gains? (of )?[-\u2212]", past())


def test_an_arrow_of_a_drawing_is_explained(
    page: Any, alone: tuple[str, dict[str, Any]], harmed: str
) -> None:
    open_site(page, f"{alone[0]}#loop={harmed}")
    for past in page.locator(".lt-loop-past > summary").all():
        past.click()
    arrows = 0
    for one in page.locator(".lt-loop-removal").all():
        arrow = one.locator(".lt-loop-interval path").count()
        told = "beyond the end of the drawing" in one.inner_text()
        assert told == bool(arrow)
        assert bool(arrow) == (
            "beyond the end" in one.locator(".lt-loop-interval").get_attribute("aria-label")
        )
        arrows += arrow
    assert arrows


def test_moves_that_break_a_rule_are_told_with_their_round(
    page: Any, alone: tuple[str, dict[str, Any]], harmed: str
) -> None:
    page.goto(alone[0])
    version, *rounds = harmed.split("~")[1:]
    for text, number in (
        ("999-7", 1),
        ("120-99", 1),
        (f"{rounds[0]}~999", 2),
        (f"{rounds[0]}~012-99", 2),
    ):
        open_site(page, f"{alone[0]}#loop=1~{version}~{text}")
        expect(page.locator(".lt-loop-error").first).to_contain_text(f"Round {number} of these")


def test_a_link_leaves_the_readers_own_run_alone(
    page: Any, alone: tuple[str, dict[str, Any]]
) -> None:
    address, tables = alone
    open_site(page, address)
    own = give_a_slot(page)
    linked = f"1~{tables['version']}~210"
    open_site(page, f"{address}#loop={linked}")
    expect(game(page)).to_contain_text("not your own")
    press(page, "Share the slots out again")
    share_out(page, [0, 1, 2])
    assert stored(page) == own
    played = page.url
    assert played.endswith("~012")
    page.reload()
    expect(game(page)).to_contain_text("Slots 0/1/2")
    assert (page.url, stored(page)) == (played, own)
    press(page, "Back to your own run")
    expect(game(page)).to_contain_text("Slots 1/1/1")
    expect(game(page)).not_to_contain_text("not your own")
    assert page.url.endswith(own)
    # What a text in the field opens is apart as well, until its reader keeps it.
    page.get_by_text("Share this run, or open another").click()
    page.get_by_label("A link or the moves of a run").fill(linked)
    press(page, "Open")
    expect(game(page)).to_contain_text("Slots 2/1/0")
    assert stored(page) == own
    press(page, "Keep it as your own")
    assert stored(page) == linked
    expect(page_told(page)).to_contain_text(own)
    expect(game(page)).not_to_contain_text("not your own")
    # Who has no run of their own loses nothing by playing on.
    press(page, "Start over")
    open_site(page, f"{address}#loop={linked}")
    expect(game(page)).not_to_contain_text("not your own")
    press(page, "Share the slots out again")
    assert give_a_slot(page).endswith("~111")


def page_told(page: Any) -> Any:
    """What the game says of the run as a whole."""
    return page.locator(".lt-loop-error").first


def test_a_link_that_cannot_be_played_shows_the_own_run(
    page: Any, alone: tuple[str, dict[str, Any]]
) -> None:
    wrong: list[Any] = []
    page.on("pageerror", lambda error: wrong.append(error))
    open_site(page, alone[0])
    own = give_a_slot(page)
    for garbage in ("garbage", "1~00000000~111", "%", "%E0%A4%A", "1~%zz~111", ""):
        open_site(page, f"{alone[0]}#loop={garbage}")
        if garbage:
            expect(page_told(page)).to_contain_text("Your own run is shown.")
        expect(game(page)).to_contain_text("Slots 1/1/1")
        assert page.url.endswith(own)
        assert stored(page) == own
    open_site(page, f"{alone[0]}#%E0%A4%A")
    assert not wrong


def test_the_pages_own_links_leave_the_run_in_the_address(
    page: Any, alone: tuple[str, dict[str, Any]]
) -> None:
    linked = f"1~{alone[1]['version']}~210"
    open_site(page, f"{alone[0]}#loop={linked}")
    page.get_by_role("link", name="The rules").click()
    page.wait_for_url(f"**#loop={linked}")
    page.reload()
    expect(game(page)).to_contain_text("Slots 2/1/0")
    # One's own earlier moves in the browser's history are no run of somebody else.
    press(page, "Share the slots out again")
    own = give_a_slot(page)
    page.go_back()
    page.wait_for_url(f"**#loop={own}")
    expect(game(page)).not_to_contain_text("not your own")


OLD_RUN = "1~00000000~111"
"""Moves of another version of the grid."""


def test_an_own_run_of_another_version_hides_no_link(
    page: Any, alone: tuple[str, dict[str, Any]]
) -> None:
    address, tables = alone
    open_site(page, address)
    page.evaluate("text => localStorage.setItem('fieldguide:loop', text)", OLD_RUN)
    linked = f"{address}#loop=1~{tables['version']}~210"
    open_site(page, linked)
    for _ in range(2):
        expect(game(page)).to_contain_text("Slots 2/1/0")
        expect(page_told(page)).to_contain_text("This browser kept moves of yours.")
        expect(page_told(page)).to_contain_text("of another version of the grid")
        assert page.url == linked
        page.reload()


def test_an_own_run_of_another_version_is_told(
    page: Any, alone: tuple[str, dict[str, Any]]
) -> None:
    """It was in the address when the grid was renewed; then the browser has it alone."""
    open_site(page, alone[0])
    give_a_slot(page)
    page.evaluate(
        """text => {
          localStorage.setItem("fieldguide:loop", text);
          history.replaceState({ loop: "own" }, "", `#loop=${text}`);
        }""",
        OLD_RUN,
    )
    why = "These moves are of another version of the grid, so they cannot be played here."
    page.reload()
    expect(page_told(page)).to_have_text(why)
    assert page.url == alone[0]
    page.reload()
    expect(page_told(page)).to_have_text(f"This browser kept moves of yours. {why}")
    give_a_slot(page)
    page.reload()
    expect(game(page)).to_contain_text("Slots 1/1/1")
    expect(page_told(page)).to_be_empty()


def test_the_way_back_from_a_link_leads_to_the_own_run(
    page: Any, alone: tuple[str, dict[str, Any]]
) -> None:
    open_site(page, alone[0])
    own = give_a_slot(page)
    page.goto(f"{alone[0]}#loop=1~{alone[1]['version']}~120")  # within the document
    expect(game(page)).to_contain_text("not your own")
    page.go_back()
    expect(game(page)).to_contain_text("Slots 1/1/1")
    expect(game(page)).not_to_contain_text("not your own")
    assert (page.url, stored(page)) == (f"{alone[0]}#loop={own}", own)
    page.go_forward()
    expect(game(page)).to_contain_text("Slots 1/2/0")
    expect(game(page)).to_contain_text("not your own")
    assert stored(page) == own


def test_an_earlier_state_of_the_own_run_is_told_as_such(
    page: Any, alone: tuple[str, dict[str, Any]], harmed: str
) -> None:
    open_site(page, f"{alone[0]}#loop={harmed}")
    page.evaluate("text => localStorage.setItem('fieldguide:loop', text)", harmed)
    parts = harmed.split("~")
    for earlier in ("~".join(parts[:3]), "~".join(parts[:4]).rsplit("-", 2)[0]):
        open_site(page, f"{alone[0]}#loop={earlier}")
        expect(game(page)).to_contain_text("an earlier state of your own run")
        expect(game(page)).not_to_contain_text("not your own")
        assert (page.url, stored(page)) == (f"{alone[0]}#loop={earlier}", harmed)
        press(page, "Back to your own run")
        expect(page.locator(".lt-loop-result")).to_be_visible()
    page.add_script_tag(path=Path(view.__file__).with_name("play.js"))
    for text, whole, wanted in (
        ("1~v~111-1", "1~v~111-1-e", True),
        ("1~v~111-1", "1~v~111-12-e", False),
        ("1~v~111-1", "1~v~111-1.2-e", False),
        ("1~v~111-1-e-3-x", "1~v~111-1-e-3-x0", True),
        ("1~v~111-1-e-3-x0", "1~v~111-1-e-3-x0~end", True),
        ("1~v~111-1-f120", "1~v~111-1-f1200", False),
        ("1~v~111-1*1*x", "1~v~111-1*1*xy-e", False),
    ):
        found = page.evaluate("([text, whole]) => isBeginning(text, whole)", [text, whole])
        assert found == wanted, (text, whole)


def test_every_tab_shows_the_own_run_as_it_stands(
    page: Any, alone: tuple[str, dict[str, Any]]
) -> None:
    address, tables = alone
    context = page.context.browser.new_context()
    page, other, linked = (context.new_page() for _ in range(3))
    open_site(page, address)
    first = give_a_slot(page)
    open_site(other, address)
    open_site(linked, f"{address}#loop=1~{tables['version']}~210")
    press(other, "Share the slots out again")
    share_out(other, [0, 1, 2])
    second = stored(other)
    assert second and second != first
    expect(game(page)).to_contain_text("Slots 0/1/2")
    expect(page_told(page)).to_contain_text("changed in another tab")
    assert page.url.endswith(second)
    expect(game(linked)).to_contain_text("Slots 2/1/0")
    expect(page_told(linked)).to_be_empty()
    # What is kept in another tab is this tab's own too, and the other way round.
    press(linked, "Keep it as your own")
    for tab in (page, other):
        expect(game(tab)).to_contain_text("Slots 2/1/0")
        expect(game(tab)).not_to_contain_text("not your own")
    press(page, "Start over")
    for tab in (other, linked):
        expect(game(tab).locator(".lt-loop-axis").first).to_be_visible()
        assert "#loop=" not in tab.url


def test_text_that_cannot_be_opened_is_told_beside_its_field(
    page: Any, alone: tuple[str, dict[str, Any]], harmed: str
) -> None:
    open_site(page, f"{alone[0]}#loop={harmed}")
    page.get_by_text("Share this run, or open another").click()
    field = page.get_by_label("A link or the moves of a run")
    field.fill("nonsense")
    press(page, "Open")
    told = page.locator(".lt-loop-share").get_by_role("status").last
    expect(told).to_have_text("These are no moves of this game.")
    expect(told).to_be_in_viewport()
    expect(field).to_have_value("nonsense")
    expect(page_told(page)).to_be_empty()


def test_the_knobs_are_explained_where_they_are_chosen(
    page: Any,
    alone: tuple[str, dict[str, Any]],
    read: tuple[RecordedBench, Searches],
    harmed: str,
) -> None:
    """Of each knob what it changes, its values and the methods that set it; folded."""
    begun = "~".join(harmed.split("~")[:4]).rsplit("-", 2)[0]
    dropped = moves_to_dropped(*read)
    for text in (begun, f"{dropped}~100"):
        open_site(page, f"{alone[0]}#loop={text}")
        folded = page.locator(".lt-loop-now .lt-loop-knobs")
        expect(folded.locator("li").first).to_be_hidden()
        folded.locator("summary").click()
        for knob in read[0].family.rung.knobs:
            expect(folded).to_contain_text(knob.doc, ignore_case=True)
        tail = folded.locator("li").filter(has_text="only the last trip of a loop")
        expect(tail).to_contain_text("“Only the last trip looks where the rows end” (1)")
    open_site(page, alone[0])
    expect(page.locator(".lt-loop-knobs")).to_have_count(0)


def test_the_bars_are_told_for_what_they_are(page: Any, alone: tuple[str, dict[str, Any]]) -> None:
    open_site(page, alone[0])
    now = page.locator(".lt-loop-now")
    expect(now).to_contain_text("the largest share of a warp's time in one kind of wait")
    assert "issue slots" in alone[1]["gaps_note"]
    expect(now).to_contain_text(alone[1]["gaps_note"])


def open_apart(page: Any) -> None:
    """In Jupyter too, another run leaves the reader's own alone, and there is a way back."""
    page.get_by_text("Share this run, or open another").click()
    moves = page.get_by_label("The moves of this run", exact=True)
    own = moves.input_value()
    assert stored(page) == own
    page.get_by_label("A link or the moves of a run").fill("~".join([*own.split("~")[:2], "210"]))
    press(page, "Open")
    expect(game(page)).to_contain_text("not your own")
    press(page, "Share the slots out again")
    share_out(page, [0, 1, 2])
    expect(moves).to_have_value(re.compile("~012$"))
    assert stored(page) == own
    press(page, "Back to your own run")
    expect(page.locator(".lt-loop-status")).to_contain_text("Round 2 begins from")
    expect(game(page)).not_to_contain_text("not your own")
    expect(moves).to_have_value(own)
    assert stored(page) == own


def test_lab09_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_notebook(page, lab_server, LAB09)
    run_all(page)
    refused = page.locator('[data-mime-type="application/vnd.jupyter.stderr"]')
    expect(refused).to_contain_text("waits for yours")
    wait_for(lambda: in_sight(page, refused), 5, "the place where the run waits to be in sight")
    game(page).scroll_into_view_if_needed()
    play_by_keyboard(page)
    press(page, "Ablate")
    for fields in page.locator(".lt-loop-classes").all():
        fields.get_by_role("radio", name="effective", exact=True).check()
    press(page, "Commit the classes")
    expect(page.locator(".lt-loop-status")).to_contain_text("Round 2 begins from")
    shoot(page, "lab09-round", game(page))
    open_apart(page)
    answer_in_cell(page, "my_share", "shares[0]")
    answer_in_cell(page, "my_often", "often[0]")
    page.set_viewport_size({"width": 390, "height": 844})
    game(page).scroll_into_view_if_needed()
    assert game(page).bounding_box()["width"] < 390
    shoot(page, "lab09-phone", game(page))
    wait_for(lambda: kernel_is_idle(lab_server, LAB09), 60, "the kernel")
    assert unrun_cells(page) > 0
