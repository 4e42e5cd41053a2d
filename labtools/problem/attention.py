"""What decode and prefill share: heads, the inputs that find wrong kernels, and the softmax.

Each distribution steers the scores ``s[n] = sm_scale * q . k[n]`` towards a profile ``t[n]``:

``normal``       no profile; q, k, v standard normal.
``late_peaked``  the last rows weigh most, so a kernel that drops them is far off.
``early_peaked`` the first rows weigh most, so a kernel that reads only the end is far off.
``rising``       the scores climb, so the maximum moves often: a missing rescale shows. For every
                 other (sequence, KV head) they leap three times, by as much as weights overflow by
                 where a maximum moves late, and v is large there.
``large``        scores past +-100, so exp overflows unless the maximum is subtracted. For every
                 other (sequence, KV head) all scores are below -100: a maximum that starts at
                 zero leaves no weight at all.
``sunk``         all scores are below -1.1 million, and above it for every other (sequence, KV
                 head): a maximum that starts at -10,000 or at the lowest half shows, and so does a
                 score that is kept in 16 bits. One row takes all the weight, whatever is rounded.
``one_hot``      one row takes all the weight, so the output is that row of v.
``sink``         an early row takes 98 % of the weight, and its v is small, so that the others
                 still show: a kernel that drops small weights is off.
``constant_v``   v is the same in every row and large (in bfloat16 past the range of a half), so the
                 weights must sum to one; for every other KV head it is the same in every dimension
                 too.
``outliers``     some channels of q are 4 times as large, others of k have a mean of 8, and some
                 rows of v, each of one sign, are 8 times as large (in bfloat16 2 times): what
                 clamps them shows. Two channels are large in q and in k, and their products cancel:
                 what rounds q or k again shows. Other rows of k and of v are zero, and so is a row
                 of q.
``small_v``      as ``late_peaked``; v and k are small, many of their elements subnormal, and q is
                 large: what adds a little to v, or takes the smallest for zero, shows.
``equal_keys``   all keys of a sequence are equal, and so are its weights; for every other
                 (sequence, KV head) the scores climb by a little from key to key. Those of every
                 other row of q lie far below: one maximum for two rows of q shows.
``faint``        an early row takes nearly all the weight. Each other one weighs 2^-21 of it, and
                 its v is large and of one sign, so that together they show: what takes faint
                 weights for zero is off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from .problem import Buffer, Problem

DISTRIBUTIONS = (
    *("normal", "late_peaked", "early_peaked", "rising", "large", "sunk", "one_hot", "constant_v"),
    *("outliers", "small_v", "equal_keys", "sink", "faint"),
)
USUAL_HEAD_DIMS = (32, 40, 64, 66, 80, 96, 128, 192, 256, 288, 576)
ODD_HEAD_DIM = 65
TELLING = ("normal", "outliers", "equal_keys", "sink")
"""Where every key matters: an answer without it is another one."""
EXTREME = ("constant_v", "small_v")
"""Of elements that are the largest and the smallest of their type."""
NOT_TELLING = tuple(one for one in DISTRIBUTIONS if one not in TELLING)
UNLIKE = ("late_peaked", "early_peaked", "rising")
"""Where of two thirds of the (sequence, KV head) every other row of q does not have the scores that
the others have: those of its own are near to each other."""
LATE_PEAK = 12.0
RISE = 15.0
LEAPS = np.log(2) * np.array((124.0, 17.0, 115.0))
"""Past what a few float32 of that weight have together, past what a half holds, and past what a
float32 of that weight and a large v have together."""
LARGE_SPREAD = 60.0
LARGE_PEAK = 150.0
LARGE_FALL = 260.0
ONE_HOT_PEAK = 60.0
SUNK, SUNK_PEAK = -1.6e6, -1.2e6
SUNK_SCALE = 512.0
"""Of q, so that neither q nor k leaves the range of a half."""
DEEPER, LARGEST_HALF = 24, 65504
ROWS_APART, KEY_APART = 18.0, 64.0
OUTLIER, PAIRED = 4.0, np.array((13.0, 11.0))
CLIMB = 0.2
SINK_V, SINK_REST = 2.0**-8, 0.02
"""Of a sink's v, and of the weight what all keys beside it have together."""
FAINT, FAINT_V = 2.0**-21, 2.0**8
"""Of the largest weight each other one, eight times the smallest half; times an element their v."""
LARGE_V, LARGEST_V = 2.0**12, 6e4
SMALL_V = {"bfloat16": 2.0**-28}
SMALL_K = {"float16": 2.0**-12}
"""Of other types 2^-20: their range is wider, and q leaves that of a half."""
FAR_SEQUENCES = 60_000
_ALTERED = 8.0
"""Times a usual row of V: it shows though it is one of thousands."""


