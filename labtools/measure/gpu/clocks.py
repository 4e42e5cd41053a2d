"""Clocks and temperature of the GPU while something is being timed."""

from __future__ import annotations

import ctypes
import statistics
import threading
from collections.abc import Callable

from labtools.record import Clocks, Reading

INTERVAL_S = 0.05
_FIELDS = ("sm_mhz", "memory_mhz", "temperature_c")
_CLOCK_SM, _CLOCK_MEM, _TEMPERATURE_GPU = 1, 2, 0  # as nvml.h numbers them

Read = Callable[[], list[float | None]]


class ClockWatch:
    """Reads clocks in the background between ``start`` and ``stop``.

    NVML, a library of the driver, answers in microseconds; without it there are no readings. The
    GPU is named by its PCI bus id, such as ``0000:18:00.0``.
    """

    def __init__(self, pci_bus_id: str) -> None:
        self.pci_bus_id = pci_bus_id
        self.readings: dict[str, list[float]] = {name: [] for name in _FIELDS}
        self.source: str | None = None
        self._watching = threading.Event()
        self._over = threading.Event()

    def open(self) -> None:
        """Begin to listen, if NVML tells anything."""
        read = self._open_nvml()
        if read is not None:
            self.source = "NVML"
            threading.Thread(target=self._poll, args=(read,), daemon=True).start()

    def start(self) -> None:
        """Keep readings from now on, beginning a new set."""
        self.readings = {name: [] for name in _FIELDS}
        self._watching.set()

    def stop(self) -> Clocks:
        """Stop keeping; what was read."""
        self._watching.clear()
        found = {name: _reading(list(values)) for name, values in self.readings.items()}
        return Clocks(source=self.source, **found)

    def close(self) -> None:
        """End the background reading."""
        self._over.set()

    def _open_nvml(self) -> Read | None:
        handle = ctypes.c_void_p()
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:  # no driver
            return None
        address = self.pci_bus_id.encode()
        find = nvml.nvmlDeviceGetHandleByPciBusId_v2
        if nvml.nvmlInit_v2() or find(address, ctypes.byref(handle)):
            return None

        def ask(function: Callable[..., int], which: int) -> float | None:
            value = ctypes.c_uint()
            refused = function(handle, which, ctypes.byref(value))
            return None if refused else float(value.value)

        def read() -> list[float | None]:
            return [
                ask(nvml.nvmlDeviceGetClockInfo, _CLOCK_SM),
                ask(nvml.nvmlDeviceGetClockInfo, _CLOCK_MEM),
                ask(nvml.nvmlDeviceGetTemperature, _TEMPERATURE_GPU),
            ]

        return read if any(value is not None for value in read()) else None

    def _poll(self, read: Read) -> None:
        while not self._over.is_set():
            # Ask only while timing: the readings are about that, and NVML costs a little.
            if self._watching.wait(timeout=1.0):
                for name, value in zip(_FIELDS, read(), strict=True):
                    if value is not None and self._watching.is_set():
                        self.readings[name].append(value)
                self._over.wait(INTERVAL_S)


def _reading(values: list[float]) -> Reading | None:
    if not values:
        return None
    return Reading(low=min(values), median=statistics.median(values), high=max(values))
