"""The simulated SM on short listings whose cycles can be counted by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from labtools.predict import native, sm_loop, sm_model
from labtools.predict.machine import Curve, machine_of
from labtools.predict.sheets import load_gpu
from labtools.predict.sm_model import OccupiedSm, Pressure, SmRun, Where
from labtools.predict.streams import BlockStreams, LoopNode, Meeting, Node, Op, Request, count_ops
from labtools.problem import LabError
from labtools.toolchain.sass import Sass, parse_listings

MACHINE = dataclasses.replace(machine_of(load_gpu("h200")), cold_line_cycles=0.0)
HBM = Where(from_dram={0: 1.0}, dram_share={0: 1.0})
ROW = Request("load", 4, 4.0, 4.0, 0)
COPY = Request("async", 16, 16.0, 16.0, 0)
FREE = 7


def line(
    text: str, stall: int = 1, write: int = FREE, read: int = FREE, wait: Sequence[int] = ()
) -> tuple[str, int]:
    """An instruction and its control bits."""
    mask = sum(1 << number for number in wait)
    return text, stall | 1 << 4 | write << 5 | read << 8 | mask << 11


def listing(*lines: tuple[str, int]) -> Sass:
    """A kernel in the disassembler's own form."""
    rows = ["\t.target\tsm_90", "\t.section\t.text.kernel"]
    for place, (text, control) in enumerate(lines):
        rows += [
            f"        /*{16 * place:04x}*/                   {text} ;  /* 0x{0:016x} */",
            f"{'':70}/* 0x{control << 41:016x} */",
        ]
    return parse_listings("\n".join(rows))["kernel"]