@dataclass(frozen=True)
class AttentionProblem(Problem):
    """A problem whose query heads attend to the keys of shared KV heads."""

    shape_fields = ("batch", "num_qo_heads", "num_kv_heads", "kv_len", "head_dim")
    letters = "B,Hq,Hkv,S,D"
    distributions: ClassVar[tuple[str, ...]] = DISTRIBUTIONS
    small_v: ClassVar[float] = 2.0**-10
    """Of v where it is small: rounding takes more of smaller halves than an output may be off."""

    batch: int  # number of sequences, B
    num_qo_heads: int  # query (and output) heads, Hq; a multiple of ``num_kv_heads``
    num_kv_heads: int  # key and value heads, Hkv
    kv_len: int  # keys of a sequence, S
    head_dim: int  # elements of one head, D

    def check_heads(self) -> None:
        """Refuse query heads that cannot be shared out evenly among the KV heads."""
        if self.num_qo_heads % self.num_kv_heads:
            self.refuse(
                f"{self.num_qo_heads} query heads over {self.num_kv_heads} KV heads",
                "every KV head serves the same number of query heads",
            )

    @property
    def group_size(self) -> int:
        """Query heads that share one KV head, Hq / Hkv."""
        return self.num_qo_heads // self.num_kv_heads

    @property
    def sm_scale(self) -> float:
        """The softmax scale, 1 / sqrt(D)."""
        return 1.0 / float(np.sqrt(self.head_dim))

    def numbers(self) -> dict[str, float]:
        """As of every problem, and the query heads that share a KV head."""
        return {**super().numbers(), "group_size": self.group_size}

    def shape_words(self) -> list[int]:
        """The shape, to seed a generator with."""
        return [getattr(self, name) for name in self.shape_fields]

    def defines(self) -> dict[str, str]:
        """``HEAD_DIM``, and those of the type."""
        return {"HEAD_DIM": str(self.head_dim), **super().defines()}

    def usual_refusal(self) -> str | None:
        """Other elements or pages need other code than contiguous fp16."""
        return refuse_kind(self)

    def of_many_sequences(self) -> tuple[Self, Self, Self]:
        """Two heads of it `stretched` to nearly as many sequences as a grid takes in y or z."""
        keys = 2**32 // (2 * FAR_SEQUENCES * self.head_dim)
        return self.replace(batch=1, num_qo_heads=2, num_kv_heads=2, kv_len=keys).stretched("batch")

    def widening(self, supports: Callable[[Any], str | None]) -> list[tuple[Self, str]]:
        """Any number of sequences of one head and one key."""
        one = self.replace(num_qo_heads=1, num_kv_heads=1, kv_len=1, distribution="normal")
        return [(shortest_rows(one, supports), "batch")]

    def kv_buffer(self) -> Buffer:
        """k or v where they lie in one piece, ``[B, Hkv, S, D]``."""
        shape = (self.batch, self.num_kv_heads, self.kv_len, self.head_dim)
        return Buffer(shape, self.dtype)


def refuse_kind(
    problem: AttentionProblem,
    dtypes: Sequence[str] = ("float16",),
    layouts: Sequence[str] = ("contiguous",),
    empty: bool = False,
) -> str | None:
    """Why a kernel for certain element types and layouts cannot run a problem, or None.

    Unless ``empty`` a sequence has keys.
    """
    if problem.empty_parts and not empty:
        return "a sequence has no keys; this kernel is written for at least one"
    if problem.dtype not in dtypes:
        return f"its elements are {problem.dtype}; this kernel is written for {list(dtypes)}"
    if problem.layout not in layouts:
        return f"its cache is {problem.layout}; this kernel is written for {list(layouts)}"
    return None


def kernel_supports(
    head_dims: Sequence[int] = (64, 128),
    dtypes: Sequence[str] = ("float16",),
    layouts: Sequence[str] = ("contiguous",),
    groups: Sequence[int] | None = None,
    empty: bool = False,
) -> Callable[[Any], str | None]:
    """A ``supports`` function for an attention kernel that takes these head dimensions D, types,
    layouts of K and V, query heads a KV head (None: any), and with ``empty`` a sequence without
    keys, whose output is zeros."""

    def supports(problem: AttentionProblem) -> str | None:
        if problem.head_dim not in head_dims:
            return f"head_dim is {problem.head_dim}; this kernel is written for {list(head_dims)}"
        if reason := refuse_kind(problem, dtypes, layouts, empty):
            return reason
        if groups is not None and problem.group_size not in groups:
            shared = f"{problem.group_size} query heads share a KV head"
            return f"{shared}; this kernel is written for {list(groups)}"
        return None

    return supports


