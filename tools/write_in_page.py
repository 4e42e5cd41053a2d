"""What the site needs so that a reader writes kernels in the page: a compiler, the runner, the
editor, and the cases of each kernel, in a folder ``write``."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from filelock import FileLock

from labtools.measure.cpu.module import ModuleTarget
from labtools.notebook import in_page
from labtools.notebook.exercises import exercise_files, load_exercise
from labtools.record.whole import write_whole
from labtools.toolchain.sources import expand_includes
from tools.execute import pages_key
from tools.goldens.kept import path_of, read_goldens
from tools.install import ROOT, fingerprint
from tools.site_assets import COMPILER, AssetError, fetch_compiler, find_node, npm_environment

EDITOR_SCRIPTS = Path(in_page.__file__).parent / "write"
MADE, PREPARED = ROOT / "_build" / "write", ROOT / "_build" / "prepared"
_PARTS = ("runtime.o", "headers.json")
_COMPILER_FILES = ("bundle.js", "llvm.core2.wasm", "llvm.core3.wasm", "llvm.core4.wasm")


def make_editor(folder: Path = MADE) -> Path:
    """Make ``write`` in a folder, and return the folder.

    Raises AssetError: npm cannot be had, or a tool of its packages fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {name: in_page.prepared_texts(load_exercise(name)) for name in sorted(exercise_files())}
    with FileLock(folder / ".lock"):
        made, key = _make(folder), pages_key()
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # compilers and runs are processes
            asked = {
                name: [pool.submit(_prepared, name, what, text, key) for what, text in of.items()]
                for name, of in texts.items()
            }
            found = {name: [one.result() for one in checked] for name, checked in asked.items()}
        # A page from disk may load a script, and nothing else.
        script = f"window.fieldguidePrepared = {json.dumps(found)};\n"
        write_whole(made / "prepared.js", script.encode())
    return folder


def _make(folder: Path) -> Path:
    packages, made = fetch_compiler(COMPILER), folder / "write"
    stamp, key = folder / ".stamp", fingerprint(pages_key(), Path(__file__))
    if stamp.is_file() and stamp.read_text() == key:
        return made
    parts = ModuleTarget(packages, find_node()).parts()
    shutil.rmtree(made, ignore_errors=True)
    (made / "clang").mkdir(parents=True)
    clang = packages / "node_modules" / "@yowasp" / "clang" / "gen"
    for name in _COMPILER_FILES:
        shutil.copyfile(clang / name, made / "clang" / name)
    files = [clang / "llvm.core.wasm", *(parts / name for name in _PARTS)]
    packed = [gzip.compress(one.read_bytes(), 6, mtime=0) for one in files]
    compiler = f"llvm-{hashlib.sha256(packed[0]).hexdigest()[:16]}.wasm"
    for name, content in zip((compiler, *_PARTS), packed, strict=True):
        (made / f"{name}.gz").write_bytes(content)
    megabytes = sum(map(len, packed)) / 1e6
    names = sorted(exercise_files())
    known: dict[str, Any] = {"COMPILER": f"{compiler}.gz", "MEGABYTES": megabytes}
    known["KERNELS"] = [[name, load_exercise(name).rung.title] for name in names]
    for name, how in (("editor", "iife"), ("worker", "esm"), ("service", "iife")):
        bundle(packages, EDITOR_SCRIPTS / f"{name}.mjs", made / f"{name}.js", how, known)
    shutil.copyfile(EDITOR_SCRIPTS / "write.css", made / "write.css")
    in_page.write_tasks(names, made)
    stamp.write_text(key)
    return made


def _prepared(name: str, what: str, text: str, key: str) -> dict[str, Any]:
    """The check of a kernel as its golden has it, and anew where the golden is another kernel's."""
    golden = read_goldens(path_of("prepared")).get(f"{name} {what}")
    if golden and golden["kernel"] == kernel_asked(name, text):
        return {"text": text, "stages": golden["stages"]}
    return checked_kernel(name, text, key)


def kernel_asked(name: str, text: str) -> str:
    """A hash of a text of an exercise, of what it includes, of its launch and of the exercise."""
    rung = load_exercise(name).rung_of(text)
    code = expand_includes(rung.source_text, rung.include_dirs)
    return fingerprint(code, rung.source.with_suffix(".py"), exercise_files()[name])[:20]


def golden_kernel(name: str, text: str) -> dict[str, Any]:
    """What is kept of a prepared kernel (``make accept WHAT=prepared``)."""
    return {"kernel": kernel_asked(name, text), "stages": checked_kernel(name, text)["stages"]}


def checked_kernel(name: str, text: str, key: str | None = None) -> dict[str, Any]:
    """`in_page.prepared_kernel` of an exercise, kept until the ``key`` of what it depends on, by
    default `pages_key`, changes."""
    folder = PREPARED / (key or pages_key())
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / f"{name}-{fingerprint(text)[:16]}.json"
    with FileLock(kept.with_suffix(".lock")):
        if not kept.is_file():
            for older in PREPARED.iterdir():
                if older != folder:
                    shutil.rmtree(older, ignore_errors=True)
            found = in_page.prepared_kernel(load_exercise(name), text)
            write_whole(kept, json.dumps(found).encode())
        known: dict[str, Any] = json.loads(kept.read_bytes())
        return known


def bundle(packages: Path, script: Path, made: Path, how: str, known: Mapping[str, Any]) -> None:
    """One script with all that it imports and the values of the names that are ``known``.

    Raises AssetError: esbuild refuses it.
    """
    modules = packages / "node_modules"
    node, esbuild = find_node(), modules / "esbuild" / "bin" / "esbuild"
    command = [node, str(esbuild), str(script), "--bundle", "--minify", f"--format={how}"]
    command += [f"--outfile={made}", "--log-level=error"]
    command += [f"--define:{name}={json.dumps(value)}" for name, value in known.items()]
    env = npm_environment([node]) | {"NODE_PATH": str(modules)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssetError(f"esbuild {script.name}: {done.stderr.strip()[-400:]}")
