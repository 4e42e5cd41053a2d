"""What does happen: runs on the CPU and the GPU, checks, times, profiles and campaigns.

Names are imported when they are first asked for: a measuring child needs few of them, and its
start-up is paid by everybody who waits for the GPU.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .campaign.recording import CampaignReport, record_campaign, record_rung
    from .case import CheckCase
    from .check import CheckReport, check_rung
    from .counts import trip_counts_of
    from .cpu import CpuRun, run_on_cpu
    from .gpu.job import rung_candidate
    from .gpu.measure import Timing, measure_live, time_candidates
    from .gpu.runner import GpuRun, run_jobs_on_gpu, run_on_gpu
    from .profiler.ncu import ProfileReport
    from .profiler.profile import profile_rung
    from .profiler.sanitize import SanitizerReport, sanitize_rung

_HOMES = {
    "campaign.recording": ("CampaignReport", "record_campaign", "record_rung"),
    "case": ("CheckCase",),
    "check": ("CheckReport", "check_rung"),
    "counts": ("trip_counts_of",),
    "cpu": ("CpuRun", "run_on_cpu"),
    "gpu.runner": ("GpuRun", "run_jobs_on_gpu", "run_on_gpu"),
    "gpu.job": ("rung_candidate",),
    "gpu.measure": ("Timing", "measure_live", "time_candidates"),
    "profiler.ncu": ("ProfileReport",),
    "profiler.profile": ("profile_rung",),
    "profiler.sanitize": ("SanitizerReport", "sanitize_rung"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