@pytest.fixture(params=["python", "compiled"], autouse=True)
def _the_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test holds for the loop as Python and as machine code."""
    if request.param == "python":
        monkeypatch.setattr(sm_model, "sm_loop", sm_loop)
    elif not native.is_compiled():
        pytest.skip("the loop was not compiled into this environment")


FFMA = line("FFMA R1, R1, R2, R3")
EXIT = line("EXIT")


def run(
    sass: Sass,
    nodes: Sequence[Node] | Sequence[Sequence[Node]],
    warps: int = 1,
    blocks: int = 1,
    **options: object,
) -> SmRun:
    """Simulate a block of equal warps, or of the given streams."""
    streams = [tuple(nodes)] * warps if isinstance(nodes[0], Op | LoopNode) else map(tuple, nodes)  # type: ignore[arg-type]
    machine = options.pop("machine", MACHINE)
    where = options.pop("where", HBM)
    block = BlockStreams(sass, tuple(streams))  # type: ignore[arg-type]
    filled = {name: options.pop(name) for name in ("trips", "scale") if name in options}
    sm = OccupiedSm(block, blocks, machine, where, **filled)  # type: ignore[arg-type]
    return sm.simulate(**options)  # type: ignore[arg-type]


def ops(*numbers: int) -> list[Node]:
    return [Op(number, True) for number in numbers]


def test_stall_counts_add_up() -> None:
    sass = listing(line("FADD R1, R1, R2", 4), line("FADD R1, R1, R2", 7), EXIT)
    made = run(sass, ops(0, 1, 2))
    assert [event.issued for event in made.events] == [0, 4, 11]
    assert made.cycles == 11
    assert made.issued == 3


@pytest.mark.parametrize("level", ["dram", "l2", "l1"])
def test_a_scoreboard_is_waited_for(level: str) -> None:
    sass = listing(
        line("LDG.E R1, [R2.64]", 2, write=0), line("FADD R4, R1, R2", 4, wait=(0,)), EXIT
    )
    where = HBM if level == "dram" else Where({0: 0.0})
    asked = dataclasses.replace(ROW, new_sectors=0.0) if level == "l1" else ROW
    nodes = [Op(0, True, False, asked), Op(1, True), Op(2, True)]
    made = run(sass, nodes, where=where)
    expected = {
        "dram": MACHINE.dram_latency(ROW),
        "l2": MACHINE.l2_latency(ROW),
        "l1": MACHINE.l1_latency(ROW),
    }[level]
    waited = made.events[1]
    assert waited.issued == pytest.approx(expected, abs=1)
    assert (waited.scoreboard, waited.producer, waited.level) == (0, 0, level)
    assert made.dram_bytes == (128 if level == "dram" else 0)
    # What the traffic of others adds comes on top, of a miss alone.
    later = run(sass, nodes, where=where, pressure=Pressure(100.0, 50.0)).events[1].issued
    added = {"dram": 100, "l2": 50, "l1": 0}[level]
    assert later - waited.issued == pytest.approx(added)


def test_the_last_of_several_rows_is_waited_for_longer() -> None:
    sass = listing(
        line("LDG.E R1, [R2.64]", 2, write=0),
        line("LDG.E R3, [R2.64+0x80]", 2, write=1),
        line("FADD R4, R1, R2", 4, wait=(0,)),
        line("FADD R4, R3, R2", 4, wait=(1,)),
        EXIT,
    )
    nodes = [Op(0, True, False, ROW), Op(1, True, False, ROW), *ops(2, 3, 4)]
    first, second = (event.issued for event in run(sass, nodes).events[2:4])
    alone = MACHINE.dram_latency(ROW)
    assert first == pytest.approx(alone, abs=1)
    assert second == pytest.approx(alone + 2 + MACHINE.dram_beside, abs=4)


def test_rows_that_a_request_asks_for_anywhere_come_later() -> None:
    sass = listing(
        line("LDG.E R1, [R2.64]", 2, write=0), line("FADD R4, R1, R2", 4, wait=(0,)), EXIT
    )
    spread = dataclasses.replace(ROW, runs=4.0)
    waits = [
        run(sass, [Op(0, True, False, asked), *ops(1, 2)]).events[1].issued
        for asked in (ROW, spread)
    ]
    assert waits[1] - waits[0] == pytest.approx(MACHINE.dram_apart[2])


def test_a_group_of_copies_from_two_buffers_is_waited_for_as_a_whole() -> None:
    sass = listing(
        line("LDGSTS.E.128 [R4], [R2.64]", 2),
        line("LDGSTS.E.128 [R5], [R6.64]", 2),
        line("LDGDEPBAR", 2, write=0),
        line("DEPBAR.LE SB0, 0x0", 4),
        line("FADD R4, R1, R2", 4),
        EXIT,
    )
    where = Where(from_dram={0: 1.0, 1: 1.0}, dram_share={0: 1.0, 1: 1.0})
    other = dataclasses.replace(COPY, buffer=1)
    took = [
        run(
            sass, [Op(0, True, False, COPY), Op(1, True, False, two), *ops(2, 3, 4, 5)], where=where
        )
        for two in (COPY, other)
    ]
    assert took[1].cycles - took[0].cycles == pytest.approx(MACHINE.dram_apart[1], abs=1)


def test_operands_must_have_been_read() -> None:
    sass = listing(
        line("STG.E [R2.64], R1", 1, read=3), line("FADD R1, R1, R2", 4, wait=(3,)), EXIT
    )
    made = run(sass, [Op(0, True, False, Request("store", 4, 4.0, 4.0, 0)), *ops(1, 2)])
    assert made.events[1].issued == pytest.approx(MACHINE.operand_read_cycles, abs=1)
    assert made.events[1].level == "read"


def copies(depth: int, trips: int) -> tuple[Sass, list[Node]]:
    """A ring of so many groups of copies; each trip waits for the oldest."""
    copy = line("LDGSTS.E.BYPASS.128 [R4], [R2.64]", 1)
    commit = line("LDGDEPBAR", 1, write=0)
    sass = listing(
        copy, commit, line(f"DEPBAR.LE SB0, {depth - 1:#x}", 1), line("FADD R1, R1, R2", 4), EXIT
    )
    one = [Op(0, True, False, COPY), Op(1, True)]
    body = (*one, Op(2, True), Op(3, True))
    return sass, [*(one * (depth - 1)), LoopNode(trips, body), Op(4, True)]


def test_groups_of_copies_overlap_as_far_as_the_ring_is_deep() -> None:
    single, triple = (run(*copies(depth, 60)).cycles for depth in (1, 3))
    latency = MACHINE.dram_latency(COPY)
    assert single == pytest.approx(60 * latency, rel=0.1)
    assert triple == pytest.approx(single / 3, rel=0.1)


def test_a_barrier_waits_for_the_last_warp() -> None:
    work = line("FADD R1, R1, R2", 10)
    sass = listing(work, line("BAR.SYNC.DEFER_BLOCKING 0x0", 1), EXIT)
    early, late = ops(1, 2), [LoopNode(30, (Op(0, True),)), *ops(1, 2)]
    # Five warps do not spread evenly, so every one of them is simulated.
    alone = run(sass, [early] * 5)
    mixed = run(sass, [early] * 4 + [late], trips=30)
    assert mixed.cycles - alone.cycles == pytest.approx(300, abs=12)
    assert mixed.events[-1].barrier > 280 > alone.events[-1].barrier
    slow = run(sass, [early] * 5, scale={"barrier": 4.0})
    assert slow.cycles > 2 * alone.cycles


def test_a_warp_that_leaves_is_not_waited_for() -> None:
    sass = listing(line("FADD R1, R1, R2", 10), line("BAR.SYNC.DEFER_BLOCKING 0x0", 1), EXIT)
    stays, leaves = ops(1, 0, 0, 2), [*ops(0, 0, 0, 0, 0, 2)]
    made = run(sass, [stays] * 4 + [leaves])
    assert made.issued == 4 * 4 + 6
    assert 50 + 20 <= made.cycles <= 50 + 20 + 5


@pytest.mark.parametrize("fair", [True, False])
def test_warps_share_the_issue_slot(fair: bool) -> None:
    sass = listing(*[line("IADD3 R1, R2, R3, R4")] * 1, FFMA, EXIT)
    body = tuple(Op(place % 2, True) for place in range(64))
    # Alternating pipes, so that nothing but the slot is short.
    alone, eight, sixteen = (
        run(sass, [LoopNode(10, body), Op(2, True)], warps, fair=fair, trips=10).cycles
        for warps in (4, 32, 64)
    )
    assert eight == pytest.approx(8 * 640, rel=0.05)
    assert sixteen == pytest.approx(2 * eight, rel=0.05)
    assert alone < 1.6 * 640


def test_a_pipe_takes_one_instruction_an_interval() -> None:
    sass = listing(line("MUFU.EX2 R1, R2", 1), FFMA, EXIT)
    special = run(sass, [*ops(*[0] * 50), Op(2, True)]).cycles
    assert special == pytest.approx(50 * MACHINE.intervals["xu"], rel=0.05)
    assert MACHINE.intervals["xu"] == pytest.approx(8, rel=0.01)
    assert run(sass, [*ops(*[1] * 50), Op(2, True)]).cycles < 0.2 * special * 2
    four = run(sass, [*ops(*[0] * 50), Op(2, True)], warps=16).cycles
    assert four == pytest.approx(4 * special, rel=0.05)


def test_strict_priority_lets_some_warps_end_early() -> None:
    sass = listing(*[line("IADD3 R1, R2, R3, R4")] * 1, FFMA, EXIT)
    nodes = [*(Op(place % 2, True) for place in range(400)), Op(2, True)]
    together = run(sass, nodes, warps=16, blocks=1)
    strict = run(sass, nodes, warps=16, blocks=1, fair=False)
    assert strict.cycles == pytest.approx(together.cycles, rel=0.02)  # the slot is full either way
    # The first warp of four is the oldest and comes last.
    assert strict.events[0].issued > 0.5 * strict.cycles
    assert together.events[0].issued < 4


def test_a_block_that_ends_makes_room() -> None:
    sass = listing(line("FADD R1, R1, R2", 10), EXIT)
    nodes = [*ops(*[0] * 20), Op(1, True)]
    one = run(sass, nodes, warps=4, blocks=2)
    three = run(sass, nodes, warps=4, blocks=2, total=6)
    assert three.cycles == pytest.approx(3 * one.cycles, rel=0.1)
    assert three.issued == 3 * one.issued


@pytest.mark.parametrize("warps", [1, 4, 5])
@pytest.mark.parametrize("count", [2, 40, 200])
def test_a_loop_drawn_on_is_the_loop_in_full(count: int, warps: int) -> None:
    sass = listing(
        line("LDG.E R1, [R2.64]", 2, write=0), line("FADD R4, R1, R4", 4, wait=(0,)), FFMA, EXIT
    )
    body = (Op(0, True, False, ROW), *ops(1, 2))
    nodes = [LoopNode(count, body), Op(3, True)]
    short, full = (run(sass, nodes, warps, trips=trips) for trips in (6, 400))
    assert short.cycles == pytest.approx(full.cycles, rel=0.02)
    assert short.issued == pytest.approx(full.issued) == warps * count_ops(nodes)
    assert short.dram_bytes == pytest.approx(full.dram_bytes)
    first, trips, cycles = short.slopes[0]
    assert (first, trips) == (0, count)
    assert cycles == pytest.approx(MACHINE.dram_latency(ROW), rel=0.1)


def test_nested_loops_are_drawn_on_as_well() -> None:
    sass = listing(line("FADD R1, R1, R2", 4), line("FADD R3, R1, R2", 9), EXIT)
    nodes = [LoopNode(50, (LoopNode(30, (Op(0, True),)), Op(1, True))), Op(2, True)]
    made = run(sass, nodes)
    assert made.cycles == pytest.approx(50 * (30 * 4 + 9), rel=0.01)
    assert made.issued == pytest.approx(50 * 31 + 1)
    weighted = sum(event.weight * (event.issued - event.before) for event in made.events)
    assert weighted == pytest.approx(made.cycles, rel=0.01)


def test_latencies_scale_by_class() -> None:
    sass = listing(
        line("SHFL.BFLY PT, R1, R2, 0x1, 0x1f", 1, write=0),
        line("FADD R2, R1, R2", 4, wait=(0,)),
        EXIT,
    )
    nodes = [LoopNode(10, tuple(ops(0, 1))), Op(2, True)]
    plain, half, none, other = (
        run(sass, nodes, trips=10, scale=scale).cycles
        for scale in ({}, {"shuffle": 0.5}, {"shuffle": 1e-9}, {"memory": 0.5})
    )
    latency = MACHINE.variable["shfl"]
    assert plain == other == pytest.approx(10 * (latency + 4))
    assert plain - half == pytest.approx(10 * latency / 2)
    assert none <= 10 * 6


def test_what_is_stored_for_a_later_pass_stays_in_the_l2() -> None:
    sass = listing(line("STG.E [R2.64], R1", 1), EXIT)
    nodes = [Op(0, True, False, Request("store", 4, 4.0, 4.0, 1)), Op(1, True)]
    assert run(sass, nodes).dram_bytes == 128
    kept = run(sass, nodes, where=Where(stored_past_l2={1: 0.0}))
    assert (kept.dram_bytes, kept.l2_bytes) == (0, 128)


# ------------------------------------------------------------------- warps with roles

BOX = Request("box", 16, 128.0, 128.0, 0)
"""4 KiB by a tensor map."""
ASK = MACHINE.variable["phase_ask"]
ROLES = listing(
    line("SYNCS.EXCH.64 URZ, [UR4], UR6", 1),
    line("SYNCS.ARRIVE.TRANS64 RZ, [UR4], R2", 1),
    line("UTMALDG.3D [UR8], [UR12]", 1),
    line("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R3", 1, write=0),
    line("@!P0 BRA `(.L_x_1)", 1, wait=(0,)),
    line("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR5], RZ", 1),
    line("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR5], R3", 1, write=0),
    EXIT,
)


def meet(index: int, kind: str, barrier: int, count: int = 0, size: int = 0) -> Op:
    asked = BOX if kind == "copy" else None
    return Op(index, True, False, asked, Meeting(kind, barrier, count, size))


def test_a_wait_ends_when_the_copy_has_landed() -> None:
    copier = [meet(0, "init", 0, 1), meet(1, "arrive", 0, 1, 4096), meet(2, "copy", 0, 0, 4096)]
    waiter = [meet(3, "wait", 0, 0), *ops(4, 4, 4), Op(7, True)]
    made = run(ROLES, [[*copier, Op(7, True)], waiter], where=Where({0: 0.0}))
    # The copy engine first reads the tensor map; the wait's answer comes when all has landed.
    landed = 2 + MACHINE.l2_rows(128) + MACHINE.l2_latency(BOX)
    branch = made.events[1]
    assert branch.issued == pytest.approx(landed + ASK, abs=3)
    assert (branch.producer, branch.level) == (3, "copy")
    assert made.l2_bytes == 4096


def test_all_sms_share_the_memory_that_their_copies_ask() -> None:
    """Boxes asked for at once land no sooner than the SM's share of memory brings them."""
    count, size = 16, 32 * BOX.sectors
    copies = [meet(2, "copy", 0, 0, int(size)) for _ in range(count)]
    copier = [meet(0, "init", 0, 1), meet(1, "arrive", 0, 1, int(count * size)), *copies]
    waiter = [meet(3, "wait", 0, 0), *ops(*[4] * 2 * count), Op(7, True)]  # the one watched

    def landed(sms: int) -> float:
        where = dataclasses.replace(HBM, resident_blocks_on_gpu=sms)
        made = run(ROLES, [[*copier, Op(7, True)], waiter], where=where)
        return made.events[1].issued

    share = MACHINE.box_bytes_per_cycle / MACHINE.sm_count
    assert landed(MACHINE.sm_count) > count * size / share
    alone = MACHINE.l2_rows(128) + MACHINE.dram_latency(BOX) + count * size / 100
    assert landed(1) < alone


