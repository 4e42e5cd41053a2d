"""Timing as it runs in the child: every candidate of a workload, interleaved, by graph replays.

One group is one workload with its candidates. Each candidate's N launches go round the buffer
sets and are captured into one CUDA graph; rounds replay the graphs in random order between two
events. Each candidate is compared with the oracle before and after.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from labtools.problem import (
    LabError,
    Workload,
    compare_output,
    load_baseline,
    make_inputs,
    poisoned,
)

from .live_check import draw_on_device, drawn_on_host, expect_on_device
from .live_clocks import ClockWatch
from .live_device import (
    BufferSet,
    InCall,
    LiveDevice,
    allocate_sets,
    allocate_workspaces,
    bind_launches,
    device_dtype,
    host_view,
)
from .live_faults import explain_cuda_error, looks_like_cuda
from .live_job import (
    call_read_bytes,
    prepared_names,
    scheme_from_json,
    split_launches,
    workspaces_of,
)
from .live_plan import (
    COLD_LEAST,
    Rotation,
    pairs_affordable,
    plan_launches,
    plan_rotation,
    plan_rounds,
    sample_pairs,
    takes_part,
)
from .live_watch import Watchdog

GRAPH_PROTOCOL = "graph-1"
EVENTS_PROTOCOL = "events-1"
STREAM_PROTOCOL = "stream-1"
"""Plain launches by intent, from an idle GPU on: for a call that allocates memory, which a graph
would do once and for all, and for what is compared with it."""
STEP_LIMIT_S = float(os.environ.get("LABTOOLS_STEP_LIMIT_S", "60"))
"""A step of one candidate that takes longer is a hang; the process then ends."""
LIBRARY_LIMIT_S = 600.0
CHECKSUM_BYTES = 64 * 1024 * 1024
"""Up to this size the read sweep's checksum is held against the bytes themselves; beyond, the
sweep's shapes are held against each other."""
HOST_SETS = 4
"""Sets with inputs of their own when the CPU draws them; further sets are copies."""
WARM_UP_MS = 20.0


class FatalFault(Exception):
    """CUDA is dead in this process; carries the candidate and the fault."""

    def __init__(self, label: str, kind: str, message: str) -> None:
        super().__init__(message)
        self.label = label
        self.kind = kind
        self.message = message


@dataclass
class Player:
    """One candidate, ready to be timed.

    Args:
        label: names it.
        call: runs it once on set ``i``.
        output: the device array that call ``i`` wrote, after a call or a replay.
        play: runs one sample's launches.
        launches: how many these are.
        read_bytes: of one set of buffers, where a call reads a prepared copy of K and V instead
            of K and V; None where it reads these.
        scheme: how it stores K and V, as JSON; None where they stay as they are.
        dtype: of the workload.
        streamed: its launches are made one by one, not replayed.
    """

    label: str
    kind: str
    call: Callable[[int], None]
    output: Callable[[int], Any]
    poison: Callable[[], None]
    play: Callable[[], None] = lambda: None
    launches: int = 0
    protocol: str = GRAPH_PROTOCOL
    own_rounds: int = 0
    us: list[float] = field(default_factory=list)
    result: dict[str, Any] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)
    tolerance: float | None = None
    read_bytes: int | None = None
    scheme: Mapping[str, Any] | None = None
    dtype: str = "float16"
    streamed: bool = False


class Checked:
    """What the oracle gives for some pairs of some sets, by how K and V are stored.

    Args:
        device: where the sets are.
        sets: the buffers of all sets.
        workload: whose they are.
        pairs: the pairs to compare, by set.
    """

    def __init__(
        self,
        device: LiveDevice,
        sets: list[BufferSet],
        workload: Workload,
        pairs: Mapping[int, list[tuple[int, int]]],
    ) -> None:
        self._device, self._sets, self._workload, self._pairs = device, sets, workload, pairs
        self._known: dict[str, dict[int, np.ndarray]] = {}

    def of(self, scheme: Mapping[str, Any] | None) -> dict[int, np.ndarray]:
        """The oracle's output by set, float64 ``[B, Hq, D]``; NaN for pairs not compared."""
        key = json.dumps(scheme, sort_keys=True)
        if key not in self._known:
            self._known[key] = {
                index: expect_on_device(
                    *(self._device, self._sets[index], self._workload, pairs),
                    scheme_from_json(scheme),
                )
                for index, pairs in self._pairs.items()
            }
        return self._known[key]


