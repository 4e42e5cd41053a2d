"""Lab 9: the game plays whole in the browser, as the loop itself goes, and a link restores it."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from driver import Server, expect, fits_a_phone, fits_the_screen, shoot, unrun_cells, wait_for
from test_benches import open_lab
from test_labs import kernel_is_idle
from test_loop_recorded import DROPPED, OTHER_FORM, TO_DROPPED

from labtools.notebook.labs.lab09_loop import view
from labtools.notebook.labs.lab09_loop.view import open_game, read_game
from labtools.notebook.packing import pack_tables
from labtools.notebook.static_page import KIT, site_script
from labtools.optimize import loop
from labtools.optimize.bench import RecordedBench
from labtools.optimize.branch import variants
from labtools.optimize.budget import DEFAULT_BRANCHES, DEFAULT_RULE
from labtools.optimize.family import Point
from labtools.optimize.loop import open_loop
from labtools.optimize.loop_folder import LoopFolder
from labtools.optimize.method import METHOD_AXES
from labtools.optimize.pick import Retry, Taken, retried_form, retried_settings
from labtools.optimize.searches import Searches
from labtools.optimize.state import METHOD_CLASSES, LoopState, RoundKept

LAB09 = "labs/lab09_loop.md"
ANSWERS = 2
SEED, ROUNDS, RESTARTED = 0, 4, 3
WORDS = {name: name.replace("_", " ") for name in METHOD_CLASSES}


@pytest.fixture(scope="module")
def read() -> tuple[RecordedBench, Searches]:
    return read_game()


@pytest.fixture(scope="module")
def bench(read: tuple[RecordedBench, Searches]) -> RecordedBench:
    return read[0]


@pytest.fixture(scope="module")
def tables(read: tuple[RecordedBench, Searches]) -> dict[str, Any]:
    return open_game(*read).plain


def play_by_the_loop(
    bench: RecordedBench, folder: Path
) -> Iterator[tuple[LoopState, LoopState, str]]:
    """Each round of the loop's own game: with its branches run, when it is over, and what of the
    frontier it began from, or nothing."""
    family, problem = bench.family, bench.problem
    loop.init(folder, family, problem, "recorded", SEED, DEFAULT_BRANCHES, DEFAULT_RULE)
    for number in range(1, ROUNDS + 1):
        begun = begin_from_the_fastest(folder) if number == RESTARTED else ""
        with open_loop(folder, family) as played:
            played.gaps()
            played.budget()
        # A reader picks the methods of a round, and what is picked all its branches have.
        ahead = Path(shutil.copytree(folder, folder.with_name(f"ahead{number}")))
        with open_loop(ahead, family) as looked:
            picked = looked.pick().current
        with open_loop(folder, family) as played:
            if not picked.methods:
                return
            played.pick(list(picked.methods), picked.acknowledged)
            if played.branch().stopped:
                return
            tried = played.ablate()
            played.check()
            yield tried, played.update(), begun


def begin_from_the_fastest(folder: Path) -> str:
    """The next round begins from the fastest of the frontier; its key."""
    with LoopFolder.opened(folder) as opened:
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


def number_of(bench: RecordedBench, key: str) -> str:
    """Number of a point of the grid, as the page holds it."""
    return str(bench.grid.number(bench.family.read_key(key)))


def time_branches(page: Any, numbers: Iterable[str]) -> None:
    for box in page.locator("[data-point]").all():
        box.uncheck()
    for number in numbers:
        page.locator(f'[data-point="{number}"]').check()
    press(page, "Time them")


def play_round(
    page: Any, bench: RecordedBench, tried: LoopState, done: LoopState, begun: str
) -> None:
    """Take a round of the loop by clicks, and find what the loop found, and nothing before."""
    family, methods, now = bench.family, tried.current.methods, page.locator(".lt-loop-now")
    axes = [family.method(name).axis for name in methods]
    beginning = game(page).get_by_label("This round begins from")
    if begun:
        beginning.select_option(value=number_of(bench, begun))
    share_out(page, [axes.count(axis) for axis in METHOD_AXES])
    for name in methods:
        page.locator(f'[data-method="{name}"]').check()
    press(page, "Take these methods")
    best_us = min(one.time_us for one in tried.current.branches if one.time_us is not None)
    expect(now).not_to_contain_text(say_time(best_us))
    predict(page, "2")
    expect(now).not_to_contain_text(say_time(best_us))
    time_branches(page, [number_of(bench, one.point) for one in tried.current.branches])
    expect(now.locator(".lt-loop-branches tbody tr").first).to_contain_text(say_time(best_us))
    expect(now.locator(".lt-loop-verdict")).to_contain_text("You said: 2.00 times")
    press(page, "Ablate")
    expect(now.locator(".lt-loop-verdict")).to_have_count(1)  # the prediction's
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
    status = page.locator(".lt-loop-status")
    expect(status).to_contain_text(say_time(done.time_us))
    fastest = say_time(min(one.time_us for one in done.timed if one.time_us is not None))
    expect(status).to_contain_text(f"The fastest after {done.runs} runs takes {fastest}")
    places = {option.get_attribute("value") for option in beginning.locator("option").all()}
    frontier = {number_of(bench, one.point) for one in done.frontier}
    assert places == {number_of(bench, done.point), *frontier}


def play_game(page: Any, bench: RecordedBench, searches: Searches, folder: Path) -> None:
    """A whole game against the loop's own, to its end."""
    last = None
    for tried, last, begun in play_by_the_loop(bench, folder):
        play_round(page, bench, tried, last, begun)
    assert last is not None and len(last.history) >= 3
    best = bench.best_leading()
    assert best is not None
    assert best[0].key not in game(page).inner_text(), "the best of the grid is told too soon"
    press(page, "End the game")
    best_us = min(one.time_us for one in last.timed if one.time_us is not None)
    over = f"{best_us / searches.best_us:.3f} times"
    for told in (best[0].key, over, f"after {last.runs} runs in {len(last.history)} rounds"):
        expect(page.locator(".lt-loop-result")).to_contain_text(told)
    expect(page.locator(".lt-loop-plot path")).to_have_count(len(searches.searches) + 1)
    rounds = page.locator(".lt-loop-migration tbody tr")
    expect(rounds).to_have_count(len(last.history))
    for number, held in enumerate(last.history, start=1):
        began = rounds.nth(number - 1).locator('[data-column="from"]')
        start = bench.family.read_key(held.start)
        expect(began).to_contain_text(say_time(bench.time([start]).median_us(start)))
        again = re.search("a candidate of round|the start", began.inner_text())
        assert bool(again) == (number == RESTARTED)
    expect(page.locator(".lt-loop-scores")).to_contain_text("Directions right:")


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
    tab_to(page, ".lt-loop-now .lt-tools button")
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
    tab_to(page, ".lt-loop-now .lt-tools button")
    page.keyboard.press("Enter")
    expect(page.locator(".lt-loop-now .lt-loop-branches tbody tr")).to_have_count(DEFAULT_BRANCHES)


