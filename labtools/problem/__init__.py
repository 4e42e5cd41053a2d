"""What is computed: workloads, rungs, inputs, the oracle and the comparison.

numpy only, with ml_dtypes where bfloat16 is asked for.
"""

from .attention import DISTRIBUTIONS, head_dims, kernel_supports
from .baseline import Baseline, list_baselines, load_baseline
from .compare import (
    MOST_BIAS,
    MOST_TOLERANCE,
    TOLERANCE,
    Comparison,
    compare_output,
    is_poison,
    merge_comparisons,
    poisoned,
)
from .decode import block_plan
from .decode.battery import battery, draw_workloads
from .decode.inputs import Inputs, make_inputs, make_page_table
from .decode.operation import DecodeAttention
from .decode.oracle import attention_oracle
from .decode.outliers import (
    SchemeError,
    frontier,
    lowest_error_at,
    make_outlier_inputs,
    scheme_errors,
)
from .decode.quantise import (
    dequantise_inputs,
    dequantise_tensor,
    quantise_launches,
    quantise_tensor,
)
from .decode.scheme import (
    CHOSEN_INT4,
    CHOSEN_INT8,
    PER_CHANNEL_INT4,
    PER_ROW_INT4,
    PER_ROW_INT8,
    SCHEMES,
    Scheme,
)
from .decode.split import choose_split, decode_scalars, fill_of_split, split_launches
from .decode.workload import HEADLINE, Workload
from .errors import KernelError, LabError, as_lab_error
from .gemm import Gemm
from .gemm.operation import MatrixProduct
from .limits import Limits
from .loading import list_families, list_rungs, list_studies, load_rung
from .paths import kernels_dir, repository_root
from .prefill import Prefill
from .prefill.operation import PrefillAttention
from .problem import (
    DEFAULT_OPERATION,
    Arrays,
    Buffer,
    Drawn,
    Fill,
    Operation,
    Part,
    Problem,
    StoredAs,
    operation_of,
    operations,
    parse_problem,
    problem_from_dict,
    register_operation,
    scheme_from_dict,
    scheme_to_dict,
)
from .reference import from_reference
from .rows import Rows
from .rows.operation import RowNorm
from .rows.residual import AddNorm, ResidualNorm
from .rung import (
    Knob,
    Launch,
    Rung,
    TensorMap,
    UnknownRung,
    Workspace,
    reset_launch,
    timed_launches,
)
from .storage import AS_THEY_ARE, CODECS, StorageFormat, element_dtype

register_operation(DecodeAttention())
register_operation(RowNorm())
register_operation(ResidualNorm())
register_operation(PrefillAttention())
register_operation(MatrixProduct())