def measure_group(
    device: LiveDevice,
    group: Mapping[str, Any],
    process: int,
    watchdog: Watchdog,
    clocks: ClockWatch,
) -> dict[str, Any]:
    """Time every candidate of a group in this process.

    Returns:
        JSON: for each label the samples or why there are none, and the clocks.

    Raises:
        FatalFault: a candidate killed the CUDA context.
    """
    workload = Workload.from_dict(group["workload"])
    seed = int(group["seed"]) * 1000 + process
    rng = np.random.default_rng(seed)
    least = min((call_read_bytes(job, workload) for job in group["candidates"]), default=None)
    rotation = plan_rotation(workload, device.l2_bytes, device.free_bytes(), least)
    results: dict[str, dict[str, Any]] = {}
    with watchdog.step(f"making inputs for {workload}", STEP_LIMIT_S * 4):
        sets = allocate_sets(device, workload, rotation.sets)
        _draw_sets(device, group["fill_cubin"], sets, workload, seed)
        checked = _choose_pairs(device, sets, workload, rng)
        checked.of(None)
        device.synchronize()
    checksum = _checksum_on_host(device, sets[0])
    players = []
    for job in group["candidates"]:
        prepare = partial(
            _prepare, device, job, sets, checked, workload, rotation, group, watchdog, checksum
        )
        player = _attempt(job["label"], results, prepare)
        if player is not None:
            players.append(player)
    clocks.start()
    try:
        _play_rounds(device, players, group, rng, results, workload, watchdog)
    finally:
        readings = clocks.stop()
    for player in [player for player in players if player.label not in results]:
        check = partial(_check_after, device, player, checked, watchdog)
        _attempt(player.label, results, check)
    for player in players:
        if player.label not in results:
            results[player.label] = {
                **player.result,
                "us": [round(value, 4) for value in player.us],
                "launches_per_sample": player.launches,
                "rotated_sets": rotation.sets,
                "rotated_bytes": _rotated_bytes(player, rotation),
                "protocol": player.protocol,
            }
    cold = workload.cache_state == "cold"
    note = "" if rotation.cold or not cold else "the buffers together are not 3 times the L2"
    players.clear()
    del sets, checked
    device.release()
    return {"process": process, "candidates": results, "clocks": readings, "note": note}


def _rotated_bytes(player: Player, rotation: Rotation) -> int:
    """Bytes that the calls of one turn go through."""
    if player.read_bytes is None:
        return rotation.total_bytes
    return rotation.sets * player.read_bytes


def _attempt(label: str, results: dict[str, dict[str, Any]], action: Callable[[], Any]) -> Any:
    """Run a step of one candidate; a failure that leaves CUDA alive concerns it alone."""
    try:
        return action()
    except LabError as error:
        results[label] = {"problem": str(error)}
    except Exception as error:
        if not looks_like_cuda(error):
            # A library's own refusal (an unsupported shape, say) is not ours to die of.
            results[label] = {"problem": f"{type(error).__name__}: {error}"}
            return None
        fault = explain_cuda_error(str(error))
        if fault.fatal:
            raise FatalFault(label, fault.kind, fault.message) from error
        results[label] = {"problem": fault.message, "kind": fault.kind}
    return None


