"""Kernels for pages, each a copy of one process that has imported what pages import.

A page's cells often take less time than a kernel needs to start and import labtools. A copy has
memory, folder, environment and process group of its own, and ends with the process that it was
copied from. Elsewhere than on Linux every kernel is started anew.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.manager import AsyncKernelManager

from tools.install import ROOT
from tools.opened import watch_opened

COPY_LIMIT_S = 120.0
"""For the process that is copied to be there, and for each copy."""
INLINE = "module://matplotlib_inline.backend_inline"
_FRONT = ("ipykernel.kernelapp", "ipykernel.zmqshell", "matplotlib.pyplot", "numpy.random")
_LAUNCHER = "ipykernel_launcher"


class CopiedKernel(psutil.Process):
    """A kernel that is no child of this process, as ``subprocess.Popen`` would show it."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """None while it runs; its status is not known to us, so 0 afterwards."""
        return None if self.is_running() else 0

    def send_signal(self, sig: int) -> None:
        """Send it a signal; nothing happens when it has ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            super().send_signal(sig)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class KernelSource:
    """The process that is copied, as its parent sees it; OSError where it does not come up.

    Several threads may ask. What libraries read while they are imported is read from the
    environment given here; ``opened`` are the repository's files that Python opened for it.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair()
        self._lock = threading.Lock()
        ours.settimeout(COPY_LIMIT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tools.page_kernels", str(theirs.fileno())],
                cwd=ROOT,
                env={**environment, "MPLBACKEND": INLINE},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        self._socket = ours
        self._lines = ours.makefile("r", encoding="utf-8")
        atexit.register(self.close)
        self.opened = [Path(name) for name in self._answer()["opened"]]

    def _answer(self) -> dict[str, Any]:
        line = self._lines.readline()
        if not line:
            raise OSError("the process that is copied for pages has ended")
        return dict(json.loads(line))

    def start(self, command: list[str], environment: Mapping[str, str], folder: str) -> int:
        """Make a copy that runs a kernel, by the command of its specification.

        Returns its process.
        """
        asked = {"argv": command[2:], "env": dict(environment), "cwd": folder}
        with self._lock:
            self._socket.sendall(json.dumps(asked).encode() + b"\n")
            return int(self._answer()["pid"])

    def close(self) -> None:
        """End it and every copy."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait()


_source: KernelSource | None = None
_making = threading.Lock()


def kernel_source(environment: Mapping[str, str]) -> KernelSource | None:
    """This process's source of kernels, started when it is first asked for; None without one."""
    global _source
    if sys.platform != "linux":
        return None
    with _making:
        if _source is None:
            try:
                _source = KernelSource(environment)
            except (OSError, ValueError):
                return None
        return _source


class CopiedKernelManager(AsyncKernelManager):
    """Starts kernels as copies where it can, else as jupyter_client does."""

    async def _async_launch_kernel(self, kernel_cmd: list[str], **kw: Any) -> None:
        source = kernel_source(kw["env"]) if kernel_cmd[1:3] == ["-m", _LAUNCHER] else None
        here: Any = self.provisioner
        if source is None or here is None or kernel_cmd[0] != sys.executable:
            await super()._async_launch_kernel(kernel_cmd, **kw)
            return
        folder = str(kw.get("cwd") or os.getcwd())
        here.process = CopiedKernel(source.start(kernel_cmd, kw["env"], folder))
        here.pid = here.pgid = here.process.pid
        here.cwd = folder
        self._reconcile_connection_info(here.connection_info)

    _launch_kernel = _async_launch_kernel  # type: ignore[assignment]


# ------------------------------------------------------------------------ the process itself


def _import_all() -> None:
    """What pages import. What is missing here is missing on a page, which says so."""
    names = [*_FRONT, "labtools.notebook"]
    with contextlib.suppress(ImportError):
        package = importlib.import_module("labtools.notebook")
        names += [one.name for one in pkgutil.walk_packages(package.__path__, "labtools.notebook.")]
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    from labtools.record import RecordStore
    from labtools.toolchain import find_compiler
    from labtools.toolchain.errors import CompilerMissing

    RecordStore().load()
    with contextlib.suppress(CompilerMissing):
        find_compiler()


def _be_a_kernel(asked: Mapping[str, Any]) -> None:
    """Run a kernel in this process, to its end."""
    os.setsid()  # its parent signals the whole group
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    os.environ["MPLBACKEND"] = INLINE
    import numpy as np
    from ipykernel.kernelapp import IPKernelApp

    np.random.seed()  # unlike the other copies
    sys.argv = list(asked["argv"])
    IPKernelApp.launch_instance(sys.argv[1:])


def _serve(connection: socket.socket) -> None:
    """Answer requests until the parent has ended; then end all copies."""
    os.environ["JPY_PARENT_PID"] = str(os.getpid())  # a kernel ends when this process has
    with tempfile.NamedTemporaryFile() as log, contextlib.redirect_stdout(sys.stderr):
        end = watch_opened(f"{ROOT}{os.sep}", log.name)
        _import_all()
        end()
        opened = log.read().decode().splitlines()
    gc.collect()
    gc.freeze()  # a copy's search for garbage passes over what it shares
    gc.set_threshold(50_000, 20, 20)  # and is made less often: a page ends soon
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lines = connection.makefile("r", encoding="utf-8")
    try:
        connection.sendall(json.dumps({"opened": opened}).encode() + b"\n")
    except BrokenPipeError:
        return  # the parent ended while this process imported
    for line in lines:
        asked = json.loads(line)
        copy = os.fork()
        if copy == 0:
            lines.close()
            connection.close()
            _be_a_kernel(asked)
            return
        connection.sendall(json.dumps({"pid": copy}).encode() + b"\n")
    for child in psutil.Process().children():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
