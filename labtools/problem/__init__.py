"""What is computed: workloads, rungs, inputs, the oracle and the comparison. numpy only."""

from .baseline import Baseline, list_baselines, load_baseline
from .battery import battery
from .compare import TOLERANCE, Comparison, compare_output, is_poison, poisoned
from .errors import LabError
from .inputs import Inputs, make_inputs
from .oracle import attention_oracle
from .paths import kernels_dir, repository_root
from .rung import (
    Knob,
    Launch,
    Rung,
    Workspace,
    head_dims,
    list_rungs,
    list_studies,
    load_rung,
    timed_launches,
)
from .workload import DISTRIBUTIONS, HEADLINE, Workload

__all__ = [
    "DISTRIBUTIONS",
    "HEADLINE",
    "TOLERANCE",
    "Baseline",
    "Comparison",
    "Inputs",
    "Knob",
    "LabError",
    "Launch",
    "Rung",
    "Workload",
    "Workspace",
    "attention_oracle",
    "battery",
    "compare_output",
    "head_dims",
    "is_poison",
    "kernels_dir",
    "list_baselines",
    "list_rungs",
    "list_studies",
    "load_baseline",
    "load_rung",
    "make_inputs",
    "poisoned",
    "repository_root",
    "timed_launches",
]
