"""Open JupyterLab on the start page, in the learner's own copies (run by ``make lab``).

The copies show what is known of their outputs (``tools/filled.py``). It listens on this machine
only and asks for its token; its configuration comes from ``jupyter_config/`` and
``work/.jupyter``, so that no old setting at home can break a page.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from labtools.notebook.pages import START_PAGE, make_copies
from labtools.problem import repository_root
from labtools.record.folders import work_dir

FILL_LIMIT_S = 10.0
"""What is not filled until then is filled when it is opened."""


def fill_copies(work: Path, limit_s: float = FILL_LIMIT_S) -> None:
    """Put what is known of their outputs into the copies, for so long at most."""
    command = [sys.executable, "-m", "tools.filled", "--work", str(work)]
    try:
        subprocess.run(command, cwd=repository_root(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        print("Pages that show no outputs yet are filled when you open them.")


def server_environment(environ: Mapping[str, str], work: Path) -> dict[str, str]:
    """The environment in which JupyterLab runs: what was there, plus the lab's own settings."""
    env = dict(environ)
    ours = str(repository_root() / "jupyter_config")
    paths = [ours, *filter(None, [env.get("JUPYTER_CONFIG_PATH")])]
    env["JUPYTER_CONFIG_PATH"] = os.pathsep.join(paths)
    env["JUPYTER_CONFIG_DIR"] = str(work / ".jupyter")
    # The kernel and the extensions are those of .venv, whatever else is installed for this user.
    env["JUPYTER_PREFER_ENV_PATH"] = "1"
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    return env


def server_command(work: Path, extra: Sequence[str] = ()) -> list[str]:
    """The command that starts JupyterLab on a folder.

    The port is Jupyter's own, 8888 or the next one that is free, unless the reader names one: what
    is given twice is refused.
    """
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1"]
    command += [f"--ServerApp.root_dir={work}", f"--LabApp.default_url=/lab/tree/{START_PAGE}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Jupyter refuses root by default; a container often has nobody else.
        command.append("--allow-root")
    return [*command, *extra]


def main(argv: Sequence[str] | None = None) -> int:
    extra = list(sys.argv[1:] if argv is None else argv)
    work = work_dir()
    copies = make_copies()
    if copies.made:
        print(f"Copied {len(copies.made)} files into work/. They are yours to change.")
    for page in copies.outdated:
        print(f"work/{page} is kept as it is; its original is newer: labtools reset {page}")
    fill_copies(work)
    print("Starting JupyterLab. Stop it with Ctrl-C. The address is printed below.", flush=True)
    command = server_command(work, extra)
    os.execve(command[0], command, server_environment(os.environ, work))
    return 0


if __name__ == "__main__":
    sys.exit(main())
