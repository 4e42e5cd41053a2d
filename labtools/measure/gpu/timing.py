"""Timing as it runs in the child: every candidate of a workload, interleaved, by graph replays.

A candidate's launches go round the buffer sets in one CUDA graph; rounds replay the graphs in
random order between two events. It is compared with the oracle before, after, and twice between:
where a replay is cut off, and at a call in its middle whose inputs change right before it, all of
them or one alone. That is done once more with a set that is chosen when all times are there.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from labtools.problem import (
    AS_THEY_ARE,
    Arrays,
    Comparison,
    LabError,
    Part,
    Problem,
    StoredAs,
    merge_comparisons,
    operation_of,
)
from labtools.record import Clocks, ProcessSamples
from labtools.record.fields import ProblemField
from labtools.toolchain.apart import read_setting

from ..channel import Reporter
from .check import (
    AskedParts,
    can_fill,
    draw_on_device,
    expect_on_device,
    outputs_on_host,
    poison_outputs,
    upload_inputs,
)
from .device import (
    BufferSet,
    InCall,
    LiveDevice,
    allocate_sets,
    allocate_workspaces,
    bind_launches,
    host_view,
)
from .faults import cuda_fault
from .job import Job, baseline_of
from .plan import (
    COLD_LEAST,
    LONGEST_CUT,
    Rotation,
    plan_launches,
    plan_rotation,
    plan_rounds,
    takes_part,
)
from .session import Session, use_gpu

GRAPH_PROTOCOL = "graph-1"
EVENTS_PROTOCOL = "events-1"
# Plain launches by intent, from an idle GPU on: for a call that allocates memory, which a graph
# would do once and for all, and for what is compared with it.
STREAM_PROTOCOL = "stream-1"
# A step of one candidate that takes longer is a hang; the process then ends.
STEP_LIMIT_S = read_setting("LABTOOLS_STEP_LIMIT_S", 60, "what a step may take, in seconds")
LIBRARY_LIMIT_S = 600.0
# Up to this size the read sweep's checksum is held against the bytes themselves; beyond, the
# sweep's shapes are held against each other.
CHECKSUM_BYTES = 64 * 1024 * 1024
HOST_SETS = 4  # sets with inputs of their own when the CPU draws them; further sets are copies
WARM_UP_MS = 20.0


@dataclass(frozen=True)
class TimingRequest:
    """The candidates of one workload, for each of several children."""

    purpose: str  # shown to whoever waits for the GPU
    workload: ProblemField  # what is computed
    jobs: tuple[Job, ...]  # the candidates
    seed: int  # of everything that is drawn; each process makes its own of it
    fill_cubin: str  # the compiled kernel that fills buffers with random numbers
    rounds: int  # samples a candidate
    sample_us: float  # least length of a sample
    budget_s: float  # device seconds a candidate, about
    with_torch: bool = False  # load torch as well
    process: int = 0  # the number of the child that is asked
    device: int | None = None  # ordinal of the GPU to take; None for the first that is free
    dram_gb_per_s: float = 0.0  # peak of its data sheet, 10^9 bytes a second; 0 where unknown
    patience_us: float = 0.0  # a candidate whose call takes longer is not timed; 0 times all


@dataclass(frozen=True)
class Timed:
    """One candidate's times in one process, checked before and after."""

    samples: ProcessSamples
    comparison: Comparison
    protocol: str


@dataclass(frozen=True)
class ProcessFault:
    """What kept a process from measuring."""

    label: str  # of the candidate that did it; empty where it was none
    kind: str  # as of a `CudaFault`
    message: str  # in plain words
    fatal: bool  # CUDA is dead in the process


@dataclass(frozen=True)
class TimingAnswer:
    """What one process measured."""

    process: int
    timed: dict[str, Timed] = field(default_factory=dict)  # by label
    failures: dict[str, str] = field(default_factory=dict)  # why a candidate has no times, by label
    fault: ProcessFault | None = None  # why there is nothing at all
    clocks: Clocks | None = None  # of the GPU while it was measured
    note: str = ""  # what to know about the times
    environment: dict[str, str | None] = field(default_factory=dict)  # versions of what was loaded
    ordinal: int = 0  # of the GPU


