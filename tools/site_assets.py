"""The third-party scripts of the static site, taken from packages at build time.

The archive of each is compared with the hash below before it is unpacked into ``_build/assets``.
npm does the downloading: the one on the path, or one from ``requirements-node.lock``.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from tools.install import ROOT, fingerprint, uv

ASSETS = ROOT / "_build" / "assets"
COMPILER = ROOT / "_build" / "compiler"
COMPILER_SCRIPTS = ROOT / "labtools" / "measure" / "cpu" / "browser"


class AssetError(Exception):
    """A script that could not be had, or is not the one we know."""


@dataclass(frozen=True)
class Package:
    """One npm package, and the files taken from it: member of the archive to name in the site."""

    package: str
    integrity: str
    files: tuple[tuple[str, str], ...]


# The widgets' script looks for its fonts in a folder of this name, from where it lies itself.
_FONTS = "@jupyter-widgets/html-manager/dist"
PACKAGES = (
    Package(
        "mathjax@3.2.2",
        "sha512-Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0"
        "OhGw==",
        (("package/es5/tex-svg-full.js", "tex-svg-full.js"),),
    ),
    Package(
        "requirejs@2.3.8",
        "sha512-7/cTSLOdYkNBNJcDMWf+luFvMriVm7eYxp4BcFCsAX0wF421Vyce5SXP17c+Jd5otXKGNehIonFlyQXSow"
        "L6Mw==",
        (("package/require.js", "require.js"),),
    ),
    Package(
        "@jupyter-widgets/html-manager@1.0.15",
        "sha512-5thBIV6ymNgmPVOHvzx+gGy8ZSKmSazhtGw4/c4xJDVzRhG9PTeQsRjF3FUTopvFi//SABeNz1yp47bCrJ"
        "3CQA==",
        (
            ("package/dist/embed-amd.js", "embed-amd.js"),
            *(
                (f"package/dist/{name}.woff2", f"{_FONTS}/{name}.woff2")
                for name in ("1551f4f60c37af51121f", "7a3337626410ca2f4071", "d878b0a6a1144760244f")
            ),
        ),
    ),
)


def fetch_assets(folder: Path = ASSETS) -> Path:
    """Bring every file into a folder; nothing is fetched when all are there already."""
    key = fingerprint(*map(repr, PACKAGES))
    stamp = folder / ".stamp"
    if not (stamp.is_file() and stamp.read_text() == key):
        folder.mkdir(parents=True, exist_ok=True)
        npm = find_npm()
        for package in PACKAGES:
            with tempfile.TemporaryDirectory() as scratch:
                archive = pack(npm, package.package, Path(scratch))
                check_integrity(archive, package)
                for member, name in package.files:
                    extract(archive, member, folder / name)
        stamp.write_text(key)
    # This one is part of an installed, locked package already.
    import anywidget

    source = Path(anywidget.__file__).parent / "nbextension" / "index.js"
    shutil.copyfile(source, folder / "anywidget.js")
    return folder


def fetch_compiler(folder: Path = COMPILER) -> Path:
    """Bring the packages of a browser's compiler into a folder, and the scripts that run them."""
    return fetch_packages(COMPILER_SCRIPTS, folder)


def fetch_packages(scripts: Path, folder: Path) -> Path:
    """Bring scripts into a folder, and the packages that the lock file beside them names.

    npm compares each archive with the hash in the lock file. Raises AssetError.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        return _fetch_packages(scripts, folder)


def _fetch_packages(scripts: Path, folder: Path) -> Path:
    for script in (*scripts.glob("*.mjs"), *scripts.glob("*.json")):
        shutil.copyfile(script, folder / script.name)
    key = fingerprint(scripts / "package-lock.json")
    stamp = folder / ".stamp"
    if not (stamp.is_file() and stamp.read_text() == key):
        npm = find_npm()
        command = [*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        env = npm_environment(npm)
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            words = done.stderr.strip().splitlines() or ["no message"]
            raise AssetError(f"npm ci failed: {words[-1]}")
        stamp.write_text(key)
    return folder


def find_node() -> str:
    """The program that runs scripts, beside npm."""
    return shutil.which("node") or str(Path(find_npm()[0]).with_name("node"))


def find_npm() -> list[str]:
    """The command that runs npm; installs it into the environment when there is none."""
    found = shutil.which("npm")
    if found:
        return [found]
    ours = Path(sys.executable).parent / "npm"
    if not ours.exists():
        print("The site needs npm once, to fetch its scripts. Installing it into .venv.")
        lock = str(ROOT / "requirements-node.lock")
        failed = uv(Path(sys.executable), "--require-hashes", "--no-deps", "-r", lock, quiet=True)
        if failed is not None:
            raise AssetError(f"npm is not here and could not be installed: {failed}")
    return [str(ours)]


def npm_environment(npm: list[str]) -> dict[str, str]:
    """The variables that npm is called with."""
    env = {**os.environ, "npm_config_update_notifier": "false", "npm_config_loglevel": "error"}
    env["PATH"] = os.pathsep.join([str(Path(npm[0]).parent), env.get("PATH", "")])
    return env


def pack(npm: list[str], package: str, folder: Path) -> Path:
    """Download one package's archive with ``npm pack``."""
    env = npm_environment(npm)
    command = [*npm, "pack", package, "--ignore-scripts", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired:
        raise AssetError(f"npm pack {package} gave no answer within 300 s") from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        words = done.stderr.strip().splitlines() or ["no message"]
        raise AssetError(f"npm pack {package} failed: {words[-1]}")
    return archives[0]


def check_integrity(archive: Path, package: Package) -> None:
    """Compare an archive with the known hash."""
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if f"sha512-{digest}" != package.integrity:
        raise AssetError(f"{package.package}: the archive is not the known one (hash differs)")


def extract(archive: Path, member: str, target: Path) -> None:
    """Take one file out of an archive."""
    with tarfile.open(archive) as packed:
        try:
            stream = packed.extractfile(member)
        except KeyError:
            stream = None
        if stream is None:
            raise AssetError(f"{archive.name} has no {member}")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(stream.read())