def not_sideways(page: Any, which: str = ".lt-loop .lt-table") -> bool:
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
        assert {box.is_disabled() for box in boxes} == {bool(number)}
    press(page, "Share the slots out again")


def open_site(page: Any, address: str) -> None:
    page.goto("about:blank")  # the same page with another fragment would not be loaded
    page.goto(address)
    game(page).locator("h4").first.wait_for()


def fits_both(page: Any, name: str) -> None:
    """Nothing is too wide on a phone; then the screen is wide again."""
    page.set_viewport_size({"width": 390, "height": 844})
    assert fits_the_screen(page, ".lt-loop")
    if page.locator(".lt-loop .lt-table").count():
        assert not_sideways(page)
    shoot(page, f"static-lab09-phone-{name}", game(page))
    page.set_viewport_size({"width": 1280, "height": 1000})


def moves_of(
    bench: RecordedBench, tables: dict[str, Any], rounds: Iterable[tuple[Sequence[str], str, str]]
) -> str:
    """The moves of a game, as a link has them: of each round its methods, its one branch, and what
    is guessed, of the time and then of each method."""
    family = bench.family
    numbers = {one["id"]: number for number, one in enumerate(tables["methods"])}
    places = {one["number"]: place for place, one in enumerate(tables["points"])}
    parts = ["2", tables["version"]]
    for methods, branch, guessed in rounds:
        axes = [family.method(name).axis for name in methods]
        slots = "".join(str(axes.count(axis)) for axis in METHOD_AXES)
        chosen = ".".join(map(str, sorted(numbers[name] for name in methods)))
        place = places[bench.grid.number(family.read_key(branch))]
        factor, _, classes = guessed.partition(" ")
        parts.append(f"{slots}-{chosen}-{factor}-{place}-x{classes}")
    return "~".join(parts)


