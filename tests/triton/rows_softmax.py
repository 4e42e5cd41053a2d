"""A softmax over rows and a causal attention, as Triton kernels are written in public."""

import triton
import triton.language as tl
from row_scale import scaled

RUNS_ON_A_GPU = triton.runtime.driver.active.utils.get_device_properties(0)["warpSize"]


@triton.jit
def softmax(
    out_ptr, x_ptr, out_stride, x_stride, columns, BLOCK: tl.constexpr, by: tl.constexpr = 1.0
):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    x = tl.load(x_ptr + row * x_stride + offsets, mask=inside, other=float("-inf")).to(tl.float32)
    x = scaled(x, by)
    powers = tl.exp(x - tl.max(x, axis=0))
    answer = powers / tl.sum(powers, axis=0)
    place = out_ptr + row * out_stride + offsets
    tl.store(place, answer.to(out_ptr.dtype.element_ty), mask=inside)


@triton.autotune(
    configs=[
        triton.Config({"ROWS": rows, "KEYS": 64}, num_warps=4, num_stages=stages)
        for rows in (64, 128)
        for stages in (2, 3)
    ],
    key=["length"],
)
@triton.heuristics({"EVEN": lambda given: given["length"] % given["KEYS"] == 0})
@triton.jit
def attention(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    sm_scale,
    length,
    CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    EVEN: tl.constexpr,
):
    first = tl.program_id(0) * ROWS
    head = tl.program_id(1).to(tl.int64) * length * HEAD_DIM
    rows = first + tl.arange(0, ROWS)
    dims = tl.arange(0, HEAD_DIM)
    places = head + rows[:, None] * HEAD_DIM + dims[None, :]
    q = tl.load(q_ptr + places, mask=rows[:, None] < length, other=0.0)
    most = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    answer = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    end = tl.minimum(first + ROWS, length) if CAUSAL else length
    for start in range(0, end, KEYS):
        keys = start + tl.arange(0, KEYS)
        row = head + keys[:, None] * HEAD_DIM + dims[None, :]
        if EVEN:
            k, v = tl.load(k_ptr + row), tl.load(v_ptr + row)
        else:
            k = tl.load(k_ptr + row, mask=keys[:, None] < length, other=0.0)
            v = tl.load(v_ptr + row, mask=keys[:, None] < length, other=0.0)
        score = tl.dot(q, tl.trans(k)) * sm_scale
        seen = keys[None, :] < length
        if CAUSAL:
            seen = seen & (keys[None, :] <= rows[:, None])
        score = tl.where(seen, score, float("-inf"))
        larger = tl.maximum(most, tl.max(score, axis=1))
        weight = tl.exp(score - larger[:, None])
        shrink = tl.exp(most - larger)
        total = total * shrink + tl.sum(weight, axis=1)
        answer = answer * shrink[:, None] + tl.dot(weight.to(v.dtype), v)
        most = larger
    answer = answer / total[:, None]
    tl.store(out_ptr + places, answer.to(out_ptr.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def copied_by_descriptor(out_ptr, x_ptr, rows, columns, TILE: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [TILE, TILE])
    out = tl.make_tensor_descriptor(out_ptr, [rows, columns], [columns, 1], [TILE, TILE])
    at = [tl.program_id(0) * TILE, tl.program_id(1) * TILE]
    out.store(at, x.load(at))


def not_a_kernel(x_ptr):
    return x_ptr


softmax[(RUNS_ON_A_GPU,)](None, None, 0, 0, 0, BLOCK=128)