def other_head_dims(problem: Any, supports: Callable[[Any], str | None]) -> list[Any]:
    """The problem with each other usual head dimension that a kernel names; none where it takes an
    odd one too, and so says nothing of them."""
    if not supports(problem.replace(head_dim=ODD_HEAD_DIM)):
        return []
    others = (problem.replace(head_dim=d) for d in USUAL_HEAD_DIMS if d != problem.head_dim)
    return [one for one in others if not supports(one)]


def shortest_rows(problem: Any, supports: Callable[[Any], str | None]) -> Any:
    """The problem with the smallest head dimension that a kernel names, or with its own."""
    return min((problem, *other_head_dims(problem, supports)), key=lambda one: one.head_dim)


def head_dims(*choices: int) -> Callable[[Any], str | None]:
    """A ``supports`` function for fp16 kernels over a contiguous cache, for certain dimensions."""
    return kernel_supports(choices)


def draw_qkv(
    rng: np.random.Generator,
    problem: AttentionProblem,
    rows: int,
    profile: Callable[[], np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q ``[B, Hkv, rows, D]``, k and v ``[B, Hkv, S, D]`` of a problem's distribution, in float32.

    ``rows`` of q share one KV head of a sequence: heads times queries. ``profile`` gives the wanted
    scores, float32 ``[B, Hkv, S]``, where there are any.
    """
    batch, heads, length, dim = problem.kv_buffer().shape
    q = rng.standard_normal((batch, heads, rows, dim), dtype=np.float32)
    k = rng.standard_normal((batch, heads, length, dim), dtype=np.float32)
    v = rng.standard_normal((batch, heads, length, dim), dtype=np.float32)
    kind = problem.distribution
    if kind == "constant_v":
        v[:] = rng.standard_normal((batch, heads, 1, dim), dtype=np.float32)
        v *= 16 * LARGE_V if problem.dtype == "bfloat16" else LARGE_V
        v[:, 1::2] = v[:, 1::2, :, :1]
    elif kind == "outliers":
        # Channels of q, others of k, and rows of v: no score grows by the square.
        channels = rng.permutation(dim)[: dim // 32]
        q[..., channels[::2]] *= OUTLIER
        k[..., channels[1::2]] += 2 * OUTLIER
        # A pair of channels, as a rotary embedding has them.
        both = np.array((channels[0] ^ 1, channels[0] ^ 3))
        q[..., both] = np.sign(q[..., both[:1]]) * PAIRED
        k[..., both] = k[..., both[:1]] * PAIRED[::-1] * (1, -1)
        # Rows of v have their signs in common, and in bfloat16, where rounding takes half of what
        # an output may be off, they are smaller: no answer is a difference of large numbers.
        times = OUTLIER / 2 if problem.dtype == "bfloat16" else 2 * OUTLIER
        large = v[:, :, rng.integers(16) :: 16]
        large[:] = times * np.copysign(large, large[:, :, :1])
        k[:, :, 1::8], v[:, :, 5::8], q[:, ::2, 1:2] = 0, 0, 0
    elif kind != "normal":
        # Give the query heads of a group a common direction u and lay t[n] along it in k[n]:
        # then q . k[n] / sqrt(D) is t[n] plus the noise of the normal parts.
        u = rng.standard_normal((batch, heads, dim), dtype=np.float32)
        wanted = profile()
        coefficient = wanted * np.sqrt(dim) / np.square(u).sum(-1, keepdims=True)
        along = np.ones((batch, heads, rows, 1), np.float32)
        if kind in UNLIKE and rows > 1:
            for sequence, head in np.ndindex(batch, heads):
                if turn := (sequence - head) % 3:
                    along[sequence, head, turn - 1 :: 2] = 0
        if kind == "faint":  # all rows of q have the same largest score
            q -= (q @ u[..., None]) / np.square(u).sum(-1)[..., None, None] * u[:, :, None, :]
        q = 0.25 * q + along * u[:, :, None, :]
        if kind == "sunk":
            q, coefficient = SUNK_SCALE * q, coefficient / SUNK_SCALE
        elif kind == "equal_keys":
            k[:] = k[:, :, :1]
        k = 0.25 * k + coefficient[..., None] * u[:, :, None, :]
        if kind == "equal_keys":
            q[..., ::2, 1], q[..., 1::2, 1], k[..., 1] = ROWS_APART, -ROWS_APART, KEY_APART
        if kind == "small_v":
            small = SMALL_K.get(problem.dtype, 2.0**-20)
            q, k = q / small, k * small
            v *= SMALL_V.get(problem.dtype, problem.small_v)
        elif kind == "sink":
            v[coefficient > 0] *= SINK_V
        elif kind == "faint":
            others = (coefficient == 0)[..., None]
            v = np.where(others, FAINT_V * np.copysign(v, v[:, :, :1]), v)
        elif kind == "rising":
            v[(wanted < -2 * RISE).any(-1)] *= LARGE_V
    return q, k, v


def sunk_deeper(q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q and k of ``sunk`` with scores below -10^9, of the largest halves that there are."""

    def up(one: np.ndarray, times: int) -> np.ndarray:
        larger = one.astype(np.float32) * times
        return np.clip(larger, -LARGEST_HALF, LARGEST_HALF).astype(one.dtype)

    return up(q, DEEPER), up(k, 2 * DEEPER)


def score_profile(
    distribution: str, length: int, odd: bool, rng: np.random.Generator
) -> np.ndarray:
    """The wanted scores t of one (sequence, KV head), float32 ``[length]``; with ``odd`` those of
    ``large`` lie below -100 throughout, those of ``sunk`` have the other sign, and so on."""
    row = np.zeros(length, np.float32)
    if not length:
        return row
    # The last row as often as any other: what leaves it out shows.
    peak = length - 1 if rng.integers(2) else int(rng.integers(length))
    if distribution in ("late_peaked", "small_v"):
        row[length - max(1, length // 64) :] = LATE_PEAK
    elif distribution == "early_peaked":
        row[: max(1, length // 64)] = LATE_PEAK
    elif distribution == "sunk":
        row[:], row[peak] = (-SUNK_PEAK, -SUNK) if odd else (SUNK, SUNK_PEAK)
    elif distribution == "rising" and odd:
        for quarters, leap in enumerate(LEAPS, start=1):
            row[: quarters * length // 4] -= leap
    elif distribution == "rising":
        row[:] = np.linspace(-RISE, RISE, length)
    elif distribution == "large":
        row[:] = LARGE_SPREAD * rng.standard_normal(length, dtype=np.float32)
        row[peak] = LARGE_PEAK
        if odd:
            row -= max(float(row.max()), LARGE_PEAK) - LARGE_PEAK + LARGE_FALL
    elif distribution == "one_hot":
        row[peak] = ONE_HOT_PEAK
    elif distribution == "sink":
        row[rng.integers(1 + length // 8)] = np.log(length / SINK_REST)
    elif distribution == "faint":
        row[rng.integers(1 + length // 8)] = -np.log(FAINT)
    elif distribution == "equal_keys" and odd:
        row[:] = np.linspace(0, CLIMB, length)
    return row


def altered_rows(
    q: np.ndarray, keys: np.ndarray, values: np.ndarray, rng: np.random.Generator
) -> list[tuple[str, int, np.ndarray]]:
    """Rows that give a query ``[D]`` that sees the keys and values ``[n, D]`` another answer by
    far: (buffer, row, its new content). Another row of V where most weight is, and that row's key
    elsewhere too.
    """
    if not len(keys):
        return []
    top = int(np.argmax(keys.astype(np.float32) @ q.astype(np.float32)))
    other = int(rng.integers(len(keys)))
    usual = float(np.clip(np.abs(values.astype(np.float32)).mean(), 1, LARGE_V))
    fresh = _ALTERED * usual * rng.standard_normal(len(q), dtype=np.float32)
    fresh = np.clip(fresh, -LARGEST_V, LARGEST_V)
    return [("v", top, fresh.astype(keys.dtype)), ("k", other, keys[top])]


def softmax(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights ``[rows, n]`` of scores ``[rows, n]``, and the natural log of the sum of their
    exponentials ``[rows]``, all float64.

    -infinity stands for a key that a row does not see. Every row sees one, or n is 0.
    """
    if not scores.shape[1]:
        return scores, np.full(len(scores), -np.inf)
    peak = scores.max(axis=1, keepdims=True)
    weights = np.exp(scores - peak)
    total = weights.sum(axis=1, keepdims=True)
    return weights / total, (peak + np.log(total))[:, 0]