def try_again(page: Any, address: str, bench: RecordedBench, tables: dict[str, Any]) -> None:
    """What the compiler dropped is offered again in another form."""
    rounds = ((methods, branch, f"e {'0' * len(methods)}") for methods, branch in TO_DROPPED)
    open_site(page, f"{address}#loop={moves_of(bench, tables, rounds)}")
    press(page, "Keep it as your own")
    past = page.locator(".lt-loop-past").last.locator(".lt-loop-removal .lt-loop-verdict")
    expect(past).to_contain_text("It is implementation failed")
    share_out(page, [1, 0, 0])
    page.locator(f'[data-method="{DROPPED}"]').check()
    told = page.locator(".lt-loop-now .lt-loop-told")
    fields = page.locator(".lt-loop-again", has=page.locator(f'[data-method="{DROPPED}"]'))
    fields.get_by_label("another knob").select_option("split")
    fields.get_by_label("its value").select_option("16")
    expect(told).to_contain_text("This leads nowhere")
    fields.get_by_label("another knob").select_option("warps")
    fields.get_by_label("its value").select_option("8")
    expect(told).to_contain_text("not timed yet")
    shoot(page, "static-lab09-again", game(page))
    press(page, "Take these methods")
    predict(page, "1.01")
    time_branches(page, [number_of(bench, OTHER_FORM)])
    press(page, "Ablate")
    page.locator(".lt-loop-classes").get_by_role("radio", name="undecided").check()
    press(page, "Commit the classes")
    expect(past).not_to_contain_text("failed")
    expect(page.locator(".lt-loop-past").last).to_contain_text("warps=8")
    shown = game(page).inner_text()
    open_site(page, page.url)
    assert game(page).inner_text() == shown


@pytest.mark.slow
def test_static_lab09_plays_whole(
    built_site: Path, page: Any, read: tuple[RecordedBench, Searches], tables: Any, tmp_path: Path
) -> None:
    """A game by clicks, its link, a phone; then a game in which the compiler dropped something."""
    page.context.set_offline(True)
    file = built_site / "labs/lab09_loop.html"
    assert file.stat().st_size < 1_000_000
    open_site(page, file.as_uri())
    fits_both(page, "start")
    give_one_axis_all(page)
    play_game(page, *read, tmp_path / "loop")
    assert not_sideways(page)
    link, shown = page.url, game(page).inner_text()
    assert "#loop=" in link
    open_site(page, link)
    expect(page.locator(".lt-loop-result")).to_be_visible()
    fits_both(page, "end")
    assert game(page).inner_text() == shown
    # Without a link the reader's own run is there again.
    open_site(page, file.as_uri())
    expect(page.locator(".lt-loop-result")).to_be_visible()
    assert page.url == link
    press(page, "Start over")
    expect(page_told(page)).to_contain_text("The moves of the run that you left")
    assert page.locator(".lt-gate-static").count() == ANSWERS
    try_again(page, file.as_uri(), read[0], tables)


