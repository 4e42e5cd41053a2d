"""Every question of the goldens by kind and key, and how labtools is asked."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import random
import shlex
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from labtools.notebook.exercises import exercise_files, load_exercise
from labtools.notebook.in_page import prepared_texts
from labtools.problem import Workload, kernels_dir, load_rung
from labtools.problem.rung import say_knobs
from labtools.record import Record, read_records, shipped_records_dir
from tools.write_in_page import golden_kernel
from tools.write_listings import locked_nvrtc

from .commands import FILES, GUESSED, GUESSES, Command, commands
from .values import Json, as_kept, digest, mask

DRAWN_SHARES = {"json": 20, "forecast": 10, "hash": 12, "median": 12, "prepared": 6}
"""How 60 drawn goldens are spread; another number is spread alike."""
MOST_SECONDS = 32.0
"""What 60 drawn goldens may take together, by what is known of them."""


@dataclass(frozen=True)
class HeldRecord:
    """One shipped record of decode."""

    path: Path
    number: int  # of its line in the file
    raw: dict[str, Any]  # its line: keys come from it, since it stays when classes change

    @property
    def record(self) -> Record:
        """The record itself, read when it is asked for: most runs ask for few."""
        return _records_of(self.path)[self.number]


@cache
def _records_of(path: Path) -> list[Record]:
    """The records of a file; raises LabError where one is damaged."""
    records, problems = read_records(path)
    if problems:
        raise problems[0]
    return records


@dataclass(frozen=True)
class GoldenCase:
    """One question."""

    kind: str
    key: str  # names it within its kind; does not change when the code does
    needs: frozenset[str]  # as in `Command`
    seconds: float  # that it takes, about
    subject: Any  # the command, the record, or the exercise and the kernel's text

    def answer(self) -> Json:
        """What the project says now, in the form that is kept."""
        if isinstance(self.subject, Command):
            return as_kept(ask_command(self.subject), self.subject.whole)
        asked = {
            **{"forecast": ask_forecast, "hash": ask_hashes, "median": ask_times},
            "prepared": lambda one: golden_kernel(*one),
        }[self.kind]
        return as_kept(asked(self.subject), whole=self.kind in ("forecast", "prepared"))


@cache
def every_case() -> dict[tuple[str, str], GoldenCase]:
    """All cases by kind and key."""
    found: dict[tuple[str, str], GoldenCase] = {}

    def add(kind: str, key: str, needs: Iterable[str], seconds: float, subject: Any) -> None:
        found.setdefault((kind, key), GoldenCase(kind, key, frozenset(needs), seconds, subject))

    for text, command in commands().items():
        add("json", text, command.needs, command.seconds, command)
    for held in held_records():
        point = point_key(held.raw)
        file = held.path.relative_to(shipped_records_dir()).as_posix()
        words = (file, point, held.raw.get("experiment"), held.raw["campaign"])
        name = " ".join(filter(None, words))
        if held.raw["kind"] == "rung":
            gpu = held.raw["provenance"]["gpu_slug"]
            add("forecast", f"{gpu} {point}", {"compiler"}, 0.8, held)
        add("hash", name, {"compiler"}, 0.3, held)
        add("median", name, (), 0.0, held)
    for name in sorted(exercise_files()):
        for what, text in prepared_texts(load_exercise(name)).items():
            add("prepared", f"{name} {what}", {"compiler", "host"}, 1.3, (name, text))
    return found


def held_records() -> Iterator[HeldRecord]:
    """Every shipped record of decode, in the order of the files and their lines."""
    for path in sorted(shipped_records_dir().glob("*/*.jsonl.gz")):
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        raws = [json.loads(line) for line in lines if line.strip()]
        for number, raw in enumerate(raws):
            if "operation" not in raw["workload"]:
                yield HeldRecord(path, number, raw)


def point_key(raw: dict[str, Any]) -> str:
    """Candidate, knobs and workload of a record's line.

    What a launch is laid out for is no part of it: older lines have the number of SMs as a knob.
    """
    chosen = sorted((name, value) for name, value in raw["knobs"].items() if name != "sms")
    words = [raw["candidate"], say_knobs(chosen, ",")]
    shape = Workload.shape_fields
    words.append(",".join(str(raw["workload"][name]) for name in shape))
    usual = {part.name: part.default for part in fields(Workload) if part.name not in shape}
    for name, value in sorted(raw["workload"].items()):
        if name not in shape and value != usual.get(name):
            words.append(f"{name}={digest(value) if isinstance(value, list) else value}")
    return " ".join(filter(None, words))


# ---------------------------------------------------------------------------------------- asking


def ask_command(command: Command) -> Json:
    """The exit status and the JSON of a command line, with what is the machine's masked."""
    from labtools.cli import main

    out = io.StringIO()
    with tempfile.TemporaryDirectory(prefix="labtools-goldens-") as name, own_journal(Path(name)):
        for file, text in FILES.items():
            Path(name, file).write_text(text, "utf-8")
        if command.text.endswith(GUESSES):
            lines = [json.dumps(entry) + "\n" for entry in GUESSED]
            Path(name, "journal.jsonl").write_text("".join(lines), "utf-8")
        words = shlex.split(command.text, comments=True)
        words = [f"{name}/{word[1:]}" if word.startswith("@") else word for word in words]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            status = int(main(words))
        said = out.getvalue()
        data = json.loads(said) if said.strip() else None
    return mask(command.text, {"status": status, "data": data})


