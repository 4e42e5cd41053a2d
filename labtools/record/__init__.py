"""What is kept: runs, records, their store, their freshness, and the prediction journal."""

from typing import TYPE_CHECKING, Any

from .claims import Claim, Finding, Ledger, load_ledger, published_figures
from .freshness import Freshness, freshness, hash_python_file, launch_shapes, rung_freshness
from .peers import LEAST_PROCESSES, Standing, fair_peers, measured_together, say_verdict, standings
from .schema import (
    Clocks,
    CodeHashes,
    ComparisonResult,
    Counters,
    ForecastMade,
    LaunchShape,
    ProcessSamples,
    Provenance,
    Reading,
    Record,
    ResourceUse,
    Run,
    Samples,
    SanitizerVerdict,
    slug_of_gpu,
)
from .statistics import (
    Ratio,
    Summary,
    best_read_gb_per_s,
    best_reader,
    median_problems,
    median_us,
    paired_ratio,
    ratio_of_samples,
    summary,
)
from .store import (
    DamagedRecordWarning,
    RecordStore,
    append_records,
    own_records_dir,
    read_records,
    shipped_records_dir,
)

if TYPE_CHECKING:
    from .journal import Journal, score

__all__ = [
    "LEAST_PROCESSES",
    "Claim",
    "Clocks",
    "CodeHashes",
    "ComparisonResult",
    "Counters",
    "DamagedRecordWarning",
    "Finding",
    "ForecastMade",
    "Freshness",
    "Journal",
    "LaunchShape",
    "Ledger",
    "ProcessSamples",
    "Provenance",
    "Ratio",
    "Reading",
    "Record",
    "RecordStore",
    "ResourceUse",
    "Run",
    "Samples",
    "SanitizerVerdict",
    "Standing",
    "Summary",
    "append_records",
    "best_read_gb_per_s",
    "best_reader",
    "fair_peers",
    "freshness",
    "hash_python_file",
    "launch_shapes",
    "load_ledger",
    "measured_together",
    "median_problems",
    "median_us",
    "own_records_dir",
    "paired_ratio",
    "published_figures",
    "ratio_of_samples",
    "read_records",
    "rung_freshness",
    "say_verdict",
    "score",
    "shipped_records_dir",
    "slug_of_gpu",
    "standings",
    "summary",
]


def __getattr__(name: str) -> Any:
    # The journal needs SQLAlchemy, which nobody should wait for who only reads records.
    if name in ("Journal", "score"):
        from . import journal

        return getattr(journal, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