PLAY_DRAWN = """([tables, games, seed]) => {
  let drawn = seed;
  const draw = (some) => some[(drawn = (drawn * 48271) % 2147483647) % some.length];
  const told = [];
  for (let n = 0; n < games; n++) {
    const [moves, rounds] = [{ rounds: [], ended: false }, []];
    for (let r = 0; r < 6; r++) {
      const left = [...play(tables, moves).frontier.keys()];
      const move = left.length && draw([0, 1, 2]) === 0 ? { begin: draw(left) } : {};
      moves.rounds.push(move);
      const state = play(tables, moves);
      const choices = Object.keys(tables.points[state.at].moves).filter(Boolean)
        .map((name) => name.split(",").map(Number))
        .filter((methods) => {
          const slots = countAxes(tables, methods);
          return !slotsTold(tables, state.at, slots)
            && !methodsTold(tables, state, { slots, methods });
        });
      if (!choices.length) { moves.rounds.pop(); break; }
      const methods = draw(choices);
      Object.assign(move, { slots: countAxes(tables, methods), methods, guess: readGuess("e"),
        branches: [draw(untried(tables, state, methods))], ablated: true,
        classes: methods.map(() => 0) });
      const done = play(tables, moves);
      if (done.wrong) throw Error(done.step);
      const { ratio, gain, removals } = done.rounds.at(-1);
      rounds.push({ methods, found: removals.map((one) => tables.classes[one.class]), ratio, gain,
        began: move.begin !== undefined, settled: { ...done.classes } });
    }
    told.push(rounds);
    const text = writeMoves(tables, moves);
    const [again, wrong] = readMoves(tables, text);
    if (wrong || writeMoves(tables, again) !== text) throw Error(text);
  }
  return told;
}"""
"""Plays drawn games and tells of each round what it found and what is believed after it."""
GAMES = 150


def load_rules(page: Any) -> None:
    page.goto("about:blank")
    for path in (KIT.with_suffix(".js"), Path(view.__file__).with_name("play.js")):
        page.add_script_tag(path=path)


def test_the_game_believes_what_the_loop_believes(page: Any, tables: dict[str, Any]) -> None:
    load_rules(page)
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


UNTRIED = """([tables, asked]) => asked.map(([at, methods, dropped, again]) => {
  const classes = {};
  for (const m of Object.keys(dropped)) classes[m] = "implementation_failed";
  return untried(tables, { at, classes, dropped, known: new Set() }, methods, again);
})"""
"""Where rounds may lead beside methods that the compiler dropped."""
ROUNDS_DRAWN = 60


def test_the_game_leads_where_the_loop_may_lead(
    page: Any, bench: RecordedBench, tables: dict[str, Any]
) -> None:
    """From drawn points with drawn methods, where the compiler dropped something of what is on or
    is tried again with drawn fields."""
    family = bench.family
    seed = random.randrange(1, 2**31 - 1)
    print(f"seed {seed}")
    draw = random.Random(seed)
    ids = [one["id"] for one in tables["methods"]]
    knobs = [dict(zip(tables["knobs"], one["knobs"], strict=True)) for one in tables["points"]]
    points = [family.point(one) for one in knobs]
    asked: list[Any] = []
    while len(asked) < ROUNDS_DRAWN:
        at = draw.randrange(len(points))
        choices = [name for name in tables["points"][at]["moves"] if name]
        if not choices:
            continue
        methods = [int(name) for name in draw.choice(choices).split(",")]
        dropped: dict[int, list[int]] = {}
        again: dict[int, Retry] = {}
        on = [ids.index(name) for name in family.methods_on(points[at])]
        for m in {*draw.sample(on, min(2, len(on))), draw.choice(methods)}:
            form = family.form_of(points[at], ids[m])
            every = family.method(ids[m]).on
            dropped[m] = [draw.randrange(len(every)) if form is None else form]
            left = [n for n in range(len(every)) if n not in dropped[m]]
            knob = draw.choice(["warps", "split"])
            if m in methods and left and draw.random() < 0.5:
                again[m] = Retry(form=draw.choice(left))
            elif m in methods and knob not in family.method(ids[m]).off:
                again[m] = Retry(form=draw.choice([None, *range(len(every))]), knob=knob, value=4)
        asked.append([at, methods, dropped, again])
    load_rules(page)
    fields = [
        [at, methods, dropped, {m: in_browser(tables, one) for m, one in again.items()}]
        for at, methods, dropped, again in asked
    ]
    told = page.evaluate(UNTRIED, [tables, fields])
    led = 0
    for (at, methods, dropped, again), found in zip(asked, told, strict=True):
        names = [ids[m] for m in methods]
        retries = {ids[m]: retry for m, retry in again.items()}
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


