"""Records made by hand for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from devices import LIMITS

from labtools.problem import HEADLINE, Comparison, Problem, Rung
from labtools.problem.limits import SMS_OF_H200, assumed_limits
from labtools.record import ProcessSamples, Provenance, Record, Samples, median_us
from labtools.record.staleness import CodeNow
from labtools.toolchain import Hashes

START = datetime(2026, 11, 21, 4, tzinfo=UTC)


def make_samples(lists: Sequence[Sequence[float]]) -> Samples:
    return Samples(
        processes=tuple(
            ProcessSamples(
                process=index,
                us=tuple(values),
                launches_per_sample=8,
                rotated_sets=4,
                rotated_bytes=1000,
            )
            for index, values in enumerate(lists)
        )
    )


def make_record(
    candidate: str = "r03_one_warp",
    lists: Sequence[Sequence[float]] = ((10.0, 11.0, 12.0), (10.0, 10.5, 12.5)),
    workload: Problem = HEADLINE,
    *,
    gpu: str = "NVIDIA H200",
    slug: str = "h200",
    days: float = 0.0,
    **changes: Any,
) -> Record:
    samples = make_samples(lists)
    fields: dict[str, Any] = {
        "candidate": candidate,
        "kind": candidate.split(":")[0] if ":" in candidate else "rung",
        "workload": workload.to_dict(),
        "hashes": Hashes(source_hash="s", sass_hash="m", nvrtc_version="13.0"),
        "protocol": "graph-1",
        "comparison": Comparison(ok=True, worst_error=3e-4, tolerance=1e-3, cases=2),
        "samples": samples,
        "median_us": median_us(samples),
        "campaign": "c1",
        "provenance": Provenance(
            gpu=gpu,
            gpu_slug=slug,
            arch="sm_90",
            date=START + timedelta(days=days),
            tree_hash="t",
            command="labtools record",
        ),
    }
    if fields["kind"] != "baseline":
        fields["limits"] = assumed_limits(slug, "sm_90", SMS_OF_H200, 0)
    return Record(**{**fields, **changes})


def record_of_rung(rung: Rung, workload: Problem, **changes: Any) -> Record:
    """A record of a rung at its default knobs as it stands: its launch and what its source says."""
    knobs = rung.resolve_knobs()
    scheme = rung.scheme(workload, knobs)
    fields: dict[str, Any] = {
        "candidate": rung.id,
        "workload": workload,
        "knobs": knobs,
        "limits": LIMITS,
        "codec": "none" if scheme is None else scheme.codec,
        "launches": tuple(rung.launches(workload, LIMITS)),
        "hashes": Hashes(CodeNow().text_hash(rung, rung.defines(workload, LIMITS, knobs))),
    }
    return make_record(**{**fields, **changes})
