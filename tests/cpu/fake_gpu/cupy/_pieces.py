"""r04's two kernels on the fake device; partial results may lie in memory of the call's own."""

import numpy as np

from ._answers import answer_once
from .cuda._state import state as _state

DECODE_US, MERGE_US = 12.0, 3.0


def _floats(arg, count):
    if isinstance(arg, np.uint64):
        return _state.arrays_at(int(arg), np.float32, count)
    assert arg.size == count
    return arg.host.reshape(-1)


def decode_pieces(entry, args, grid):
    q, k, v, seq_lens = (one.host for one in args[:4])
    heads, batch, pieces = grid
    dim = q.shape[2]
    partial = _floats(args[4], batch * heads * pieces * (dim + 2))
    partial = partial.reshape(batch, heads, pieces, dim + 2)
    _state.clock_us += DECODE_US
    partial[...] = answer_once(
        ("pieces", grid, q.shape, k.shape, float(args[7])),
        (q, k, v, seq_lens),
        lambda: _partial_results(q, k, v, seq_lens, pieces, float(args[7])),
    )


def _partial_results(q, k, v, seq_lens, pieces, scale):
    batch, heads, dim = q.shape
    partial = np.zeros((batch, heads, pieces, dim + 2), np.float32)
    partial[..., dim] = -np.inf
    for b, h, piece in np.ndindex(batch, heads, pieces):
        each = -(-int(seq_lens[b]) // pieces)
        rows = slice(piece * each, min((piece + 1) * each, int(seq_lens[b])))
        keys = k[b, h * k.shape[1] // heads, rows].astype(np.float64)
        if not len(keys):
            continue
        scores = keys @ q[b, h].astype(np.float64) * scale
        weights = np.exp2(scores - scores.max())
        partial[b, h, piece, :dim] = weights @ v[b, h * k.shape[1] // heads, rows]
        partial[b, h, piece, dim:] = scores.max(), weights.sum()
    return partial


def merge_pieces(entry, args, grid):
    partial, out, pieces = args[0], args[1].host, int(args[2])
    batch, heads, dim = out.shape
    known = _floats(partial, batch * heads * pieces * (dim + 2)).reshape(batch, heads, pieces, -1)
    _state.clock_us += MERGE_US
    factor = np.exp2(known[..., dim] - known[..., dim].max(-1, keepdims=True))
    acc = (factor[..., None] * known[..., :dim]).sum(2)
    out[...] = acc / (factor * known[..., dim + 1]).sum(2)[..., None]