def test_a_copy_from_memory_waits_for_a_loaded_l2_too() -> None:
    copier = [meet(0, "init", 0, 1), meet(1, "arrive", 0, 1, 4096), meet(2, "copy", 0, 0, 4096)]
    waiter = [meet(3, "wait", 0, 0), *ops(4, 4, 4), Op(7, True)]

    def landed(**added: float) -> float:
        made = run(ROLES, [[*copier, Op(7, True)], waiter], pressure=Pressure(**added))
        return made.events[1].issued

    # The tensor map comes from the L2 as well, before the copy.
    assert landed(l2=500.0) - landed() == pytest.approx(1000, abs=2)
    assert landed(l2=500.0, dram=800.0) - landed(dram=800.0) == pytest.approx(500, abs=2)


def test_a_warp_with_a_role_leaves_when_its_stores_have_drained() -> None:
    stored = Request("store", 4, 8.0, 8.0, 0, wavefronts=8)
    store, leave = line("STG.E desc[UR4][R2.64], R7"), EXIT
    product = line("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24, gsb0")
    nodes = [Op(0, True, False, stored), Op(1, True)]
    free = dataclasses.replace(MACHINE, store_lines=Curve((128.0,), (0.0,)))
    plain = run(listing(store, leave), nodes, machine=free)
    roles = run(listing(store, leave, product), nodes, machine=free)
    assert roles.cycles - plain.cycles > MACHINE.store_drain
    slow = dataclasses.replace(MACHINE, store_lines=Curve((16.0, 128.0), (30.0, 8.0)))
    longer = run(listing(store, leave, product), nodes, machine=slow)
    assert longer.cycles - roles.cycles == pytest.approx(8 * 30 - free.store_path(stored), abs=1)


