"""Compile the forecast's inner loop into this environment, with mypyc (run by ``make``).

Without a compiler or Python's header the loop runs as Python and gives the same numbers.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

MYPYC_LIMIT_S = 300


def find_c_compiler() -> str | None:
    """The C compiler of extension modules: ``$CC``, the one that made this Python, or another."""
    made_with = shlex.split(sysconfig.get_config_var("CC") or "")[:1]
    for name in (os.environ.get("CC", ""), *made_with, "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    return None


def why_not() -> str | None:
    """What this machine lacks for it, with the remedy; None where it has all."""
    if find_c_compiler() is None:
        return "there is no C compiler (Debian: sudo apt-get install g++)"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python's header Python.h is missing (Debian: sudo apt-get install python3-dev)"
    return None


def compile_loop(folder: Path) -> Path:
    """Compile the loop of today's text into a folder of modules, and remove what was there before.

    Raises OSError: the compiler stopped, or the folder cannot be written; its text says why.
    """
    from labtools.predict.native import LOOP, compiled_name
    from labtools.record.whole import write_whole

    name = compiled_name()
    with tempfile.TemporaryDirectory(prefix="labtools-loop-") as temporary:
        source = Path(temporary) / f"{name}.py"
        source.write_bytes(LOOP.read_bytes())
        # A product and a sum stay two roundings, as in Python, on every processor.
        flags = f"{os.environ.get('CFLAGS', '')} -ffp-contract=off".strip()
        done = subprocess.run(
            [sys.executable, "-m", "mypyc", source.name],
            cwd=temporary,
            env={**os.environ, "CC": find_c_compiler() or "cc", "CFLAGS": flags},
            capture_output=True,
            text=True,
            timeout=MYPYC_LIMIT_S,
            check=False,
        )
        made = next(Path(temporary).glob(f"{name}*{sysconfig.get_config_var('EXT_SUFFIX')}"), None)
        if done.returncode or made is None:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise OSError(said[-1] if said else f"mypyc ended with status {done.returncode}")
        target = folder / made.name
        write_whole(target, made.read_bytes(), mode=0o755)
    for old in folder.glob(f"{name.rpartition('_')[0]}_*"):
        if old != target:
            old.unlink(missing_ok=True)
    return target


def main() -> int:
    lacking = why_not()
    if lacking is None:
        sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
        try:
            compile_loop(Path(sysconfig.get_path("platlib")))
            return 0
        except (OSError, subprocess.TimeoutExpired) as error:
            lacking = str(error)
    print(
        f"The forecast's inner loop stays as Python: {lacking}.\n"
        "Forecasts are the same; those of large workloads take about twice as long."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