def _draw_sets(
    device: LiveDevice, fill: str, sets: list[BufferSet], workload: Workload, seed: int
) -> None:
    if not drawn_on_host(workload) or workload.distribution == "normal":
        for index, one in enumerate(sets):
            draw_on_device(device, fill, one, workload, seed * 4096 + index)
        return
    for index, one in enumerate(sets):
        if index < HOST_SETS:
            inputs = make_inputs(workload.replace(seed=workload.seed + seed * HOST_SETS + index))
            for name, array in inputs.buffers().items():
                device.upload(one.named()[name], array)
        else:
            source = sets[index % HOST_SETS].named()
            for name, target in one.named().items():
                if name == "out":
                    continue
                target.data.copy_from_device_async(source[name].data, target.nbytes, device.stream)


def _choose_pairs(
    device: LiveDevice, sets: list[BufferSet], workload: Workload, rng: np.random.Generator
) -> Checked:
    """Some heads of the first set and of one drawn set."""
    chosen = {0: pairs_affordable(workload)}
    if len(sets) > 1:
        chosen[int(rng.integers(1, len(sets)))] = 2
    pairs = {index: sample_pairs(workload, count, rng) for index, count in chosen.items()}
    return Checked(device, sets, workload, pairs)


def _prepare(
    device: LiveDevice,
    job: Mapping[str, Any],
    sets: list[BufferSet],
    checked: Checked,
    workload: Workload,
    rotation: Rotation,
    group: Mapping[str, Any],
    watchdog: Watchdog,
    checksum: list[int],
) -> Player | None:
    label = job["label"]
    # A library may compile its kernels at the first call, which takes minutes.
    limit_s = LIBRARY_LIMIT_S if job["kind"] == "baseline" else STEP_LIMIT_S
    with watchdog.step(f"checking {label} on {workload}", limit_s, label):
        if job["kind"] == "baseline":
            player = _baseline_player(device, job, sets, workload)
        else:
            player = _rung_player(device, job, sets, workload.dtype)
            _refuse_half_cold(player, workload, rotation, device.l2_bytes)
        player.poison()
        for index in checked.of(player.scheme):
            player.call(index)
        device.synchronize()
        if job["kind"] == "ceiling":
            player.result = _check_ceiling(device, player, checksum)
        else:
            player.result = _compare(device, player, checked.of(player.scheme))
    if not player.result["ok"]:
        raise LabError(
            f"{label} is wrong on {workload}, so it is not timed.",
            "; ".join(player.result["problems"]),
        )
    with watchdog.step(f"capturing {label} on {workload}", STEP_LIMIT_S * 2, label):
        once_us = _time_us(device, lambda: player.call(0))
        launches = plan_launches(once_us, rotation.sets, group["sample_us"])
        _capture(device, player, launches, rotation.sets)
        took_us = _time_us(device, player.play)
        # Plain launches are slower than a graph's, so the first guess may be too short.
        better = plan_launches(took_us / launches, rotation.sets, group["sample_us"])
        if better > launches:
            _capture(device, player, better, rotation.sets)
            took_us = _time_us(device, player.play)
        player.own_rounds = plan_rounds(took_us, group["rounds"], group["budget_s"])
    return player