def own_journal(folder: Path) -> AbstractContextManager[object]:
    """A journal of its own, so that the reader's is neither read nor written."""
    journal = {"LABTOOLS_JOURNAL_URL": str(folder / "journal.sqlite")}
    reader = {"LABTOOLS_READER_NAME": "reader", "LABTOOLS_READER": "0"}
    return mock.patch.dict(os.environ, journal | reader)


def ask_forecast(held: HeldRecord) -> Json:
    """The forecast of a record's rung, knobs and workload on its GPU, with the model's version."""
    from labtools.predict import MODEL_VERSION, forecast, load_gpu

    record = held.record
    gpu = load_gpu(record.provenance.gpu_slug)
    made = forecast(load_rung(record.name), record.problem, gpu, record.knobs)
    names = "time_us bound bound_reason gb_per_s in_flight_bytes note".split()
    of_launch = """
        entry time_us blocks threads resident_blocks dram_bytes l2_bytes issue_share
        load_latency_cycles true_chain_cycles
    """.split()
    return {
        **{name: getattr(made, name) for name in names},
        "model": MODEL_VERSION,
        "band_us": made.band_us and list(made.band_us),
        "terms_us": dict(made.terms_us),
        "floor_us": made.floor.time_us,
        "stack": [[part.name, part.cycles] for part in made.stack[:4]],
        "launches": [
            {
                **{name: getattr(launch, name) for name in of_launch},
                "trips": [list(loop) for loop in launch.trips],
                "main_loop": list(launch.main_loop) if launch.main_loop else None,
            }
            for launch in made.launches
        ],
    }


_hashes: dict[str, Json] = {}


def ask_hashes(held: HeldRecord) -> Json:
    """The hashes of a record's code as it stands now, and whether the record is fresh."""
    from labtools.record import freshness, hash_python_file
    from labtools.record.staleness import limits_of_record
    from labtools.toolchain.compiler import kernel_hashes, launched_entries

    record = held.record
    state = freshness(record)
    said: dict[str, Json] = {"fresh": state.fresh, "reason": state.reason}
    if record.kind == "baseline":
        source = hash_python_file(kernels_dir() / "baselines" / f"{record.name}.py")
        return {"source": source, **said}
    ceiling = kernels_dir() / "microbench" / f"{record.name}.py"
    rung = load_rung(ceiling if record.kind == "ceiling" else record.name)
    arch, limits = record.provenance.arch, limits_of_record(record)
    defines = rung.defines(record.problem, limits, record.knobs)
    entries = launched_entries(rung, record.problem, limits, record.knobs)
    key = json.dumps([rung.id, arch, sorted(defines.items()), entries])
    if key not in _hashes:
        made = kernel_hashes(rung, record.problem, limits, record.knobs, arch)
        _hashes[key] = {"source": made.source_hash, "sass": made.sass_hash}
    return {**_hashes[key], **said}


def ask_times(held: HeldRecord) -> Json:
    """A record's median and quartiles, computed from its samples; what it says and was foretold."""
    from labtools.record import summary

    found, sealed = summary(held.record), held.record.forecast
    return {
        "median_us": found.median_us,
        "iqr_us": list(found.iqr_us),
        "range_us": list(found.range_us),
        "samples": found.samples,
        "said_us": held.record.median_us,
        "gb_per_s": held.record.gb_per_s,
        "sealed": sealed.model_dump(mode="json") if sealed else None,
    }


# -------------------------------------------------------------------------------- what can be asked


@cache
def missing_here() -> dict[str, str]:
    """What answers depend on and this machine has not, each with a sentence."""
    from labtools.record import own_records_dir
    from labtools.toolchain import CompilerMissing, cuda_status, find_compiler, find_tool

    status, pinned = cuda_status(), locked_nvrtc()
    try:
        here = find_compiler().version if find_tool("nvdisasm") else None
    except CompilerMissing:
        here = None
    sentences = {
        "compiler": here != pinned
        and f"machine code is compared with NVRTC {pinned}, here is {here or 'none'}",
        "host": not status["c++"].ok and "there is no C++ compiler to run kernels on the CPU",
        "no gpu": status.device is not None
        and "some answers are those of a machine without a GPU, and here is one",
        "no own records": any(own_records_dir().rglob("*.jsonl*"))
        and "work/records holds records, which the command line lists too",
    }
    return {name: why for name, why in sentences.items() if why}


def draw(cases: Iterable[GoldenCase], count: int, seed: int) -> list[GoldenCase]:
    """Some of the cases, of every kind, that do not take too long together.

    Those that take long are drawn too, but few at a time.
    """
    chance = random.Random(seed)
    by_kind: dict[str, list[GoldenCase]] = {}
    for case in sorted(cases, key=lambda case: (case.kind, case.key)):
        by_kind.setdefault(case.kind, []).append(case)
    shares = sum(DRAWN_SHARES[kind] for kind in by_kind)
    left_s = MOST_SECONDS * count / sum(DRAWN_SHARES.values())
    chosen: list[GoldenCase] = []
    # Answers of commands come last: some take so long that they would leave nothing.
    for kind, some in sorted(by_kind.items(), key=lambda one: one[0] == "json"):
        share = round(count * DRAWN_SHARES[kind] / shares)
        chance.shuffle(some)
        taken: list[GoldenCase] = []
        for case in some:
            # What is still to be drawn takes a tenth of a second each, at least.
            spare_s = left_s - 0.1 * (share - len(taken))
            if len(taken) < share and case.seconds <= max(spare_s, 0.1):
                taken.append(case)
                left_s -= case.seconds
        chosen += taken
    return chosen
