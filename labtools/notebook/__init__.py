"""What the learner sees. Names that need widgets are imported when they are asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from labtools.record import describe_record

from .check import show_check
from .counters import compare_counters
from .diff import RungDiff, diff_rungs, show_diff
from .figures import Bar, bar_of_record, show_bars
from .gate import Gate, PredictionPending, ask
from .labs.lab01_occupancy.ablation import show_ablation
from .live import can_run_live, measure_speedup
from .ratios import Speedup, show_comparison
from .reader import reader_present
from .records import find_records, recorded_speedup, show_against, show_records
from .tables import Shown, Word, badge, make_note, make_table

if TYPE_CHECKING:
    from .labs.lab01_occupancy.view import occupancy_bench
    from .labs.lab02_baseline.view import Measured, Movement, TimedCall, baseline_bench

_LATE = {
    "occupancy_bench": ".labs.lab01_occupancy.view",
    "baseline_bench": ".labs.lab02_baseline.view",
    "TimedCall": ".labs.lab02_baseline.view",
    "Measured": ".labs.lab02_baseline.view",
    "Movement": ".labs.lab02_baseline.view",
}


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