def in_browser(tables: dict[str, Any], retry: Retry) -> dict[str, int | None]:
    """The fields of a retry as the game has them, the knob by its number."""
    knob = tables["knobs"].index(retry.knob) if retry.knob else None
    return {"form": retry.form, "knob": knob, "value": retry.value}


# ------------------------------------------------------------------- the game alone on a page

_THREE = ("memory.group_of_heads", "latency.split_sequences", "latency.ring_of_tiles")
HARMED = (
    (("memory.wide_accesses",), "width=16", "s300 0"),
    (_THREE, "gqa=1 load=2 width=16 stages=3 split=4", "f10000 201"),
    (("compute.rows_together",), "load=2 width=16 rows=8 unroll=1 stages=3 split=4", "f120 0"),
    (("latency.more_warps",), "load=2 width=16 rows=8 unroll=1 stages=3 warps=4 split=4", "s300 3"),
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
def alone(tables: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a page that has the game alone, as the site does."""
    file = tmp_path_factory.mktemp("alone") / "game.html"
    parts = {"style": view.LoopGame._css, "site": site_script()}
    parts["tables"] = json.dumps(pack_tables(tables)).replace("</", "<\\/")
    parts["script"] = view.LoopGame._esm.replace("export default", "void")
    file.write_text(PAGE_ALONE.format(**parts))
    return file.as_uri()


@pytest.fixture(scope="module")
def harmed(bench: RecordedBench, tables: dict[str, Any]) -> str:
    """The moves of a whole game with `HARMED`'s rounds."""
    return f"{moves_of(bench, tables, HARMED)}~end"


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


def test_the_table_of_rounds_tells_what_each_kept(page: Any, alone: str, harmed: str) -> None:
    """The gain stands beside the kernel that it is of, and equals from over kept."""
    open_site(page, f"{alone}#loop={harmed}")
    rows = page.locator(".lt-loop-migration tbody tr")

    def cells(number: int) -> dict[str, str]:
        held = rows.nth(number - 1).locator("td").all()
        return {cell.get_attribute("data-column"): cell.inner_text() for cell in held}

    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 1000})
        assert not_sideways(page, ".lt-loop-migration")
    second, last = cells(2), cells(4)
    told = ("champion", "kept", "gain of what is kept")
    champion, kept, gain = map(second.get, told)
    assert (champion, gain) == ("113.06 us", "+486.9 %")
    assert re.fullmatch(r"91\.58 us, without .+", kept)
    assert [*map(last.get, told)] == ["61.78 us", "52.71 us, where it began", "none"]
    past = page.locator(".lt-loop-past").last
    past.locator("summary").first.click()
    said = past.inner_text()
    assert re.search(r"The champion loses [0-9.]+ %, and without .+ it gains 0\.0 %", said)
    assert not re.search(r"gains? (of )?[-\u2212]", said)


