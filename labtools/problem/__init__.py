"""What is computed: workloads, rungs, inputs, the oracle and the comparison.

numpy only, with ml_dtypes where bfloat16 is asked for.
"""

from .baseline import Baseline, list_baselines, load_baseline
from .battery import battery, draw_workloads
from .compare import TOLERANCE, Comparison, compare_output, is_poison, poisoned
from .errors import LabError
from .inputs import Inputs, make_inputs, make_page_table
from .oracle import attention_oracle
from .outliers import (
    SchemeError,
    frontier,
    lowest_error_at,
    make_outlier_inputs,
    scheme_errors,
)
from .paths import kernels_dir, repository_root
from .quantise import (
    CHOSEN_INT4,
    CHOSEN_INT8,
    PER_ROW_INT4,
    PER_ROW_INT8,
    SCHEMES,
    Quantised,
    Scheme,
    TensorScheme,
    dequantise_inputs,
    dequantise_tensor,
    quantise_launches,
    quantise_tensor,
)
from .rung import (
    Knob,
    Launch,
    Rung,
    Workspace,
    head_dims,
    kernel_supports,
    list_rungs,
    list_studies,
    load_rung,
    timed_launches,
)
from .split import choose_split, decode_scalars, fill_of_split, split_launches
from .workload import DISTRIBUTIONS, HEADLINE, Workload, element_dtype

__all__ = [
    "CHOSEN_INT4",
    "CHOSEN_INT8",
    "DISTRIBUTIONS",
    "HEADLINE",
    "PER_ROW_INT4",
    "PER_ROW_INT8",
    "SCHEMES",
    "TOLERANCE",
    "Baseline",
    "Comparison",
    "Inputs",
    "Knob",
    "LabError",
    "Launch",
    "Quantised",
    "Rung",
    "Scheme",
    "SchemeError",
    "TensorScheme",
    "Workload",
    "Workspace",
    "attention_oracle",
    "battery",
    "choose_split",
    "compare_output",
    "decode_scalars",
    "dequantise_inputs",
    "dequantise_tensor",
    "draw_workloads",
    "element_dtype",
    "fill_of_split",
    "frontier",
    "head_dims",
    "is_poison",
    "kernel_supports",
    "kernels_dir",
    "list_baselines",
    "list_rungs",
    "list_studies",
    "load_baseline",
    "load_rung",
    "lowest_error_at",
    "make_inputs",
    "make_outlier_inputs",
    "make_page_table",
    "poisoned",
    "quantise_launches",
    "quantise_tensor",
    "repository_root",
    "scheme_errors",
    "split_launches",
    "timed_launches",
]
