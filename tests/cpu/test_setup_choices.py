"""Which torch and which CuPy: every case, and what must never happen."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import install
from tools.choose import BuildChoice, Driver, choose_cupy, choose_torch

ROOT = Path(__file__).resolve().parents[2]
CUDA_11 = Driver(11, 8, "an old GPU")
CUDA_12 = Driver(12, 4, "a GPU")
CUDA_13 = Driver(13, 0, "a GPU")
CUDA_14 = Driver(14, 1, "a new GPU")


@pytest.mark.parametrize(
    ("request_", "driver", "platform", "kind"),
    [
        ("auto", None, "linux", "cpu"),
        ("auto", CUDA_13, "linux", "pypi"),
        ("auto", CUDA_14, "linux", "pypi"),
        ("auto", CUDA_12, "linux", "cpu"),
        ("auto", CUDA_11, "linux", "cpu"),
        ("auto", None, "darwin", "pypi"),
        ("auto", None, "win32", "pypi"),
        ("cpu", CUDA_13, "linux", "cpu"),
        ("cuda", None, "linux", "pypi"),
        ("cuda", CUDA_13, "win32", "cu130"),
        ("none", CUDA_13, "linux", "none"),
        ("cu126", CUDA_12, "linux", "cu126"),
    ],
)
def test_torch(request_: str, driver: Driver | None, platform: str, kind: str) -> None:
    assert choose_torch(request_, driver, platform).kind == kind


@pytest.mark.parametrize("driver", [None, CUDA_12, CUDA_13])
def test_large_builds_say_so(driver: Driver | None) -> None:
    for request_ in ("auto", "cuda", "cu126"):
        choice = choose_torch(request_, driver, "linux")
        assert (choice.kind in ("pypi", "cu126")) == (
            " GB" in choice.why and "0.8" not in choice.why
        )


@pytest.mark.parametrize("request_", ["gpu", "CPU", "", "cu12", "2.13"])
def test_unknown_request_is_refused(request_: str) -> None:
    with pytest.raises(ValueError, match="not a choice"):
        choose_torch(request_, None)


@pytest.mark.parametrize(
    ("driver", "platform", "kind"),
    [
        (None, "linux", "none"),
        (CUDA_11, "linux", "none"),
        (CUDA_12, "linux", "cuda12"),
        (CUDA_13, "linux", "cuda13"),
        (CUDA_14, "linux", "cuda13"),
        (CUDA_13, "darwin", "none"),
    ],
)
def test_cupy(driver: Driver | None, platform: str, kind: str) -> None:
    choice = choose_cupy(driver, platform)
    assert choice.kind == kind
    if kind.startswith("cuda"):
        assert str(driver) in choice.why, "the message must say what was found"


def test_what_this_machine_would_get() -> None:
    """The command line answers for the machine it runs on, without installing anything."""
    command = [sys.executable, "tools/install.py", "lab", "--explain"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    torch, cupy = BuildChoice(**answer["torch"]), BuildChoice(**answer["cupy"])
    if answer["driver"] == "None":
        assert cupy.kind == "none"
        assert torch.kind == ("cpu" if sys.platform == "linux" else "pypi")
    else:
        assert cupy.kind in ("cuda12", "cuda13") or "CUDA 12" in cupy.why
        assert answer["driver"] in cupy.why


def test_the_installers_trust_what_the_system_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a company's proxy; a reader's own choice comes first."""
    bundle = tmp_path / "system.crt"
    monkeypatch.setattr(install, "BUNDLES", (tmp_path / "none.crt", bundle))
    for name in ("UV_SYSTEM_CERTS", "PIP_CERT", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(sys, "platform", "linux")
    python = Path(sys.executable)
    assert "UV_SYSTEM_CERTS" not in install.installer_environment()
    assert install.pip_certificates(python) == []
    bundle.touch()
    assert install.installer_environment()["UV_SYSTEM_CERTS"] == "1"
    assert install.pip_certificates(python) == ["--cert", str(bundle)]
    monkeypatch.setenv("PIP_CERT", "own.crt")
    monkeypatch.setenv("UV_SYSTEM_CERTS", "0")
    assert install.installer_environment()["SSL_CERT_FILE"] == "own.crt"
    assert install.installer_environment()["UV_SYSTEM_CERTS"] == "0"
    assert install.pip_certificates(python) == []


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_hands_the_choice_on() -> None:
    done = subprocess.run(
        ["make", "-n", "lab", "TORCH=gpu"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert '--torch "gpu"' in done.stdout, "make must hand the choice on"
