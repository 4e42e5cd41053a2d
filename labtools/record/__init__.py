"""What is kept: runs, records, their store, their freshness, and the prediction journal."""

from .circumstances import (
    RecordedError,
    RecordedText,
    RecordedTime,
    distinguish,
    say_layout,
    say_oracle,
    say_timed,
)
from .claims import Claim, Finding, Ledger, load_ledger, published_figures
from .folders import own_records_dir, shipped_records_dir
from .journal import Journal, score
from .python_hash import hash_python_file
from .query import (
    LEAST_PROCESSES,
    Errors,
    Standing,
    Tried,
    Variant,
    as_variant,
    at_default_knobs,
    describe_record,
    describe_records,
    errors_of,
    fair_peers,
    measured_together,
    pair,
    same_output,
    sanitizer_verdicts,
    say_verdict,
    select,
    standings,
    timings_of,
    with_counters,
)
from .schema import (
    Clocks,
    Counters,
    ForecastMade,
    ProcessSamples,
    Provenance,
    Reading,
    Record,
    Run,
    Samples,
    SanitizerVerdict,
    slug_of_gpu,
)
from .staleness import Freshness, freshness, rung_freshness, same_launches
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
from .store import DamagedRecordWarning, RecordStore, append_records, read_records
