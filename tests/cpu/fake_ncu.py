"""A stand-in for ncu that runs what it is given on the fake GPU, well, badly, or not at all."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import pytest
from live_fake import DEVICE, use_fake_gpu

from labtools.measure.profiler import ncu as ncu_module
from labtools.measure.profiler import profile

# Its report holds what the program launched on the fake GPU within a range. The duration tells
# launches apart: 1 us for an empty one, and 10 us and the number of the launch for the others.
FAKE_NCU = r"""
import json, os, subprocess, sys
from multiprocessing.connection import Client, Listener
args, mode = sys.argv[1:], os.environ.get("FAKE_NCU", "good")
if "--version" in args:
    print("Version %s.0 (build 3)" % os.environ.get("FAKE_NCU_VERSION", "2025.3.1"))
    sys.exit(0)
if "--import" in args:
    if mode == "unreadable":
        sys.exit("==ERROR== Failed to load report")
    print(open(args[args.index("--import") + 1]).read())
    sys.exit(0)
folder = os.environ["FAKE_NCU_FOLDER"]
program = args[args.index("--export") + 2 :]
options = args[: args.index("--export")]
parent = Client(program[-1])
call = parent.recv_bytes()
labels = [item["job"]["label"] for item in json.loads(call)[1]["items"]]
with open(os.path.join(folder, "runs"), "a") as log:
    log.write(json.dumps({"options": options, "labels": labels}) + "\n")
if mode == "hang":
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(os.path.join(folder, "pid"), "w").write(str(sleeper.pid))
    sleeper.wait()
if mode == "crash":
    sys.exit("==ERROR== The application returned an error code (11).")
if mode == "odd complaint" and "--metrics" in options:
    sys.exit("==ERROR== Some of the requested metrics are not supported by this chip.")
if mode == "target failed":
    said = {"what": "k.cu does not compile: line 3", "why": "a", "still_works": "b"}
    parent.send_bytes(json.dumps(["refusal", said]).encode())
    sys.exit("==ERROR== The application returned an error code (3).")
if mode == "permission":
    sys.exit("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
if mode == "broken" or (mode == "hates r01" and any("r01" in label for label in labels)):
    sys.exit("==ERROR== An error of the tool itself")
launches = os.path.join(folder, "launches")
open(launches, "w").close()
# It stands between the two ends of the channel, to know what is launched before it is.
door = Listener(os.path.join(folder, "door"))
child = subprocess.Popen(
    [*program[:-1], door.address], env={**os.environ, "FAKE_PROFILE_LOG": launches}
)
channel = door.accept()
channel.send_bytes(call)
try:
    answer = b'["", null]'
    while json.loads(answer)[0] not in ("reply", "refusal"):
        answer = channel.recv_bytes()
        parent.send_bytes(answer)
except (EOFError, ConnectionError):
    pass
channel.close()
door.close()
code = child.wait()
rows = [json.loads(line) for line in open(launches)]
if mode == "unknown metric":
    asked = options[options.index("--metrics") + 1].split(",")
    if "sm__cycles_active.avg.pct_of_peak_sustained_elapsed" in asked:
        sys.exit("==ERROR== Failed to find metric "
                 "sm__cycles_active.avg.pct_of_peak_sustained_elapsed")
if mode == "loses a row" and len(rows) > 4:
    del rows[4]
if mode == "swaps rows" and len(rows) > 4:
    rows[3], rows[4] = rows[4], rows[3]
if mode == "adds a row":
    rows.append(rows[-1])
head = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "gpu__time_duration.sum",
        "dram__bytes_read.sum", "sm__throughput.avg.pct_of_peak_sustained_elapsed"]
text = ",".join('"%s"' % one for one in head) + '\n"","","","","","ns","byte","%"\n'
for number, row in enumerate(rows):
    ns = 1000 if row["entry"] == "empty_launch" else 10000 + 1000 * number
    block, grid = ("(%d, %d, %d)" % tuple(row[name]) for name in ("block", "grid"))
    name = row["entry"] + "(const __half *, int)"
    cells = [number, 4711, name, block, grid, "{:,}".format(ns), "1,024", "50.0"]
    text += ",".join('"%s"' % one for one in cells) + "\n"
if mode == "no table":
    text = "nothing"
if rows and mode != "no kernels":
    open(args[args.index("--export") + 1], "w").write(text)
else:
    print("==WARNING== No kernels were profiled.")
if code:
    print("==ERROR== The application returned an error code (%d)." % code)
sys.exit(code)
"""


class FakeNcu:
    """The stand-in, and what it was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def runs(self) -> list[list[str]]:
        """The labels of every run that had items."""
        return [one["labels"] for one in self._read() if one["labels"]]

    def options(self) -> list[list[str]]:
        return [one["options"] for one in self._read()]

    def _read(self) -> list[dict[str, list[str]]]:
        path = self.folder / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def put_ncu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> FakeNcu:
    """Make the stand-in the ncu of this machine; FAKE_NCU in the environment says what it does."""
    find_ncu = ncu_module.find_ncu
    use_fake_gpu(monkeypatch, folder)
    monkeypatch.setattr(ncu_module, "find_ncu", find_ncu)
    program = folder / "ncu"
    program.write_text(f"#!{sys.executable}\n{FAKE_NCU}")
    program.chmod(0o755)
    monkeypatch.setenv("LABTOOLS_NCU", str(program))
    monkeypatch.setenv("FAKE_NCU_FOLDER", str(folder))
    monkeypatch.setattr(profile, "require_device", lambda: DEVICE)
    monkeypatch.setattr(profile, "hold_this_gpu", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(profile, "_refused", {})
    return FakeNcu(folder)
