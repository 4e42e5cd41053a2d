"""What a scheme costs in accuracy: inputs with outliers, error against bytes, and a problem's own.

Every error here is of attention in float64 of what the cache keeps, against the float64 oracle of
the *unquantised* inputs. How far a kernel is from its own dequantised inputs is another question,
which every check of a rung answers.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..compare import worst_relative_error
from .inputs import Inputs, make_inputs
from .oracle import apply_weights, attention_oracle, attention_weights
from .quantise import by_sequence, kept_rows
from .scheme import SCHEMES, Scheme, StorageFormat
from .workload import Workload

OUTLIER_CHANNELS = 4
OUTLIER_MEAN = (6.0, 14.0)
OUTLIER_SPREAD = 1.5
CHANNEL_SPREAD = 0.3
CHANNEL_MEAN = 0.5
V_TAIL = 8.0
V_TOKEN_SPREAD = 0.25
E4M3_LARGEST = 448.0
SAMPLE_HEADS = (8, 2)
"""Query and KV heads of the one sequence that an error is computed on."""
MOST_TOKENS = 4096


def make_outlier_inputs(
    workload: Workload,
    seed: int | None = None,
    *,
    outlier_channels: int = OUTLIER_CHANNELS,
    outlier_mean: tuple[float, float] = OUTLIER_MEAN,
    v_tail: float = V_TAIL,
) -> Inputs:
    """Seeded inputs with the outliers that make a KV cache hard to quantise.

    What it follows. KIVI (arXiv 2402.02750) and KVQuant (arXiv 2401.18079) looked at the caches
    of Llama and Mistral models, KIVI of Falcon too. Both report a few key channels of large
    magnitude, the same ones for all tokens of a head; KVQuant also reports tokens and single
    values of v that stick out, less than the keys do. So here, for each KV head:

    - k: every channel has its own spread (log-normal, sigma 0.3) and a small mean;
      ``outlier_channels`` of them have a mean of 6 to 14, of either sign, and a spread of 1.5.
    - v: Student's t with ``v_tail`` degrees of freedom (mild heavy tails), and a magnitude a token
      (log-normal, sigma 0.25).
    - q: standard normal.

    What it can show: how an error arises (one scale stretched by an element that does not
    concern its neighbours), in which order schemes fall, and how far a kernel's arithmetic is
    from what a scheme permits. What it cannot show: the error in a model. Queries of a model are
    not independent of its keys, its attention has sinks and its scores have structure, rotary
    embedding mixes pairs of channels, and an output error of some size may or may not change
    the next token. That needs a model and a task.

    The workload's ``distribution`` is not looked at; ``seed`` None takes its own. ``v_tail`` is at
    least 3, and smaller is heavier.
    """
    rng = np.random.default_rng([workload.seed if seed is None else seed, 2402, 2750])
    batch, heads, rows, dim = workload.kv_buffer().shape

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    q = normal(batch, workload.num_qo_heads, dim)
    spread = np.exp(np.float32(CHANNEL_SPREAD) * normal(heads, dim))
    mean = np.float32(CHANNEL_MEAN) * normal(heads, dim)
    for head in range(heads):
        chosen = rng.choice(dim, min(outlier_channels, dim), replace=False)
        mean[head, chosen] = rng.choice((-1.0, 1.0), chosen.size) * rng.uniform(
            *outlier_mean, chosen.size
        )
        spread[head, chosen] = OUTLIER_SPREAD
    k = mean[:, None, :] + spread[:, None, :] * normal(batch, heads, rows, dim)
    tail = rng.chisquare(v_tail, (batch, heads, rows, dim)).astype(np.float32) / v_tail
    token = np.exp(np.float32(V_TOKEN_SPREAD) * normal(batch, heads, rows, 1))
    v = token * normal(batch, heads, rows, dim) / np.sqrt(tail)
    return _finish(workload, q, k.astype(np.float32), v.astype(np.float32))


def _finish(workload: Workload, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Inputs:
    """The arrays in the workload's type and layout; rows behind a length hold NaN."""
    plain = make_inputs(workload.replace(distribution="normal"))
    for sequence, n in enumerate(workload.lengths):
        k[sequence, :, n:] = v[sequence, :, n:] = np.nan
    arrays: dict[str, Any] = {"q": q.astype(plain.q.dtype)}
    for name, x in (("k", k), ("v", v)):
        _, back = by_sequence(plain, name)
        arrays[name] = back(x).astype(plain.k.dtype)
    return dataclasses.replace(plain, **arrays)


@dataclass(frozen=True)
class SchemeError:
    """What a scheme costs in bytes and in accuracy."""

    scheme: Scheme  # which
    bytes_per_element: float  # scales included, the mean of k and v
    # largest relative error of one (sequence, head), exact arithmetic on the dequantised cache
    # against the float64 oracle of the *unquantised* inputs
    worst_error: float
    median_error: float  # the median over (sequence, head)
    pairs: int  # (sequence, head) pairs, over all inputs


