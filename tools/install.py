"""Install the lab into ``.venv`` from the lock files. Standard library only.

Each step leaves a stamp with the hash of the lock it installed, and is skipped while that fits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.choose import TORCH_CHOICES, BuildChoice, choose_cupy, choose_torch, find_driver
from tools.compile_loop import why_not

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (3, 11), (3, 13)
NOT_HASHED = (3, 13)
"""From here on the lock holds no hash of PyTorch's CPU build."""
LOCKS = {
    "lab": "requirements.lock",
    "test": "requirements-test.lock",
    "search": "requirements-search.lock",
    "nvcc": "requirements-nvcc.lock",
    "triton": "requirements-triton.lock",
}
NEEDS = {
    "test": "what the tests need",
    "search": "the searches that the loop is compared with",
    "nvcc": "nvcc",
    "triton": "Triton",
}
BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Ubuntu, Arch
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Fedora
)
# PyTorch's own index must answer at all before a big download is tried.
CPU_BUILD_LIMIT_S = 900
# A CPU build already there would count as the version wanted: replace it.
REPLACE_TORCH = ("--reinstall-package", "torch")


def say(text: str) -> None:
    print(text, flush=True)


def stop(what: str, why: str, still: str) -> None:
    """End with one plain message: what, why, what still works."""
    raise SystemExit(f"{what}\nWhy: {why}\nWhat you can do: {still}")