def test_moves_that_break_a_rule_are_told_with_their_round(
    page: Any, alone: str, harmed: str
) -> None:
    wrong: list[Any] = []
    page.on("pageerror", lambda error: wrong.append(error))
    version, *rounds = harmed.split("~")[1:]
    open_site(page, alone)
    own = give_a_slot(page)
    for text, told in (
        (f"2~{version}~999-7", "Round 1 of these moves does not keep to the rules."),
        (f"2~{version}~120-99", "Round 1 of these"),
        (f"2~{version}~120-1*1*", "Round 1 of these"),
        (f"2~{version}~111~111", "Round 2 of these"),
        (f"2~{version}~{rounds[0]}~999", "Round 2 of these"),
        (f"2~{version}~{rounds[0]}~012-99", "Round 2 of these"),
        ("2~00000000~111", "of another version of the grid"),
        (harmed.replace("2~", "1~", 1), "of another version of the grid"),
        ("garbage", "These are no moves of this game."),
        ("%E0%A4%A", "These are no moves of this game."),
    ):
        open_site(page, f"{alone}#loop={text}")
        expect(page_told(page)).to_contain_text(told)
        assert stored(page) == own
    assert not wrong


def page_told(page: Any) -> Any:
    """What the game says of the run as a whole."""
    return page.locator(".lt-loop-told").first


def test_a_link_is_looked_at_and_the_own_run_is_kept(
    page: Any, alone: str, tables: dict[str, Any]
) -> None:
    open_site(page, alone)
    own = give_a_slot(page)
    linked = f"2~{tables['version']}~210"
    open_site(page, f"{alone}#loop={linked}")
    opened = game(page).get_by_text("This run was opened from a link or a text.")
    for _ in range(2):
        expect(opened).to_be_visible()
        expect(game(page)).to_contain_text("Slots 2/1/0")
        expect(page.locator(".lt-loop-methods")).to_have_count(0)
        assert page.url.endswith(linked) and stored(page) == own
        page.reload()
    # The page's own links leave the run in its address.
    page.get_by_role("link", name="The rules").click()
    page.wait_for_url(f"**#loop={linked}")
    press(page, "Back to your own run")
    expect(game(page)).to_contain_text("Slots 1/1/1")
    expect(opened).to_have_count(0)
    assert page.url.endswith(own)
    # What a text in the field opens is looked at too, until its reader keeps it.
    page.get_by_text("Share this run, or open another").click()
    field = page.get_by_label("A link or the moves of a run")
    field.fill("nonsense")
    press(page, "Open")
    told = page.locator(".lt-loop-share").get_by_role("status").last
    expect(told).to_have_text("These are no moves of this game.")
    expect(game(page)).to_contain_text("Slots 1/1/1")
    field.fill(linked)
    press(page, "Open")
    expect(game(page)).to_contain_text("Slots 2/1/0")
    assert stored(page) == own
    press(page, "Keep it as your own")
    assert stored(page) == linked
    expect(page_told(page)).to_contain_text(own)
    expect(page.locator(".lt-loop-methods")).to_have_count(3)
    page.go_back()
    page.wait_for_url("**#loop=*")


def test_an_own_run_of_another_version_is_told(page: Any, alone: str) -> None:
    open_site(page, alone)
    page.evaluate("localStorage.setItem('fieldguide:loop', '2~00000000~111')")
    page.reload()
    expect(page_told(page)).to_contain_text("of another version of the grid")
    give_a_slot(page)
    page.reload()
    expect(game(page)).to_contain_text("Slots 1/1/1")
    expect(page_told(page)).to_be_empty()


def test_lab09_as_a_reader_meets_it(lab_server: Server, page: Any) -> None:
    open_lab(page, lab_server, LAB09)
    game(page).scroll_into_view_if_needed()
    play_by_keyboard(page)
    press(page, "Ablate")
    for fields in page.locator(".lt-loop-classes").all():
        fields.get_by_role("radio", name="effective", exact=True).check()
    press(page, "Commit the classes")
    expect(page.locator(".lt-loop-status")).to_contain_text("Round 2 begins from")
    shoot(page, "lab09-round", game(page))
    fits_a_phone(page, "lab09-phone", ".lt-loop")
    wait_for(lambda: kernel_is_idle(lab_server, LAB09), 60, "the kernel")
    assert unrun_cells(page) > 0