FRONTIER_WORKLOAD = Workload(1, 16, 4, 1024, 128)
FRONTIER_SEEDS = (0, 1, 2, 3)


def scheme_errors(inputs: Iterable[Inputs], schemes: Iterable[Scheme]) -> list[SchemeError]:
    """Error of each scheme over all (sequence, head) pairs of all inputs, in the given order."""
    schemes = list(schemes)
    found: dict[str, list[np.ndarray]] = {scheme.name: [] for scheme in schemes}
    by_k: dict[StorageFormat, list[Scheme]] = {}
    for scheme in schemes:
        by_k.setdefault(scheme.k, []).append(scheme)
    head_dim = 0
    for one in inputs:
        head_dim = one.workload.head_dim
        expected, _ = attention_oracle(one)
        size = np.linalg.norm(expected, axis=-1)
        with_v = {part: _kept_as(one, "v", part) for part in {scheme.v for scheme in schemes}}
        for k, sharing in by_k.items():
            weights = attention_weights(_kept_as(one, "k", k))
            for scheme in sharing:
                out, _ = apply_weights(with_v[scheme.v], weights)
                found[scheme.name].append((np.linalg.norm(out - expected, axis=-1) / size).ravel())
    rows = []
    for scheme in schemes:
        error = np.concatenate(found[scheme.name])
        size, worst = scheme.bytes_per_element(head_dim), float(error.max())
        rows.append(SchemeError(scheme, size, worst, float(np.median(error)), error.size))
    return rows


def _kept_as(inputs: Inputs, name: str, part: StorageFormat) -> Inputs:
    """The inputs with ``k`` or ``v`` as it comes back from a cache that keeps it so."""
    x, back = by_sequence(inputs, name)
    kept = kept_rows(x, inputs.seq_lens, part)
    # Many schemes share it, and the oracle would make it float64 for each.
    changed: dict[str, Any] = {name: back(kept).astype(np.float64)}
    return dataclasses.replace(inputs, **changed)


def frontier(
    workload: Workload = FRONTIER_WORKLOAD,
    seeds: Sequence[int] = FRONTIER_SEEDS,
    schemes: Iterable[Scheme] | None = None,
) -> list[SchemeError]:
    """Error against bytes on `make_outlier_inputs`, cheapest first; None takes all `SCHEMES`."""
    chosen = SCHEMES.values() if schemes is None else schemes
    found = scheme_errors((make_outlier_inputs(workload, seed) for seed in seeds), chosen)
    return sorted(found, key=lambda row: (row.bytes_per_element, row.worst_error))


def lowest_error_at(rows: Iterable[SchemeError], of: SchemeError) -> float:
    """The lowest worst error that a scheme of as many bits reaches at no more bytes."""
    alike = (row for row in rows if row.scheme.v.bits == of.scheme.v.bits)
    most = of.bytes_per_element + 1e-9
    return min(row.worst_error for row in alike if row.bytes_per_element <= most)


def as_e4m3(inputs: Inputs) -> Inputs:
    """The inputs with k and v as an 8-bit float (e4m3) of one scale a tensor keeps them.

    The scale is 1 unless a value does not fit, as the FP8 baselines have it.
    """
    import ml_dtypes

    kept = {}
    for name in ("k", "v"):
        wide = getattr(inputs, name).astype(np.float32)
        scale = np.float32(max(1.0, float(np.nanmax(np.abs(wide))) / E4M3_LARGEST))
        kept[name] = (wide / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
    return dataclasses.replace(inputs, **kept)


def errors_of_scheme(problem: Workload, keeps: Scheme | None) -> Mapping[str, float]:
    """The worst relative error of a (sequence, head) that comes from what the cache keeps, None
    being e4m3 as the libraries have it: ``normal``, and ``outliers`` of `make_outlier_inputs`.

    One sequence of the problem's length (`MOST_TOKENS` at most), head_dim and type, with
    `SAMPLE_HEADS`; the timed inputs themselves would take minutes.
    """
    sample = Workload(
        *(1, *SAMPLE_HEADS, min(problem.kv_len, MOST_TOKENS), problem.head_dim), dtype=problem.dtype
    )
    return _errors_of_scheme(sample, keeps)


@functools.lru_cache(maxsize=64)
def _errors_of_scheme(sample: Workload, keeps: Scheme | None) -> Mapping[str, float]:
    found = {}
    for name, inputs in _drawn(sample).items():
        if keeps is not None:
            found[name] = scheme_errors([inputs], [keeps])[0].worst_error
        else:
            expected, _ = attention_oracle(inputs)
            found[name] = worst_relative_error(attention_oracle(as_e4m3(inputs))[0], expected)
    return found


@functools.lru_cache(maxsize=2)
def _drawn(sample: Workload) -> Mapping[str, Inputs]:
    return {"normal": make_inputs(sample), "outliers": make_outlier_inputs(sample)}