def venv_python(venv: Path) -> Path:
    return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def fingerprint(*parts: str | Path) -> str:
    """One hash over files' contents and plain words."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, Path) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


class Stamps:
    """What was installed into an environment, by the hash of what asked for it."""

    def __init__(self, venv: Path) -> None:
        self.folder = venv / ".stamps"
        self.folder.mkdir(exist_ok=True)

    def fits(self, name: str, value: str) -> bool:
        path = self.folder / name
        return path.is_file() and path.read_text() == value

    def write(self, name: str, value: str) -> None:
        path = self.folder / name
        waiting = path.with_suffix(".new")
        waiting.write_text(value)
        waiting.replace(path)

    def remove(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)


@contextmanager
def one_at_a_time(venv: Path) -> Iterator[None]:
    """Two installs into one environment at once would spoil each other: the second one waits."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with open(venv / ".install-lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("Another install is at work in this folder. Waiting for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def system_bundle() -> Path | None:
    """The certificates that this system trusts, which those of a company's proxy are among.

    The installers' own lists do not hold them. A system that keeps none leaves it at those lists.
    """
    return next((path for path in BUNDLES if path.is_file()), None)


def installer_environment() -> dict[str, str]:
    """The environment for uv: what the reader told pip about the network holds for uv too."""
    env = dict(os.environ)
    for ours, theirs in (("UV_DEFAULT_INDEX", "PIP_INDEX_URL"), ("SSL_CERT_FILE", "PIP_CERT")):
        if theirs in env:
            env.setdefault(ours, env[theirs])
    if sys.platform != "linux" or system_bundle() is not None:
        env.setdefault("UV_SYSTEM_CERTS", "1")
    env.pop("VIRTUAL_ENV", None)
    # torch is the only package that may come from a local folder; see install_cpu_torch.
    env.pop("UV_FIND_LINKS", None)
    return env


def local_wheel_folders(python: Path) -> list[str]:
    """The folders in which this reader's pip looks for wheels."""
    found = os.environ.get("UV_FIND_LINKS", "").replace(",", " ").split()
    found += os.environ.get("PIP_FIND_LINKS", "").split()
    if not found:
        asked = [str(python), "-m", "pip", "config", "get", "global.find-links"]
        done = subprocess.run(asked, capture_output=True, text=True)
        found = done.stdout.split() if done.returncode == 0 else []
    return list(dict.fromkeys(found))


def pip_certificates(python: Path) -> list[str]:
    """What lets pip trust the system's certificates, unless the reader chose others."""
    bundle = system_bundle()
    asked = [str(python), "-m", "pip", "config", "get", "global.cert"]
    if bundle is None or "PIP_CERT" in os.environ:
        return []
    chosen = subprocess.run(asked, capture_output=True).returncode == 0
    return [] if chosen else ["--cert", str(bundle)]


def make_venv(venv: Path) -> None:
    if venv_python(venv).exists():
        return
    say(f"Making {venv.name} with Python {sys.version.split()[0]}.")
    done = subprocess.run([sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True)
    if done.returncode != 0:
        stop(
            "The virtual environment could not be made.",
            (done.stdout + done.stderr).strip().splitlines()[0],
            "on Debian and Ubuntu: sudo apt-get install python3-venv, then the same command again.",
        )


def uv(python: Path, *args: str, quiet: bool = False, limit_s: float | None = None) -> str | None:
    """Run uv in the environment; ``None`` when it worked, else its last words."""
    command = [str(python), "-m", "uv", "pip", "install", "--python", str(python), *args]
    # On a terminal uv shows its progress; in a log its list of packages would bury our own words.
    quiet = quiet or not sys.stderr.isatty()
    env = installer_environment()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=quiet, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {limit_s:.0f} s"
    if done.returncode == 0:
        return None
    lines = [line.strip() for line in (done.stderr or "").splitlines() if line.strip()]
    return lines[-1] if lines else "see above"


def install_lock(python: Path, stamps: Stamps, name: str, lock: Path, what: str) -> None:
    """Install one lock unless its stamp still fits."""
    value = fingerprint(lock, sys.version)
    if stamps.fits(name, value):
        return
    say(f"Installing {what} from {lock.name}.")
    whole = ("--compile-bytecode",) if name == "base" else ()
    failed = uv(python, *whole, "--require-hashes", "--no-deps", "-r", str(lock))
    if failed is not None:
        stop(
            f"{what[0].upper()}{what[1:]} could not be installed.",
            f"uv stopped: {failed}.",
            "check the network and the disk, then run the same command again; "
            "it goes on where it stopped.",
        )
    stamps.write(name, value)


def install_cpu_torch(python: Path, lock: Path) -> str | None:
    """PyTorch's CPU build: from a local wheel folder, else from PyTorch's own index.

    The version pin carries ``+cpu``, which the Python package index never has, so neither try can
    fetch the CUDA build. Returns ``None`` or why it could not be had.
    """
    install = ["--require-hashes", "--no-deps", "-r", str(lock)]
    if sys.version_info >= NOT_HASHED:  # as for PyTorch's other builds, its index alone vouches
        install = [lock.read_text().split()[0]]
    folders = local_wheel_folders(python)
    if folders:
        links = [word for folder in folders for word in ("--find-links", folder)]
        if uv(python, *install, *links, quiet=True) is None:
            return None
    return uv(python, *install, "--torch-backend", "cpu", quiet=True, limit_s=CPU_BUILD_LIMIT_S)


def remembered_request(stamps: Stamps) -> str:
    """``TORCH`` as given the last time, else ``auto``."""
    kept = stamps.folder / "torch-request"
    return kept.read_text() if kept.is_file() else "auto"


def install_torch(python: Path, stamps: Stamps, choice: BuildChoice, asked_now: bool) -> None:
    """Install the chosen torch, or say plainly that there is none."""
    lock = ROOT / f"requirements-torch{'-cpu' if choice.kind == 'cpu' else ''}.lock"
    value = "none" if choice.kind == "none" else fingerprint(choice.kind, lock, sys.version)
    unreachable = "unreachable " + value
    if stamps.fits("torch", value) or (stamps.fits("torch", unreachable) and not asked_now):
        return
    say(f"torch: {choice.why}")
    if not asked_now:
        say(f"       To choose yourself: make lab TORCH=...  ({TORCH_CHOICES})")
    # While a build is being replaced, the old one's stamp no longer tells the truth.
    stamps.remove("torch")
    failed = None
    if choice.kind == "none":
        remove = [str(python), "-m", "uv", "pip", "uninstall", "--python", str(python), "torch"]
        subprocess.run(remove, cwd=ROOT, capture_output=True)
    elif choice.kind == "cpu":
        failed = install_cpu_torch(python, lock)
        if failed is not None:
            value = unreachable
            say(
                "torch: the CPU build could not be had, so there is no torch for now.\n"
                f"Why: {failed}\n"
                "What still works: everything but the cells that need torch; they say so.\n"
                "To try again: make lab TORCH=cpu. To take the CUDA build, about 5 GB on disk: "
                "make lab TORCH=cuda."
            )
    elif choice.kind == "pypi":
        failed = uv(python, "--require-hashes", "--no-deps", "-r", str(lock), *REPLACE_TORCH)
    else:
        # PyTorch's other builds are not in a lock: their own index alone vouches for them.
        lines = lock.read_text().splitlines()
        version = next(line.split()[0] for line in lines if line.startswith("torch=="))
        failed = uv(python, "--torch-backend", choice.kind, version, *REPLACE_TORCH)
    if failed is not None and choice.kind != "cpu":
        stop(
            "torch could not be installed.",
            f"uv stopped: {failed}.",
            "the same command again goes on where it stopped; TORCH=none does without torch. "
            f"Choices: {TORCH_CHOICES}.",
        )
    stamps.write("torch", value)


def install_project(python: Path, stamps: Stamps) -> None:
    """The project itself, editable, without looking for anything else."""
    value = fingerprint(ROOT / "pyproject.toml", str(ROOT), sys.version)
    if stamps.fits("project", value):
        return
    failed = uv(python, "--no-deps", "--no-build-isolation", "--quiet", "--editable", str(ROOT))
    if failed is not None:
        stop("labtools could not be installed.", f"uv stopped: {failed}.", "run it again.")
    # Each kernel would otherwise warn that it talks over TCP, on this machine only as it is.
    settings = stamps.folder.parent / "etc" / "ipython" / "ipython_kernel_config.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps({"IPKernelApp": {"log_level": 40}}))
    stamps.write("project", value)


def install_loop(python: Path, stamps: Stamps) -> None:
    """Machine code of the forecast's inner loop; where it cannot be made, the loop stays Python."""
    loop = ROOT / "labtools" / "predict" / "sm_loop.py"
    value = fingerprint(loop, ROOT / LOCKS["lab"], sys.version, str(why_not()))
    if stamps.fits("loop", value):
        return
    say("Compiling the forecast's inner loop.")
    # It says itself what is missing.
    subprocess.run([str(python), "-m", "tools.compile_loop"], cwd=ROOT, check=False)
    stamps.write("loop", value)


def install(purpose: str, venv: Path, request: str) -> None:
    """Bring ``venv`` to what ``purpose`` needs, one of `LOCKS`."""
    begun = time.monotonic()
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        stop(
            f"This is Python {sys.version.split()[0]}.",
            "the lab is made for Python 3.11, 3.12 and 3.13.",
            "name another one: make lab PYTHON=python3.12",
        )
    if purpose == "lab":
        # A reader's first page waits for no compilation. Tests import a part of what is there, and
        # Python keeps what it compiles for them.
        os.environ.setdefault("UV_COMPILE_BYTECODE", "1")
    make_venv(venv)
    python, stamps = venv_python(venv), Stamps(venv)
    with one_at_a_time(venv):
        uv_lock = ROOT / "requirements-uv.lock"
        value = fingerprint(uv_lock, sys.version)
        if not stamps.fits("uv", value):
            pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            pip += pip_certificates(python)
            done = subprocess.run([*pip, "--require-hashes", "-r", str(uv_lock)], cwd=ROOT)
            if done.returncode != 0:
                stop("uv could not be installed.", "see pip's words above.", "check the network.")
            stamps.write("uv", value)
        install_lock(python, stamps, "base", ROOT / LOCKS["lab"], "the lab")
        if purpose != "lab":
            install_lock(python, stamps, purpose, ROOT / LOCKS[purpose], NEEDS[purpose])
        driver = find_driver()
        cupy = choose_cupy(driver)
        if cupy.kind != "none":
            if not stamps.fits("cupy-said", cupy.why):
                say(f"CuPy: {cupy.why}")
                stamps.write("cupy-said", cupy.why)
            install_lock(python, stamps, "cupy", ROOT / f"requirements-{cupy.kind}.lock", "CuPy")
        elif purpose == "test" and sys.platform == "linux":
            # Tests look at what CuPy says where there is no GPU.
            install_lock(python, stamps, "cupy", ROOT / "requirements-cuda13.lock", "CuPy")
        try:
            torch = choose_torch(request or remembered_request(stamps), driver)
        except ValueError as error:
            raise SystemExit(str(error)) from None
        if request:
            stamps.write("torch-request", request)
        install_torch(python, stamps, torch, asked_now=bool(request))
        install_project(python, stamps)
        install_loop(python, stamps)
    taken_s = time.monotonic() - begun
    if taken_s > 5:
        say(f"Installed in {taken_s:.0f} s.")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("purpose", choices=sorted(LOCKS))
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv")
    parser.add_argument("--torch", default="", help=TORCH_CHOICES)
    parser.add_argument("--explain", action="store_true", help="say what would be chosen, as JSON")
    options = parser.parse_args(argv)
    if options.explain:
        driver = find_driver()
        torch, cupy = choose_torch(options.torch or "auto", driver), choose_cupy(driver)
        print(json.dumps({"driver": str(driver), "torch": vars(torch), "cupy": vars(cupy)}))
        return 0
    install(options.purpose, options.venv.absolute(), options.torch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
