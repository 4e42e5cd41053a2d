"""sgemm01_naive: a thread an element, whose neighbours read along columns; the ladder of ten steps
begins here, and its other steps take the operation of this one."""

from labtools.problem import from_reference


def product(A, B, C, alpha, beta):
    return alpha * A @ B + beta * C


OPERATION = from_reference(
    "sgemm:m,n,k",
    {
        **{"M": "i32:m", "N": "i32:n", "K": "i32:k", "alpha": "f32:0.5"},
        **{"A": "f32[m,k]", "B": "f32[k,n]", "beta": "f32:0.25", "C": "f32[m,n]:inout"},
    },
    product,
    sizes=[(128, 128, 128), (256, 128, 128), (128, 128, 256), (2048, 2048, 2048)],
    flops="2*m*n*k",
)


def supports(problem):
    whole = all(size % 128 == 0 for size in problem.sizes)
    return None if whole else "sizes are multiples of 128"


RUNG = OPERATION.rung(
    __file__,
    source="sgemm.cu",
    entry="sgemm_naive",
    grid="cdiv(m, 32), cdiv(n, 32)",
    block="32, 32",
    supports=supports,
)