@dataclass(eq=False)
class FatalFault(Exception):
    """CUDA is dead in this process, by a candidate."""

    fault: ProcessFault


@dataclass
class Player:
    """One candidate, ready to be timed."""

    label: str
    kind: str
    problem: Problem
    call: Callable[[int], None]  # runs it once on set ``i``
    # what call ``i`` wrote, on the host by output, after a call or a replay
    outputs: Callable[[int], dict[str, np.ndarray]]
    poison: Callable[[], None]  # spoils every output, so that only what is written anew counts
    # spoils the outputs of call ``i`` alone, and restores what it is given; may be captured
    spoil: Callable[[int], None] = lambda index: None
    # of what call ``i`` wrote, see `LiveDevice.fingerprint`; None where it is not in one place
    fingerprint: Callable[[int], int | None] = lambda index: None
    read_checksum: Callable[[], int] = lambda: 0  # runs the read sweep on the first set
    prepare: Callable[[], None] = lambda: None  # runs the preparation of every set again
    prepared: Callable[[], list[bytes]] = list  # what that wrote for the first set, on the host
    stored: Callable[[int], list[Any]] = lambda index: []  # where that writes for set ``i``
    least_bytes: float = 0  # what a call must read of one set; 0 where nobody says
    play: Callable[[], None] = lambda: None  # runs one sample's launches
    launches: int = 0  # how many these are
    protocol: str = GRAPH_PROTOCOL
    own_rounds: int = 0
    us: list[float] = field(default_factory=list)
    comparison: Comparison | None = None
    keep: list[Any] = field(default_factory=list)
    tolerance: float | None = None
    read_bytes: int | None = None  # of one set, where a call reads a prepared copy of inputs
    scheme: StoredAs | None = None  # how it stores inputs; None where they stay as they are
    streamed: bool = False  # its launches are made one by one, not replayed


@dataclass(frozen=True)
class Checked:
    """What some parts of a set are compared with."""

    # what the oracle gives for them, by how inputs are stored; float64, NaN for the other parts
    expected: Mapping[StoredAs | None, Arrays]
    # all inputs of them, then each by itself: of one set, where there is a rung
    altered: Sequence[Altered]


@dataclass
class Altered:
    """A few elements behind each part of a set that is compared, changed where they lie."""

    # where they lie, what is put there, and what was there, in order
    places: list[tuple[Any, Any, Any]]
    # the oracle's outputs with them, by scheme
    expected: Mapping[StoredAs | None, Arrays] = field(default_factory=dict)

    def put(self, device: LiveDevice) -> None:
        """Change them, without waiting."""
        for place, changed, _ in self.places:
            device.copy(changed, place)

    def put_back(self, device: LiveDevice) -> None:
        """What was there before."""
        for place, _, before in reversed(self.places):
            device.copy(before, place)


def time_group(report: Reporter[None], request: TimingRequest) -> TimingAnswer:
    """Time every candidate of a workload in this process; runs in the child.

    A step that is about one candidate carries its label.
    """
    with use_gpu(report, request.purpose, request.device, request.with_torch) as session:
        try:
            answer = _Group(session, request, report).measure()
        except FatalFault as dead:
            answer = TimingAnswer(request.process, fault=dead.fault)
        except Exception as error:
            found = cuda_fault(error)
            if found is None:
                raise
            fault = ProcessFault("", found.kind, found.message, found.fatal)
            answer = TimingAnswer(request.process, fault=fault)
        device = session.device
        return replace(answer, environment=device.environment(), ordinal=device.ordinal)