def test_two_warps_hand_a_ring_to_one_another() -> None:
    """A place of the ring is filled again when it was emptied: a trip takes both ways."""

    def trip(parity: int) -> list[list[Node]]:
        return [
            [meet(6, "wait", 8, 1 - parity), Op(4, True), meet(1, "arrive", 0, 1)],
            [meet(3, "wait", 0, parity), Op(4, True), meet(5, "arrive", 8, 1)],
        ]

    begin: list[Node] = [meet(0, "init", 0, 1), meet(0, "init", 8, 1)]
    both = [[*even, *odd] for even, odd in zip(trip(0), trip(1), strict=True)]
    whole, cut = (
        run(
            ROLES,
            [
                [*begin, LoopNode(40, tuple(both[0])), Op(7, True)],
                [LoopNode(30, tuple(both[1])), *both[1] * 10, Op(7, True)],
            ],
            trips=trips,
        )
        for trips in (40, 4)
    )
    each = 2 * (ASK + MACHINE.variable["phase_arrive"])
    assert whole.cycles == pytest.approx(80 * each, rel=0.05)
    # As many phases are left out of one warp's loop as of the other's.
    assert cut.cycles == pytest.approx(whole.cycles, rel=0.02)
    assert cut.issued == pytest.approx(whole.issued, rel=0.02)


