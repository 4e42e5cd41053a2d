"""What the learner sees. Names that need widgets are imported when they are asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .ablation import compare_counters, show_ablation
from .gate import Gate, PredictionPending, ask
from .live import can_run_live, measure_speedup
from .provenance import Shown, Word, badge, make_note, make_table
from .reader import reader_present
from .show import (
    Bar,
    Speedup,
    bar_of_record,
    describe_record,
    diff_rungs,
    find_records,
    recorded_speedup,
    show_against,
    show_bars,
    show_check,
    show_comparison,
    show_diff,
    show_records,
)

if TYPE_CHECKING:
    from .occupancy_view import occupancy_bench
    from .timeline import Candidate, Measured, Step, baseline_bench

_LATE = {
    "occupancy_bench": ".occupancy_view",
    "baseline_bench": ".timeline",
    "Candidate": ".timeline",
    "Measured": ".timeline",
    "Step": ".timeline",
}

__all__ = [
    "Bar",
    "Candidate",
    "Gate",
    "Measured",
    "PredictionPending",
    "Shown",
    "Speedup",
    "Step",
    "Word",
    "ask",
    "badge",
    "bar_of_record",
    "baseline_bench",
    "can_run_live",
    "compare_counters",
    "describe_record",
    "diff_rungs",
    "find_records",
    "make_note",
    "make_table",
    "measure_speedup",
    "occupancy_bench",
    "reader_present",
    "recorded_speedup",
    "show_ablation",
    "show_against",
    "show_bars",
    "show_check",
    "show_comparison",
    "show_diff",
    "show_records",
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