class _Group:
    """One workload and its candidates, in this process."""

    def __init__(self, session: Session, request: TimingRequest, report: Reporter[None]) -> None:
        self.device, self.clocks = session.device, session.clocks
        self.request, self.workload, self.report = request, request.workload, report
        self.seed = request.seed * 1000 + request.process
        self.rng = np.random.default_rng(self.seed)
        least = min((job.call_read_bytes(self.workload) for job in request.jobs), default=None)
        l2_bytes, free_bytes = self.device.l2_bytes, self.device.free_bytes()
        self.rotation = plan_rotation(self.workload, l2_bytes, free_bytes, least)
        self.failures: dict[str, str] = {}
        self.checked: dict[int, Checked] = {}  # by set
        self.late: dict[int, Altered] = {}  # and what is compared once times were taken
        self.sets: list[BufferSet] = []
        self.prepared: dict[str, list[bytes]] = {}
        self.checksum: int | None = None  # what the read sweep must find, once that is known
        # what was found right against some outputs of the oracle, by these, tolerance and bits
        self._right: dict[tuple[int, float | None, int], tuple[Arrays, Comparison]] = {}
        self._secret = secrets.randbits(64)  # of the fingerprints; no kernel knows it

    def measure(self) -> TimingAnswer:
        """Draw, check, time, check again; raises FatalFault where a candidate killed CUDA."""
        with self.report.step(f"making inputs for {self.workload}", STEP_LIMIT_S * 4):
            self.sets = allocate_sets(self.device, self.workload, self.rotation.sets)
            self._draw_sets()
            self._choose_checked()
            self.device.synchronize()
        players = []
        for job in self.request.jobs:
            player = self._attempt(job.label, partial(self._prepare, job))
            if player is not None:
                players.append(player)
        self.clocks.start()
        try:
            self._play_rounds(players)
        finally:
            readings = self.clocks.stop()
        for check in (self._check_after, self._refuse_impossible):
            for player in self._left(players):
                self._attempt(player.label, partial(check, player))
        timed = {player.label: self._read_times(player) for player in self._left(players)}
        cold = self.workload.cache_state == "cold"
        hot = cold and not self.rotation.cold
        note = "the buffers together are not 3 times the L2" if hot else ""
        players.clear()
        del self.sets, self.checked, self.late
        self.device.release()
        return TimingAnswer(self.request.process, timed, self.failures, clocks=readings, note=note)

    def _left(self, players: Sequence[Player]) -> list[Player]:
        return [player for player in players if player.label not in self.failures]

    def _read_times(self, player: Player) -> Timed:
        assert player.comparison is not None
        samples = ProcessSamples(
            process=self.request.process,
            us=tuple(round(value, 4) for value in player.us),
            launches_per_sample=player.launches,
            rotated_sets=self.rotation.sets,
            rotated_bytes=_rotated_bytes(player, self.rotation),
        )
        return Timed(samples, player.comparison, player.protocol)

    def _attempt(self, label: str, action: Callable[[], Any]) -> Any:
        """Run a step of one candidate; a failure that leaves CUDA alive concerns it alone."""
        try:
            return action()
        except LabError as error:
            self.failures[label] = str(error)
        except Exception as error:
            fault = cuda_fault(error)
            if fault is None:
                # A library's own refusal (an unsupported shape, say) is not ours to die of.
                self.failures[label] = f"{type(error).__name__}: {error}"
                return None
            if fault.fatal:
                raise FatalFault(ProcessFault(label, fault.kind, fault.message, True)) from error
            self.failures[label] = fault.message
        return None

    def _draw_sets(self) -> None:
        device, workload = self.device, self.workload
        if can_fill(workload):
            for index, one in enumerate(self.sets):
                seed = self.seed * 4096 + index
                draw_on_device(device, self.request.fill_cubin, one, seed)
            return
        for index, one in enumerate(self.sets):
            if index < HOST_SETS:
                seed = workload.seed + self.seed * HOST_SETS + index
                drawn = operation_of(workload).draw(workload.replace(seed=seed))
                upload_inputs(device, one, drawn)
            else:
                source = self.sets[index % HOST_SETS]
                for name, target in one.given.items():
                    device.copy(source.given[name], target)

    def _choose_checked(self) -> None:
        """Which parts of which sets calls are compared with; and a set that nothing is compared
        with before the end, its inputs changed: no call of it is known to count while times are
        taken."""
        sets, rng = len(self.sets), self.rng
        chosen = {0: self.workload.parts_affordable()}
        if sets > 1:
            chosen[int(rng.integers(1, sets))] = 2
        checked = list(chosen)
        rungs = any(job.kind == "rung" for job in self.request.jobs)
        changed = int(rng.choice(checked)) if rungs else None
        left = [index for index in range(sets) if index not in chosen]
        late = int(rng.choice(left)) if rungs and left else None
        if late is not None:
            chosen[late] = 2
        asked, altered = [], {}
        for index, count in chosen.items():
            parts = self.workload.sample_parts(count, rng)
            altered[index] = self._alter(index, parts) if index in (changed, late) else []
            if index == late:
                del altered[index][1:]
            lying = map(self._lying, altered[index])
            asked.append(AskedParts(self.sets[index], parts, (nullcontext(), *lying)))
        schemes = {job.scheme for job in self.request.jobs}
        for index, found in zip(chosen, expect_on_device(self.device, asked, schemes), strict=True):
            for one, expected in zip(altered[index], found[1:], strict=True):
                one.expected = expected
            if index in checked:
                self.checked[index] = Checked(found[0], altered[index])
            else:
                self.late[index] = altered[index][0]

    @contextmanager
    def _lying(self, altered: Altered) -> Iterator[None]:
        """While the elements are changed."""
        altered.put(self.device)
        yield
        altered.put_back(self.device)

    def _expected(self, player: Player) -> dict[int, Arrays]:
        """What the candidate is compared with, by set."""
        return {index: one.expected[player.scheme] for index, one in self.checked.items()}

    def _prepare(self, job: Job) -> Player:
        """Bind, run once, compare, and capture as many launches as a sample takes."""
        device, workload, label = self.device, self.workload, job.label
        # A library may compile its kernels at the first call, which takes minutes.
        limit_s = LIBRARY_LIMIT_S if job.kind == "baseline" else STEP_LIMIT_S
        with self.report.step(f"checking {label} on {workload}", limit_s, label):
            if job.kind == "baseline":
                player = _baseline_player(device, job, self.sets, workload)
            else:
                player = _rung_player(device, job, self.sets, workload)
                player.fingerprint = self._fingerprint
                self.prepared[label] = player.prepared()
                _refuse_half_cold(player, workload, self.rotation, device.l2_bytes)
            player.poison()
            self._call_checked(player)
            if job.kind == "ceiling":
                player.comparison = self._check_ceiling(player, job)
            else:
                player.comparison = self._compare(player, self._expected(player))
            device.synchronize()
        if not player.comparison.ok:
            raise LabError(
                f"{label} is wrong on {workload}, so it is not timed.",
                "; ".join(player.comparison.problems),
            )
        with self.report.step(f"capturing {label} on {workload}", STEP_LIMIT_S * 2, label):
            self._capture_sample(player)
        return player

    def _call_checked(self, player: Player) -> None:
        for index in self.checked:
            self.sets[index].restore(self.device)
            player.call(index)
        self.device.synchronize()

    def _capture_sample(self, player: Player) -> None:
        device, sets, sample_us = self.device, self.rotation.sets, self.request.sample_us
        once_us = _time_us(device, lambda: player.call(0))
        if 0 < self.request.patience_us < once_us:
            raise LabError(
                f"{player.label} takes {once_us / 1e3:.1f} ms a call, so it is not timed.",
                f"what takes over {self.request.patience_us / 1e3:g} ms was not asked for",
                "it is right; `labtools bench --peers all` times it",
            )
        launches = plan_launches(once_us, sets, sample_us)
        _capture(device, player, launches, sets)
        took_us = _time_us(device, player.play)
        # Plain launches are slower than a graph's, so the first guess may be too short.
        better = plan_launches(took_us / launches, sets, sample_us)
        if better > launches:
            _capture(device, player, better, sets)
            took_us = _time_us(device, player.play)
        player.own_rounds = plan_rounds(took_us, self.request.rounds, self.request.budget_s)

    def _check_ceiling(self, player: Player, job: Job) -> Comparison:
        """Did the read sweep read every byte of the first set? Its checksum says so."""
        if self.checksum is None:
            swept = [one for name, one in self.sets[0].inputs.items() if name in job.read_names]
            self.checksum = _checksum_on_host(self.device, swept)
        found = player.read_checksum()
        self.checksum = found if self.checksum is None else self.checksum
        ok = found == self.checksum
        problems = [] if ok else [f"its checksum is {found:#x}, it should be {self.checksum:#x}"]
        return Comparison(ok, 0.0, (0, 0), 0.0, problems)

    def _play_rounds(self, players: list[Player]) -> None:
        """Warm up, then let all candidates take their turns, in random order in each round."""
        if not players:
            return
        device, rounds = self.device, self.request.rounds
        with self.report.step(f"timing on {self.workload}", STEP_LIMIT_S * 4):
            warmed = 0.0
            while players and warmed < WARM_UP_MS * 1e3:
                for player in list(players):
                    took_us = self._attempt(player.label, partial(_time_us, device, player.play))
                    if took_us is None:
                        players.remove(player)
                    else:
                        warmed += max(took_us, 1.0)
            checks = [
                (player, check, int(self.rng.integers(rounds)))
                for player in players
                if player.kind == "rung"
                for check in (self._check_cut_off, self._check_altered)
            ]
            for index in range(rounds):
                active = [p for p in players if takes_part(index, p.own_rounds, rounds)]
                self._play_round([active[place] for place in self.rng.permutation(len(active))])
                for player, check, when in checks:
                    if when == index and player in players:
                        self._attempt(player.label, partial(check, player))
                        if player.label in self.failures:
                            players.remove(player)

    def _play_round(self, players: Sequence[Player]) -> None:
        device, cuda = self.device, self.device.cp.cuda
        pending = []
        for player in players:
            start, end = cuda.Event(), cuda.Event()
            for one in self.sets:
                one.restore(device)  # else an in-out buffer could grow past what numbers hold
            if self.workload.cache_state == "warm":
                player.call(0)  # brings the buffers back after another candidate's turn
            if player.streamed:
                device.synchronize()  # else launches would hide behind what is still running
            start.record(device.stream)
            player.play()
            end.record(device.stream)
            pending.append((player, start, end))
        device.synchronize()
        for player, start, end in pending:
            elapsed_us = float(cuda.get_elapsed_time(start, end)) * 1e3
            player.us.append(elapsed_us / player.launches)

    def _check_cut_off(self, player: Player) -> None:
        """Wherever a replay is cut off, the last call's own answer is there.

        Many calls answered in the last are right after a whole replay. Odd and even lengths twice.
        """
        checked = self._expected(player)
        halves = self.rng.integers(1, LONGEST_CUT // 2, size=4)
        for calls in self.rng.permutation(2 * halves + [0, 0, 1, 1]):
            last = int(self.rng.choice(list(checked)))
            order = [(last - before) % self.rotation.sets for before in reversed(range(calls))]

            def run(order: Sequence[int] = order) -> None:
                for index in order[:-1]:
                    player.call(index)
                player.spoil(order[-1])
                player.call(order[-1])

            player.poison()
            _captured(self.device, player, run)[0]()
            self.device.synchronize()
            found = self._compare(player, {last: checked[last]})
            if not found.ok:
                raise LabError(
                    f"{player.label} is wrong where a replay is cut off.",
                    f"after {calls} calls in a row, of the last: {'; '.join(found.problems)}",
                    "its times are thrown away: the work of a call may be left to another",
                )

    def _check_after(self, player: Player) -> None:
        """What was timed must still be right: poison, replay, compare."""
        if player.kind == "ceiling":
            return
        with self.report.step(f"checking {player.label} after timing", STEP_LIMIT_S, player.label):
            player.poison()
            after = self._play_and_compare(player)
            for index, altered in self.late.items() if after.ok and player.kind == "rung" else ():
                self._alter_within(player, index, altered, 1)
        if not after.ok:
            raise LabError(
                f"{player.label} was right before timing and wrong after it.",
                "; ".join(after.problems),
                "its times are thrown away; look for a race or for state kept between launches",
            )
        assert player.comparison is not None
        worst = max(player.comparison, after, key=lambda one: one.worst_error or 0.0)
        player.comparison = replace(player.comparison, worst_error=worst.worst_error)
        if player.prepared() != self.prepared.get(player.label, player.prepared()):
            raise LabError(
                f"{player.label} changes what its preparation wrote.",
                "a call left it other than it was, and every other call reads it too",
                "its times are thrown away; scratch space of a call is a workspace of its own",
            )

    def _play_and_compare(self, player: Player) -> Comparison:
        """Exactly what was timed, once more; of in-out buffers, then a call on what was given."""
        player.play()
        self.device.synchronize()
        if self.workload.in_out:
            self._call_checked(player)
        return self._compare(player, self._expected(player))

    def _refuse_impossible(self, player: Player) -> None:
        """Refuse a time in which what a call must read cannot have come from memory.

        What may still lie in the L2 from the calls before is left out.
        """
        rate, sets = self.request.dram_gb_per_s, self.rotation.sets
        if not (rate and player.us and self.rotation.cold and self.workload.cache_state == "cold"):
            return
        least = max(0.0, player.least_bytes - self.device.l2_bytes / sets)
        floor_us, median = least / rate / 1e3, float(np.median(player.us))
        if median < floor_us:
            raise LabError(
                f"{player.label} takes {median:.2f} us on {self.workload}, which cannot be.",
                f"a call must read {player.least_bytes / 1e6:.2f} MB, and at the {rate:,.0f} GB/s "
                f"of the data sheet that takes {floor_us:.2f} us",
                "its times are thrown away: it does not read its inputs in every call",
            )

    def _fingerprint(self, index: int) -> int:
        written = [self.sets[index][name] for name in self.workload.outputs]
        return self.device.fingerprint(self.request.fill_cubin, written, self._secret)

    def _compare(self, player: Player, checked: Mapping[int, Arrays]) -> Comparison:
        """Hold what some calls wrote against the oracle. An answer with the bits of one that was
        found right is right, and need not be fetched: a comparison of large outputs takes long."""
        found = []
        for index, expected in checked.items():
            bits = player.fingerprint(index)
            key = None if bits is None else (id(expected), player.tolerance, bits)
            if key in self._right:
                found.append(self._right[key][1])
                continue
            found.append(player.problem.compare(player.outputs(index), expected, player.tolerance))
            if key is not None and found[-1].ok:
                self._right[key] = (expected, found[-1])  # held, so that its id stays its own
        return replace(merge_comparisons(found), cases=1)

    def _alter(self, index: int, parts: Sequence[Part]) -> list[Altered]:
        """What changes a few elements behind every part of a set that is compared: of all inputs
        that the operation alters, and then of each by itself.
        """
        device, buffers, operation = self.device, self.sets[index], operation_of(self.workload)
        places: dict[str, list[tuple[Any, Any, Any]]] = {}
        together = Altered([])

        def fetch(name: str, place: Any) -> np.ndarray:
            array = device.download(buffers.given[name][place])
            return host_view(array, self.workload.inputs[name].dtype)

        def store(name: str, place: Any, array: Any) -> None:
            target = buffers.given[name][place]
            before, changed = (device.empty(target.shape, target.dtype) for _ in range(2))
            device.copy(target, before)
            device.upload(target, array)
            device.copy(target, changed)
            together.places.append((target, changed, before))
            places.setdefault(name, []).append(together.places[-1])

        for part in parts:
            operation.alter_part(self.workload, part, fetch, store, self.rng)
        together.put_back(device)
        apart = [Altered(ones) for ones in places.values()] if len(places) > 1 else []
        return [together, *apart]

    def _check_altered(self, player: Player) -> None:
        """An answer that was kept, whatever it was looked up by and wherever in a replay it is
        given, is wrong for other inputs: they change in front of one call of many, late and
        anywhere.
        """
        (index,) = (one for one, checked in self.checked.items() if checked.altered)
        together, *apart = self.checked[index].altered
        self._alter_within(player, index, together, player.launches)
        for altered in (together, *apart):
            self._alter_within(player, index, altered, 1)

    def _alter_within(self, player: Player, index: int, altered: Altered, least: int) -> None:
        """The same of a replay of at least so many calls.

        What a preparation makes of the inputs is copied to its place: no code of the candidate runs
        that could tell its calls that something changed.
        """
        device, sets = self.device, self.rotation.sets
        fewest = max(least, index + 1)
        calls = int(self.rng.integers(fewest, max(player.launches, fewest), endpoint=True))
        last = max(call for call in range(calls) if call % sets == index)
        altered.put(device)
        player.prepare()
        stored = [(one, device.empty(one.shape, one.dtype)) for one in player.stored(index)]
        for one, kept in stored:
            device.copy(one, kept)
        altered.put_back(device)
        player.prepare()

        def run() -> None:
            for call in range(calls):
                if call == last:
                    altered.put(device)
                    for one, kept in stored:
                        device.copy(kept, one)
                    self.sets[index].restore(device)
                player.call(call % sets)

        replay = _captured(device, player, run)[0]
        player.play()  # so that the answers of before, which are wrong then, are all there
        replay()
        device.synchronize()
        found = self._compare(player, {index: altered.expected[player.scheme]})
        altered.put_back(device)
        player.prepare()
        device.synchronize()
        if not found.ok:
            raise LabError(
                f"{player.label} is wrong once its inputs have changed where they lie.",
                f"at call {last} of {calls}: {'; '.join(found.problems)}",
                "its times are thrown away: it keeps an answer, or a part of one, between calls",
            )


def _rotated_bytes(player: Player, rotation: Rotation) -> int:
    if player.read_bytes is None:
        return rotation.total_bytes
    return rotation.sets * player.read_bytes


def _rung_player(device: LiveDevice, job: Job, sets: list[BufferSet], problem: Problem) -> Player:
    prepared = job.prepared
    in_call = {name: InCall(name, one.bytes) for name, one in job.workspaces.items() if one.in_call}
    without = [*prepared, *in_call]
    workspaces = allocate_workspaces(device, job.launches, without=without)
    # What a preparation writes belongs to its set: shared by the sets it would be wrong for all
    # but one of them, and it would stay in the L2 from one call to the next.
    own = [allocate_workspaces(device, job.launches, only=prepared) for _ in sets]
    calls, preparations = [], []
    for one, mine in zip(sets, own, strict=True):
        named = {**one.arrays, **workspaces, **mine, **in_call}
        if job.preparation:
            preparations.append(bind_launches(device, job.cubin, job.preparation, named))
            preparations[-1]()
        calls.append(bind_launches(device, job.cubin, job.timed, named))
    read_bytes = None
    if prepared:
        named = {**sets[0].arrays, **own[0]}
        read = job.read_names
        read_bytes = sum(int(array.nbytes) for name, array in named.items() if name in read)
    blank = BufferSet(
        {name: device.empty(one.shape, one.dtype) for name, one in problem.outputs.items()}, problem
    )
    poison_outputs(device, blank)

    def prepare() -> None:
        for again in preparations:
            again()

    def prepared_now() -> list[bytes]:
        small = [one for one in own[0].values() if one.nbytes <= CHECKSUM_BYTES]
        return [device.download(one).tobytes() for one in small]

    def spoil(index: int) -> None:
        for name in problem.outputs:
            if name not in problem.inputs:
                device.copy(blank[name], sets[index][name])
        sets[index].restore(device)

    def poison() -> None:
        for index in range(len(sets)):
            spoil(index)
        for array in workspaces.values():
            device.set_bytes(array, 0 if job.kind == "ceiling" else 0xFF)

    def read_checksum() -> int:
        device.set_bytes(workspaces["checksum"], 0)
        calls[0]()
        device.synchronize()
        return int(device.download(workspaces["checksum"])[0])

    return Player(
        job.label,
        job.kind,
        problem,
        lambda index: calls[index](),
        lambda index: outputs_on_host(device, sets[index]),
        poison,
        spoil,
        keep=[workspaces, calls, blank, own],
        prepare=prepare,
        prepared=prepared_now,
        stored=lambda index: list(own[index].values()),
        least_bytes=job.least_bytes(problem),
        read_checksum=read_checksum,
        tolerance=job.tolerance,
        read_bytes=read_bytes,
        scheme=job.scheme,
        streamed=job.timing == "stream",
    )


def _refuse_half_cold(player: Player, workload: Problem, rotation: Rotation, l2_bytes: int) -> None:
    """A cold time of a smaller, prepared cache needs that cache's sets to be past the L2 too."""
    together = _rotated_bytes(player, rotation)
    if workload.cache_state == "cold" and rotation.cold and together < COLD_LEAST * l2_bytes:
        raise LabError(
            f"{player.label} was not timed on {workload}.",
            f"its prepared buffers are {together / 1e6:.0f} MB together, which is less than "
            f"{COLD_LEAST} times the L2, so its time would not be a cold one",
            "a larger workload",
        )


def _baseline_player(
    device: LiveDevice, job: Job, sets: list[BufferSet], workload: Problem
) -> Player:
    if device.torch is None:
        why = "torch with CUDA is not installed here"
        raise LabError(f"{job.label} was not timed.", why, "the rungs are timed without it")
    baseline = baseline_of(job)
    functions = [baseline.prepare(device.torch_inputs(one), workload) for one in sets]
    answers: list[Any] = [None] * len(sets)

    def call(index: int) -> None:
        # The old output is kept until the new one is there, so outputs rotate like inputs.
        answers[index] = functions[index]()

    def outputs(index: int) -> dict[str, np.ndarray]:
        answer = answers[index] if isinstance(answers[index], tuple) else (answers[index],)
        return {
            name: _tensor_on_host(tensor).reshape(one.shape)
            for (name, one), tensor in zip(workload.outputs.items(), answer, strict=True)
        }

    return Player(
        job.label,
        job.kind,
        workload,
        call,
        outputs,
        poison=lambda: None,
        keep=[functions, answers],
        tolerance=baseline.tolerance_for(workload),
        streamed=job.timing == "stream",
        read_bytes=None if job.storage == AS_THEY_ARE else job.call_read_bytes(workload),
    )


def _tensor_on_host(tensor: Any) -> np.ndarray:
    """A torch tensor's content; numpy has no bfloat16 of torch's, and float holds it as it is."""
    held = tensor.detach()
    wide = held.float() if held.is_floating_point() else held
    return wide.cpu().numpy()  # type: ignore[no-any-return]


def _checksum_on_host(device: LiveDevice, swept: Sequence[Any]) -> int | None:
    """The checksum that the read sweep must find; None where that would take long."""
    if sum(array.nbytes for array in swept) > CHECKSUM_BYTES:
        return None
    total = 0
    for array in swept:
        words = device.download(array).reshape(-1).view(np.uint32)
        total ^= int(np.bitwise_xor.reduce(words))
    return total


def _time_us(device: LiveDevice, action: Callable[[], None]) -> float:
    start, end = device.cp.cuda.Event(), device.cp.cuda.Event()
    start.record(device.stream)
    action()
    end.record(device.stream)
    end.synchronize()
    return float(device.cp.cuda.get_elapsed_time(start, end)) * 1e3


def _capture(device: LiveDevice, player: Player, launches: int, sets: int) -> None:
    """Put the launches into a graph; where that is refused, launch them one by one."""
    call = player.call

    def run() -> None:
        for index in range(launches):
            call(index % sets)

    player.launches = launches
    player.play, player.protocol = _captured(device, player, run)
    player.play()
    device.synchronize()


def _captured(
    device: LiveDevice, player: Player, run: Callable[[], None]
) -> tuple[Callable[[], None], str]:
    """What makes a player's calls in the way in which it is timed, and the name of that way."""
    if player.streamed:
        return run, STREAM_PROTOCOL
    try:
        capture = _capture_torch if player.kind == "baseline" else _capture_cupy
        return capture(device, run), GRAPH_PROTOCOL
    except Exception as error:
        fault = cuda_fault(error)
        if fault is not None and fault.kind in ("misaligned", "out_of_bounds", "trap"):
            raise
        device.synchronize()
        return run, EVENTS_PROTOCOL


def _capture_torch(device: LiveDevice, run: Callable[[], None]) -> Callable[[], None]:
    device.synchronize()
    graph = device.torch.cuda.CUDAGraph()
    graph.capture_begin(capture_error_mode="thread_local")
    try:
        run()
    finally:
        graph.capture_end()
    return graph.replay  # type: ignore[no-any-return]


def _capture_cupy(device: LiveDevice, run: Callable[[], None]) -> Callable[[], None]:
    device.stream.begin_capture()
    try:
        run()
    finally:
        graph = device.stream.end_capture()
    return partial(graph.launch, device.stream)
