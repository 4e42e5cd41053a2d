"""The plan of the row-wise operation: its rung beside the library, on rows of several lengths."""

from __future__ import annotations

from labtools.problem import Rows

from .section import Plan, Section, combined

N00 = "n00_rms_norm"

ROWS = Plan(
    "rows",
    "RMSNorm of rows, one block a row, beside torch",
    (
        Section(
            (Rows(8192, 4096),),
            combined(N00, threads=(64, 128, 256, 512)),
            ("torch_rms_norm",),
            ceiling=False,
            profile=((N00, {}),),
        ),
        Section(
            (
                *(Rows(65536, 512), Rows(16384, 2048), Rows(2048, 16384), Rows(128, 4096)),
                *(Rows(8192, 4095), Rows(8192, 4096, dtype="bfloat16")),
                Rows(128, 4096, cache_state="warm"),
            ),
            ((N00, {}),),
            ("torch_rms_norm",),
            ceiling=False,
        ),
    ),
)
