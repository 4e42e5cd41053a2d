"""The lock files, pyproject.toml and environment.yml say the same, and say only that."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock import BASE, EXTRAS, beside, versions_now
from tools.lock import entries as whole_entries

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;\\]+)(?P<marker>[^\\]*)")
_HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")


def entries(text: str) -> list[tuple[str, str, str, int]]:
    """(name, version, marker, number of hashes) of each entry of a lock.

    Raises:
        ValueError: at a line that is neither an entry nor a hash.
    """
    found: list[tuple[str, str, str, int]] = []
    for line in text.splitlines():
        if match := _ENTRY.match(line):
            found.append((match["name"], match["version"], match["marker"].strip(" ;"), 0))
        elif _HASH.match(line) and found:
            found[-1] = (*found[-1][:3], found[-1][3] + 1)
        else:
            raise ValueError(f"neither an entry nor a hash: {line}")
    return found


def read(lock: str) -> list[tuple[str, str, str, int]]:
    return entries((ROOT / lock).read_text())


def together(lock: str) -> list[tuple[str, str, str, int]]:
    """The entries of a lock and of the base beside which it is installed."""
    return read(lock) if lock == BASE else read(BASE) + read(lock)


def test_there_are_locks() -> None:
    assert "requirements.lock" in LOCKS
    assert len(LOCKS) >= 7


@pytest.mark.parametrize("lock", LOCKS)
def test_every_entry_is_pinned_and_hashed(lock: str) -> None:
    """No address and no path can hide in a lock: such a line is neither an entry nor a hash."""
    found = read(lock)
    assert found
    assert [entry for entry in found if entry[3] == 0] == []


@pytest.mark.parametrize(
    "line", ["--index-url https://example.org/simple", "numpy", "numpy @ file:///tmp/n.whl", "-e ."]
)
def test_a_line_that_does_not_belong_is_found(line: str) -> None:
    text = (ROOT / "requirements-uv.lock").read_text()
    with pytest.raises(ValueError, match="neither"):
        entries(text + line + "\n")


def test_locks_agree() -> None:
    """Two locks installed one after the other must not move each other's versions."""
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    for lock in LOCKS:
        for name, version, marker, _ in read(lock):
            if name == "torch":
                continue
            python = "".join(re.findall(r"python_full_version [<>=]+ '[\d.]+'", marker))
            known = seen.setdefault((name, python), (version, lock))
            assert known[0] == version, f"{name}: {known[1]} has {known[0]}, {lock} has {version}"


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize(("system", "platform"), [("Linux", "linux"), ("Darwin", "darwin")])
@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-test.lock"])
def test_every_python_that_is_named_gets_one_version_of_each(
    lock: str, system: str, platform: str, python: str
) -> None:
    there = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "platform_system": system,
        "sys_platform": platform,
        "platform_machine": "x86_64",
    }
    chosen = [
        name
        for name, _, marker, _ in together(lock)
        if not marker or Marker(marker).evaluate(there)
    ]
    assert sorted(set(chosen)) == sorted(chosen)
    names = [name for name, *_ in together(lock)]
    split = {name for name in names if names.count(name) > 1}
    assert split - set(chosen) == set(), "this version of Python gets none of these"


def test_base_has_no_torch_and_no_gigabytes() -> None:
    names = {name for name, *_ in read("requirements.lock")}
    assert not names & {"torch", "triton", "nvidia-cublas", "nvidia-cudnn-cu13"}
    assert not any(name.startswith("cupy") for name in names)
    assert {"jupyterlab", "numpy", "nvidia-cuda-nvrtc", "setuptools"} <= names


def test_cpu_torch_cannot_be_the_cuda_build() -> None:
    """The package index never has a version with ``+cpu``, so it cannot supply this pin."""
    pins = {name: version for name, version, *_ in read("requirements-torch-cpu.lock")}
    assert pins["torch"].endswith("+cpu")
    cuda = {name: version for name, version, *_ in read("requirements-torch.lock")}
    assert pins["torch"] == f"{cuda['torch']}+cpu"


