"""Clocks and temperature of the GPU while something is being timed."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading
from typing import Any

from labtools.record import Clocks, Reading

INTERVAL_S = 0.05
_FIELDS = ("sm_mhz", "memory_mhz", "temperature_c")


class ClockWatch:
    """Reads clocks in the background between ``start`` and ``stop``.

    NVML answers in microseconds; where its Python package is missing, one nvidia-smi process
    prints a line every 100 ms. Where neither works there are no readings, and None is said.

    Args:
        pci_bus_id: of the GPU, for example ``0000:18:00.0``.
    """

    def __init__(self, pci_bus_id: str) -> None:
        self.pci_bus_id = pci_bus_id
        self.readings: dict[str, list[float]] = {name: [] for name in _FIELDS}
        self.source: str | None = None
        self._watching = threading.Event()
        self._over = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Find a source of readings and begin to listen to it."""
        read = self._open_nvml()
        if read is not None:
            self.source = "NVML"
            self._thread = threading.Thread(target=self._poll, args=(read,), daemon=True)
        elif self._open_smi():
            self.source = "nvidia-smi"
            self._thread = threading.Thread(target=self._listen, daemon=True)
        if self._thread is not None:
            self._thread.start()

    def start(self) -> None:
        """Keep readings from now on, beginning a new set."""
        self.readings = {name: [] for name in _FIELDS}
        self._watching.set()

    def stop(self) -> Clocks:
        """Stop keeping; what was read."""
        self._watching.clear()
        return Clocks(
            source=self.source,
            **{name: _reading(list(values)) for name, values in self.readings.items()},
        )

    def close(self) -> None:
        """End the background reading."""
        self._over.set()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _keep(self, values: list[float | None]) -> None:
        if self._watching.is_set():
            for name, value in zip(_FIELDS, values, strict=True):
                if value is not None:
                    self.readings[name].append(value)

    def _open_nvml(self) -> Any:
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByPciBusId(self.pci_bus_id.encode())
        except Exception:  # no package, no library, or a driver that refuses
            return None

        def ask(function: Any, *args: Any) -> float | None:
            try:
                return float(function(handle, *args))
            except pynvml.NVMLError:  # this GPU does not tell
                return None

        def read() -> list[float | None]:
            return [
                ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
                ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
                ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            ]

        return read if any(value is not None for value in read()) else None

    def _poll(self, read: Any) -> None:
        while not self._over.is_set():
            # Ask only while timing: the readings are about that, and NVML costs a little.
            if self._watching.wait(timeout=1.0):
                self._keep(read())
                self._over.wait(INTERVAL_S)

    def _open_smi(self) -> bool:
        tool = shutil.which("nvidia-smi")
        if tool is None:
            return False
        query = "--query-gpu=clocks.sm,clocks.mem,temperature.gpu"
        command = [tool, "-i", self.pci_bus_id, query, "--format=csv,noheader,nounits"]
        command += ["-lms", "100"]
        try:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:
            return False
        return True

    def _listen(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._keep(parse_smi_line(line))


def _reading(values: list[float]) -> Reading | None:
    if not values:
        return None
    return Reading(low=min(values), median=statistics.median(values), high=max(values))


def parse_smi_line(line: str) -> list[float | None]:
    """``1980, 3201, 41`` to three numbers; None for each that nvidia-smi does not know."""
    values: list[float | None] = []
    for part in line.split(","):
        try:
            values.append(float(part))
        except ValueError:
            values.append(None)
    return (values + [None] * len(_FIELDS))[: len(_FIELDS)]