def _rung_player(
    device: LiveDevice, job: Mapping[str, Any], sets: list[BufferSet], dtype: str
) -> Player:
    preparation, timed = split_launches(job["launches"])
    prepared = prepared_names(job["launches"])
    in_call = {
        name: InCall(name, int(np.prod(one["shape"])) * device_dtype(one["dtype"]).itemsize)
        for name, one in workspaces_of(job["launches"]).items()
        if one["in_call"]
    }
    without = [*prepared, *in_call]
    workspaces = allocate_workspaces(device, job["launches"], without=without)
    # What a preparation writes belongs to its set: shared by the sets it would be wrong for all
    # but one of them, and it would stay in the L2 from one call to the next.
    own = [allocate_workspaces(device, job["launches"], only=prepared) for _ in sets]
    calls = []
    for one, mine in zip(sets, own, strict=True):
        named = {**one.named(), **workspaces, **mine, **in_call}
        if preparation:
            bind_launches(device, job["cubin"], preparation, named)()
        calls.append(bind_launches(device, job["cubin"], timed, named))
    read_bytes = None
    if prepared:
        read = {arg for launch in timed for arg in launch["args"] if isinstance(arg, str)}
        named = {**sets[0].named(), **own[0]}
        read_bytes = sum(int(array.nbytes) for name, array in named.items() if name in read)
    blank = device.empty(sets[0].out.shape, sets[0].out.dtype)
    device.upload(blank, poisoned(blank.shape, dtype))

    def poison() -> None:
        for one in sets:
            one.out.data.copy_from_device_async(blank.data, blank.nbytes, device.stream)
        for array in workspaces.values():
            device.set_bytes(array, 0 if job["kind"] == "ceiling" else 0xFF)

    return Player(
        job["label"],
        job["kind"],
        call=lambda index: calls[index](),
        output=lambda index: sets[index].out,
        poison=poison,
        keep=[workspaces, calls, blank, own],
        tolerance=job["tolerance"],
        read_bytes=read_bytes,
        scheme=job["scheme"],
        dtype=dtype,
        streamed=job["timing"] == "stream",
    )


def _refuse_half_cold(
    player: Player, workload: Workload, rotation: Rotation, l2_bytes: int
) -> None:
    """A cold time of a smaller, prepared cache needs that cache's sets to be past the L2 too.

    Raises:
        LabError: they are not, though the sets of K and V are.
    """
    together = _rotated_bytes(player, rotation)
    if workload.cache_state == "cold" and rotation.cold and together < COLD_LEAST * l2_bytes:
        raise LabError(
            f"{player.label} was not timed on {workload}.",
            f"its prepared buffers are {together / 1e6:.0f} MB together, which is less than "
            f"{COLD_LEAST} times the L2, so its time would not be a cold one",
            "a larger workload",
        )


def _baseline_player(
    device: LiveDevice, job: Mapping[str, Any], sets: list[BufferSet], workload: Workload
) -> Player:
    if device.torch is None:
        raise LabError(
            f"{job['label']} was not timed.",
            "torch with CUDA is not installed here",
            "the rungs are timed without it",
        )
    baseline = load_baseline(job["baseline"])
    functions = []
    for one in sets:
        functions.append(baseline.prepare(device.torch_inputs(one), workload))
    outputs: list[Any] = [None] * len(sets)

    def call(index: int) -> None:
        # The old output is kept until the new one is there, so outputs rotate like inputs.
        outputs[index] = functions[index]()

    def output(index: int) -> Any:
        return outputs[index]

    return Player(
        *(job["label"], "baseline", call, output),
        poison=lambda: None,
        keep=[functions, outputs],
        tolerance=baseline.tolerance_for(workload),
        streamed=job["timing"] == "stream",
        read_bytes=None if baseline.kv_bits == 16 else call_read_bytes(job, workload),
    )


def _compare(
    device: LiveDevice, player: Player, checked: Mapping[int, np.ndarray]
) -> dict[str, Any]:
    """Worst comparison over the checked sets."""
    worst, problems, pairs, limit = 0.0, [], 0, 0.0
    for index, expected in checked.items():
        out = player.output(index)
        if player.kind == "baseline":
            # numpy has no bfloat16 of torch's; float holds fp16 and bf16 as they are.
            host = out.detach().reshape(expected.shape).float().cpu().numpy()
        else:
            host = host_view(device.download(out), player.dtype)
        comparison = compare_output(host, expected, player.tolerance)
        problems += comparison.problems
        worst = max(worst, comparison.worst_error)
        limit = comparison.tolerance
        pairs += int((~np.isnan(expected).all(axis=-1)).sum())
    return {
        "ok": not problems,
        "problems": problems,
        "worst_error": worst,
        "tolerance": limit,
        "pairs": pairs,
    }