def test_warps_that_wait_without_end_are_refused() -> None:
    nodes = [meet(0, "init", 0, 2), meet(1, "arrive", 0, 1), meet(3, "wait", 0, 0), Op(4, True)]
    with pytest.raises(LabError, match="wait for one another without end"):
        run(ROLES, [*nodes, Op(7, True)])


PRODUCTS = listing(
    line("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24", 1),
    line("HGMMA.64x128x16.F32 R24, gdesc[UR8], R24, gsb0", 1),
    line("WARPGROUP.DEPBAR.LE gsb0, 0x1", 1),
    line("WARPGROUP.DEPBAR.LE gsb0, 0x0", 1),
    EXIT,
)


def test_products_run_on_while_the_warp_does_other_work() -> None:
    cycles, beyond = MACHINE.product(PRODUCTS.instructions[0])
    assert cycles == pytest.approx(64, rel=0.01)
    made = run(PRODUCTS, ops(0, 1, 1, 2, 3, 4))
    issued = {event.index: event.issued for event in made.events}
    assert issued[2] == pytest.approx(2 * cycles + beyond, abs=2)  # the first group of two
    assert issued[3] == pytest.approx(3 * cycles + beyond, abs=2)
    assert made.tensor_share == pytest.approx(3 * cycles / made.cycles)


def test_no_more_products_are_started_than_the_queue_holds() -> None:
    cycles, _ = MACHINE.product(PRODUCTS.instructions[0])
    made = run(PRODUCTS, ops(*[0] * 15, 1, 3, 4))
    started = made.events[15].issued
    assert started == pytest.approx((16 - MACHINE.product_queue) * cycles, rel=0.05)
    endless = dataclasses.replace(MACHINE, product_queue=float("inf"))
    assert run(PRODUCTS, ops(*[0] * 15, 1, 3, 4), machine=endless).events[15].issued < 150


def test_a_named_barrier_takes_the_warps_that_it_names() -> None:
    sass = listing(
        line("BAR.SYNC.DEFER_BLOCKING 0x1, 0x40", 1), line("BAR.ARV 0x1, 0x40", 1), FFMA, EXIT
    )
    late: list[Node] = [*ops(*[2] * 100), meet(1, "leave", 1, 2), Op(3, True)]
    idle: list[Node] = [Op(3, True)]
    made = run(sass, [[meet(0, "sync", 1, 2), Op(3, True)], late, idle])
    assert made.cycles == pytest.approx(100 + MACHINE.barrier_cycles, abs=8)