def test_the_other_compilers_fit_those_of_the_base() -> None:
    """nvcc is that of the NVRTC beside it, and Triton the one that this torch takes."""
    pins = {lock: {name: version for name, version, *_ in read(lock)} for lock in LOCKS}
    nvcc = pins["requirements-nvcc.lock"]
    assert {*nvcc.values()} == {pins[BASE]["nvidia-cuda-nvrtc"]}
    assert pins["requirements-triton.lock"]["triton"] == pins["requirements-torch.lock"]["triton"]


def test_pins_of_the_project_are_in_the_locks() -> None:
    extras = PROJECT["optional-dependencies"]
    groups = {
        "requirements.lock": PROJECT["dependencies"],
        "requirements-test.lock": PROJECT["dependencies"] + extras["test"],
        "requirements-torch.lock": extras["torch"],
        "requirements-cuda12.lock": extras["cuda12"],
        "requirements-cuda13.lock": extras["cuda13"],
        "requirements-search.lock": extras["search"],
        "requirements-nvcc.lock": extras["nvcc"],
        "requirements-triton.lock": extras["triton"],
    }
    for lock, wanted in groups.items():
        locked: dict[str, set[str]] = {}
        for name, version, *_ in together(lock):
            locked.setdefault(name, set()).add(version)
        for requirement in wanted:
            match = re.match(r"([A-Za-z0-9._-]+)(?:==([^;\s]+))?", requirement)
            assert match
            name, version = match[1].lower(), match[2]
            assert name in locked, f"{name} is not in {lock}; run make lock"
            if version:
                assert locked[name] == {version}, f"{name} in {lock}; run make lock"


@pytest.mark.parametrize("lock", sorted(set(LOCKS) - {BASE}))
def test_a_lock_holds_only_what_the_base_does_not(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert beside(text, (ROOT / BASE).read_text()) == text


@pytest.mark.parametrize("lock", sorted(EXTRAS))
def test_base_and_lock_together_are_whole(lock: str) -> None:
    """Whatever a locked and installed package requires here is locked too: nothing got lost."""
    locked = {canonicalize_name(name) for name, *_ in together(lock)}
    missing, looked_at = set(), 0
    for name in locked:
        try:
            wanted = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # for another platform, or not chosen here
        looked_at += 1
        for requirement in map(Requirement, wanted):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed = canonicalize_name(requirement.name)
                missing |= {f"{name} needs {needed}"} if needed not in locked else set()
    assert looked_at > 100
    assert not missing


def test_what_stands_beside_the_base() -> None:
    base = "a==1 \\\n    --hash=sha256:0\nb==2 ; os_name == 'nt' \\\n    --hash=sha256:1\n"
    more = "b==2 \\\n    --hash=sha256:1\nc==3 \\\n    --hash=sha256:2 \\\n    --hash=sha256:3\n"
    assert beside(base + more, base) == more
    assert list(whole_entries(base + more)) == ["a==1", "b==2 ; os_name == 'nt'", "b==2", "c==3"]
    assert beside(base, base) == ""


def test_versions_of_now_are_those_of_the_locks() -> None:
    now = set(versions_now().splitlines())
    for lock in EXTRAS:
        for name, version, marker, _ in read(lock):
            assert f"{name}=={version}" + (f" ; {marker}" if marker else "") in now


def test_environment_yml_is_the_lock() -> None:
    """conda users get the same versions because they get the same file."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = next(d for d in environment["dependencies"] if str(d).startswith("python="))
    version = tuple(int(part) for part in python.split("=")[1].split("."))
    low, high = re.findall(r"(\d+)\.(\d+)", PROJECT["requires-python"])
    assert tuple(map(int, low)) <= version < tuple(map(int, high))
    pip = next(d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    assert pip == ["--requirement requirements.lock"]
    readme = (ROOT / "README.md").read_text()
    assert "pip install --no-deps --require-hashes -r requirements-cuda13.lock" in readme
    others = {d for d in environment["dependencies"] if isinstance(d, str)} - {python}
    # torch is in no lock that pip could take here without an index of its own.
    assert others == {"pip", "pytorch-cpu>=2.5"}, "a package named here could differ from the lock"