def _checksum_on_host(device: LiveDevice, first: BufferSet) -> list[int]:
    """The checksum that the read sweep must find, or nothing yet where that would take long."""
    if first.k.nbytes + first.v.nbytes > CHECKSUM_BYTES:
        return []
    total = 0
    for array in (first.k, first.v):
        words = device.download(array).reshape(-1).view(np.uint32)
        total ^= int(np.bitwise_xor.reduce(words))
    return [total]


def _check_ceiling(device: LiveDevice, player: Player, checksum: list[int]) -> dict[str, Any]:
    """Did the read sweep read every byte of the first set? Its checksum says so."""
    workspaces = player.keep[0]
    device.set_bytes(workspaces["checksum"], 0)
    player.call(0)
    device.synchronize()
    found = int(device.download(workspaces["checksum"])[0])
    if not checksum:
        checksum.append(found)
    ok = found == checksum[0]
    problems = [] if ok else [f"its checksum is {found:#x}, it should be {checksum[0]:#x}"]
    return {"ok": ok, "problems": problems, "worst_error": 0.0, "tolerance": 0.0, "pairs": 0}


def _time_us(device: LiveDevice, action: Callable[[], None]) -> float:
    """Time of one run of an action on the device, microseconds; it has run before."""
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
    if player.streamed:
        player.play, player.protocol = run, STREAM_PROTOCOL
        player.play()
        device.synchronize()
        return
    try:
        capture = _capture_torch if player.kind == "baseline" else _capture_cupy
        player.play = capture(device, run)
        player.protocol = GRAPH_PROTOCOL
    except Exception as error:
        if explain_cuda_error(str(error)).kind in ("misaligned", "out_of_bounds", "trap"):
            raise
        device.synchronize()
        player.play = run
        player.protocol = EVENTS_PROTOCOL
    player.play()
    device.synchronize()


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


def _play_rounds(
    device: LiveDevice,
    players: list[Player],
    group: Mapping[str, Any],
    rng: np.random.Generator,
    results: dict[str, dict[str, Any]],
    workload: Workload,
    watchdog: Watchdog,
) -> None:
    if not players:
        return
    rounds = int(group["rounds"])
    warm = workload.cache_state == "warm"
    cupy_cuda = device.cp.cuda
    with watchdog.step(f"timing on {workload}", STEP_LIMIT_S * 4):
        warmed = 0.0
        while players and warmed < WARM_UP_MS * 1e3:
            for player in list(players):
                took_us = _attempt(player.label, results, partial(_time_us, device, player.play))
                if took_us is None:
                    players.remove(player)
                else:
                    warmed += max(took_us, 1.0)
        for index in range(rounds):
            active = [p for p in players if takes_part(index, p.own_rounds, rounds)]
            pending = []
            for place in rng.permutation(len(active)):
                player = active[place]
                start, end = cupy_cuda.Event(), cupy_cuda.Event()
                if warm:
                    player.call(0)  # brings the buffers back after another candidate's turn
                if player.streamed:
                    device.synchronize()  # else launches would hide behind what is still running
                start.record(device.stream)
                player.play()
                end.record(device.stream)
                pending.append((player, start, end))
            device.synchronize()
            for player, start, end in pending:
                elapsed_us = float(cupy_cuda.get_elapsed_time(start, end)) * 1e3
                player.us.append(elapsed_us / player.launches)


def _check_after(
    device: LiveDevice,
    player: Player,
    checked: Checked,
    watchdog: Watchdog,
) -> None:
    """What was timed must still be right: poison, replay, compare."""
    if player.kind == "ceiling":
        return
    with watchdog.step(f"checking {player.label} after timing", STEP_LIMIT_S, player.label):
        player.poison()
        player.play()
        device.synchronize()
        after = _compare(device, player, checked.of(player.scheme))
    if not after["ok"]:
        raise LabError(
            f"{player.label} was right before timing and wrong after it.",
            "; ".join(after["problems"]),
            "its times are thrown away; look for a race or for state kept between launches",
        )
    player.result["worst_error"] = max(player.result["worst_error"], after["worst_error"])
