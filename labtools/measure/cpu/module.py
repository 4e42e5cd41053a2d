"""The runner as a WebAssembly module, as a page of the site has it in a browser tab.

Kernels are compiled by a clang that is WebAssembly itself, with the scripts in ``browser/``. Here
Node runs both, so that what a page will say can be held against the native runner.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labtools.problem import LabError
from labtools.toolchain import CompileError
from labtools.toolchain.cache import in_folder, prune_kept, size_of

from .build import (
    NATIVE,
    DeviceVariable,
    Executable,
    Kernel,
    digest_of_texts,
    folder_kept,
    module_unit,
    native_digest,
)

SCRIPTS = Path(__file__).parent / "browser"


class ModuleTarget:
    """Compiles kernels for a browser: a place for `build.build_kernels_for`.

    Args:
        packages: a folder in which the npm packages of ``browser/package.json`` are installed,
            beside copies of the scripts.
        node: the program that runs them.
    """

    def __init__(self, packages: Path, node: str = "node") -> None:
        self._packages, self._node = packages, node
        self._lock = threading.Lock()
        self._server: subprocess.Popen[str] | None = None

    def parts(self) -> Path:
        """The folder with what a page needs to compile a kernel: ``runtime.o``, ``headers.json``.

        Raises LabError: it could not be made.
        """
        return in_folder("cpu", self._parts, "the runner of a browser")

    def build(self, kernel: Kernel, defines: Mapping[str, str]) -> Executable:
        """The kernel as a module. Raises CompileError: the kernel does not compile."""
        return in_folder("cpu", lambda cache: self._build(kernel, defines, cache), "the module")

    def close(self) -> None:
        """End the process that compiles."""
        if self._server is not None:
            self._server.kill()
            self._server.communicate()
            self._server = None

    def _script(self, name: str) -> list[str]:
        return [self._node, str(self._packages / name)]

    def _parts(self, cache: Path) -> Path:
        sources = [path.read_text("utf-8") for path in sorted(SCRIPTS.iterdir())]

        def make(folder: Path) -> None:
            command = [*self._script("build.mjs"), str(NATIVE), str(folder)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                why = done.stderr.strip()[-800:]
                raise LabError("The runner of a browser could not be made.", why)

        return folder_kept(cache / f"parts-{digest_of_texts([native_digest(), *sources])}", make)

    def _build(self, kernel: Kernel, defines: Mapping[str, str], cache: Path) -> Executable:
        parts = self.parts()
        request: dict[str, Any] = {
            "unit": module_unit(kernel),
            "headers": own_headers(kernel.folders),
        }
        request["defines"] = dict(defines)

        def make(folder: Path) -> None:
            answer = self._ask({**request, "folder": str(folder)}, parts)
            if "error" in answer:
                what = f"{kernel.name} does not compile for a browser."
                raise CompileError(what, answer["error"].strip()[:800], "", file=kernel.name)

        key = digest_of_texts([parts.name, json.dumps(request, sort_keys=True)])
        folder = folder_kept(cache / f"module-{key}", make)
        prune_kept("cpu", size_of(folder), [folder, parts])
        names = json.loads((folder / "places.json").read_text())["device"]
        device = tuple(DeviceVariable(name, True, 0, 0) for name in names)
        return Executable(folder / "kernel.wasm", (), device, runs_with=self._runs_with())

    def _runs_with(self) -> tuple[str, ...]:
        return (self._node, "--stack-size=4000", str(self._packages / "child.mjs"))

    def _ask(self, request: Mapping[str, Any], parts: Path) -> dict[str, Any]:
        with self._lock:
            if self._server is None:
                command = [*self._script("build.mjs"), str(NATIVE), str(parts), "serve"]
                self._server = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            assert self._server.stdin and self._server.stdout
            self._server.stdin.write(json.dumps(request) + "\n")
            self._server.stdin.flush()
            for line in self._server.stdout:
                if line.startswith("@"):
                    answer: dict[str, Any] = json.loads(line[1:])
                    return answer
            raise LabError("The compiler of a browser ended.", "it gave no answer")


def own_headers(folders: tuple[Path, ...]) -> dict[str, str]:
    """The text of each header that a kernel of these folders may include, by its name."""
    return {
        path.name: path.read_text("utf-8", "replace")
        for folder in folders
        for path in sorted(folder.glob("*.cuh"))
    }
