"""A stand-in for CuPy that computes with numpy and keeps a clock of its own.

It holds what labtools' measuring children use of CuPy, so that their logic (processes, checks,
rotation, rounds, faults, time limits) is tested on a machine without a GPU. A kernel is known by
its entry's name; its duration is a fixed number of microseconds on a clock that only kernels move.
"""

import functools
import hashlib
import json
import os
import time

import ml_dtypes
import numpy as np
from elftools.elf.elffile import ELFFile

from . import cuda
from ._answers import answer_once
from ._pieces import decode_pieces, merge_pieces
from .cuda._state import state as _state

__version__ = "fake"


def _note_draw(array):
    """What was drawn into which buffer, if a test counts it."""
    log = os.environ.get("FAKE_DRAW_LOG")
    if log:
        digest = hashlib.sha256(array.host.tobytes()).hexdigest()
        line = json.dumps({"pid": os.getpid(), "shape": array.shape, "digest": digest})
        with open(log, "a") as file:
            file.write(line + "\n")


class ndarray:
    def __init__(self, shape, dtype=float, memptr=None):
        self.dtype = np.dtype(dtype)
        self.shape = tuple(shape)
        self.size = int(np.prod(self.shape))
        self.nbytes = self.size * self.dtype.itemsize
        self.data = memptr if memptr is not None else cuda.alloc(self.nbytes)

    @property
    def host(self):
        raw = self.data.buffer[self.data.offset : self.data.offset + self.nbytes]
        return raw.view(self.dtype).reshape(self.shape)

    def set(self, array, stream=None):
        assert array.dtype == self.dtype, (array.dtype, self.dtype)
        assert array.shape == self.shape, (array.shape, self.shape)
        self.host[...] = array
        _note_draw(self)

    def get(self, stream=None):
        _state.raise_pending()
        return self.host.copy()

    def view(self, dtype):
        return ndarray(self.shape, dtype, self.data)

    def __dlpack__(self, **kwargs):
        return self.host.__dlpack__()

    def __dlpack_device__(self):
        return self.host.__dlpack_device__()

    def __getitem__(self, index):
        view = self.host[index]
        assert view.flags.c_contiguous
        offset = view.__array_interface__["data"][0] - self.data.buffer.ctypes.data
        return ndarray(view.shape, self.dtype, cuda.MemoryPointer(self.data.buffer, offset))


class RawModule:
    def __init__(self, path):
        assert os.path.getsize(path) > 0
        self.path = path

    def get_function(self, entry):
        return RawKernel(entry, self.path)


class RawKernel:
    max_dynamic_shared_size_bytes = 48 * 1024
    shared_size_bytes = 0

    def __init__(self, entry, path=""):
        self.entry = entry
        self.path = path

    def __call__(self, grid, block, args, shared_mem=0):
        _state.raise_pending()
        assert all(isinstance(n, int) and n >= 1 for n in (*grid, *block))
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        for arg in args:
            assert isinstance(arg, (ndarray, np.generic)), arg
        _state.note_launch(self.entry, grid, block)
        given = (self.entry, args)
        if self.entry in _SPLIT:
            _state.do(lambda: _SPLIT[self.entry](*given, grid))
        elif self.entry in _TOLD:
            _state.do(lambda: _as_told(*given, self.path))
        elif self.entry == "row_scale":
            _state.do(lambda: _row_scale(*given, block[0]))
        else:
            _state.do(lambda: _KERNELS.get(self.entry, _decode)(*given))


_DEFAULT_US = {"decode_r00": 40.0, "decode_r01": 30.0, "decode_r02": 20.0, "decode_r03": 10.0}


def _behaviour(entry):
    """What a test asked of a kernel: a JSON object of entry to word."""
    return json.loads(os.environ.get("FAKE_GPU_BEHAVIOUR", "{}")).get(entry, "")


def _numbers(array):
    """What an array holds; bfloat16 lies on the device as its bits."""
    return array.host.view(ml_dtypes.bfloat16) if array.dtype == np.uint16 else array.host


def _rows(pages, table, seq_lens):
    """Pages to rows ``[B, Hkv, S, D]``; NaN past each length."""
    _, heads, size, dim = pages.shape
    rows = np.full((len(table), heads, table.shape[1] * size, dim), np.nan, pages.dtype)
    for b, n in enumerate(seq_lens):
        for index in range(-(-int(n) // size)):
            rows[b, :, index * size : (index + 1) * size] = pages[table[b, index]]
    return rows


def _attention(arrays, through_int8):
    q, k, v, seq_lens = (_numbers(one) for one in arrays[:4])
    if arrays[4].dtype == np.int32:
        k, v = (_rows(one, arrays[4].host, seq_lens) for one in (k, v))
    if through_int8:
        k, v = (_through_int8(one, seq_lens) for one in (k, v))
    out = np.empty(q.shape)
    group = q.shape[1] // k.shape[1]
    for b, n in enumerate(seq_lens):
        for h in range(q.shape[1]):
            keys = k[b, h // group, :n].astype(np.float64)
            values = v[b, h // group, :n].astype(np.float64)
            scores = keys @ q[b, h].astype(np.float64) / np.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max())
            out[b, h] = (weights / weights.sum()) @ values
    return out


def _decode(entry, args):
    arrays = [arg for arg in args if isinstance(arg, ndarray)]
    q = _numbers(arrays[0])
    out = _numbers(arrays[-1])
    behaviour = _behaviour(entry)
    _state.clock_us += _DEFAULT_US.get(entry, 25.0)
    if behaviour == "hang":
        time.sleep(3600)
    if behaviour in ("misaligned", "illegal"):
        _state.pending = cuda.runtime.CUDARuntimeError(716 if behaviour == "misaligned" else 700)
        return
    if behaviour == "out of memory":
        raise cuda.memory.OutOfMemoryError("Out of memory allocating 1 bytes")
    if behaviour == "crash":
        os.abort()
    if behaviour == "nothing":
        return
    if behaviour == "leaves" and not np.isnan(out).any():
        return  # an answer stands there, of whatever question
    if behaviour == "leaves late in a replay" and _state.played > 12 and not np.isnan(out).any():
        return
    before = out.copy()
    out[...] = answer_once(
        (entry.startswith("decode_int8"), q.shape, arrays[1].shape),
        [one.host for one in arrays[: 5 if arrays[4].dtype == np.int32 else 4]],
        lambda: _attention(arrays, entry.startswith("decode_int8")),
    )
    if behaviour == "wrong":
        out[-1, -1, -1] += 1
    if behaviour == "wrong later":  # right a few times, then not
        _state.calls[entry] = _state.calls.get(entry, 0) + 1
        if _state.calls[entry] > 3:
            out[0, 0, 0] += 1
    if behaviour == "wrong in long replays" and _state.replayed > 20:
        out[0, 0, 0] += 1
    if behaviour.startswith("keeps"):
        kept, place = _state.calls.setdefault(entry, {}), out.ctypes.data
        first = list(_state.calls.setdefault(f"places of {entry}", {place: 0}))[:2]
        _state.calls[f"places of {entry}"][place] = 0
        key = {
            "keeps": (q.ctypes.data, q.tobytes()),  # wherever the cache lies
            "keeps by its keys": (place, arrays[1].host.tobytes()),
            "keeps till it is prepared": (place, _state.calls.get("clear_counters")),
            "keeps what is not checked": (place, place in first and arrays[1].host.tobytes()),
        }[behaviour]
        out[...] = kept.setdefault(key, out.copy())
    if behaviour == "in pairs":  # every second call answers for two
        waiting = _state.calls.setdefault(entry, [])
        waiting.append((out, out.copy()))
        out[...] = before
        if len(waiting) == 2:
            for place, answer in waiting:
                place[...] = answer
            waiting.clear()
    if behaviour == "writes past":
        end = arrays[-1].data.offset + arrays[-1].nbytes
        arrays[-1].data.buffer[end : end + 2] = 0
    if behaviour == "writes input":
        _numbers(arrays[1])[0, 0, 0, 0] = 0


def _through_int8(rows, lengths):
    """What 8 bits with a scale a row leave of k or v."""
    from labtools.problem import StorageFormat, dequantise_tensor, quantise_tensor

    return dequantise_tensor(quantise_tensor(rows, lengths, StorageFormat("int8", "row")))


def _clear(entry, args):
    args[0].host[...] = 0
    _state.calls[entry] = _state.calls.get(entry, 0) + 1


def _split_merge(entry, args):
    (counters,) = (one for one in args if isinstance(one, ndarray) and one.dtype == np.uint32)
    assert not counters.host.any(), "the counters were not cleared"
    _decode(entry, args)


def _fill(entry, args):
    target, lengths, pairs, seed, heads, rows, dim = args
    assert (target.dtype == np.uint16) == (entry == "fill_normal_bf16")
    numbers = _numbers(target)
    flat = numbers.reshape(-1)
    assert flat.size == 2 * int(pairs)
    flat[:] = np.random.default_rng(int(seed)).standard_normal(flat.size)
    _note_draw(target)
    if int(lengths):
        held = _state.arrays_at(int(lengths), np.int32, target.shape[0])
        assert target.shape == (len(held), int(heads), int(rows), int(dim))
        for b, n in enumerate(held):
            numbers[b, :, n:] = np.nan


def _fingerprint(entry, args):
    array, total, size, seed = args
    assert int(size) == array.nbytes
    digest = hashlib.sha256(array.host.tobytes() + int(seed).to_bytes(8, "big")).digest()
    total.host[...] += np.frombuffer(digest[:8], np.uint64)


def _read_sweep(entry, args):
    k, v, checksum, chunks = args
    _state.clock_us += 5.0
    assert int(chunks) * 16 == k.nbytes
    total = int(checksum.host[0])
    for one in (k, v):
        total ^= int(np.bitwise_xor.reduce(one.host.reshape(-1).view(np.uint32)))
    checksum.host[0] = total
    if _behaviour(entry) == "wrong":
        checksum.host[0] ^= 1


def _rms_norm(entry, args):
    x, weight, out = (_numbers(one) for one in args[:3])
    _state.clock_us += 7.0
    numbers = x.astype(np.float64)
    scale = np.sqrt((numbers**2).mean(axis=1, keepdims=True) + float(args[4]))
    out[...] = numbers / scale * weight.astype(np.float64)
    if _behaviour(entry) == "wrong":
        out[-1, -1] += 1


def _add_rms_norm(entry, args):
    """Two outputs, one of them an input before."""
    x, residual, weight, out = (_numbers(one) for one in args[:4])
    total = residual + x
    assert np.isfinite(total).all(), "the residual was never given back what it held"
    behaviour = _behaviour(entry)
    if behaviour != "leaves the residual":
        residual[...] = total
    _state.clock_us += 13.0
    scale = np.sqrt((total.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + float(args[5]))
    if behaviour != "leaves out":
        out[...] = total / scale * weight.astype(np.float64)


def _softmax(entry, args):
    """As Triton launches it, with two addresses of its own behind the arguments."""
    assert [one.dtype.name for one in args[2:]] == [*["int32"] * 3, *["uint64"] * 2]
    assert not any(args[5:])
    out, x = (_numbers(one) for one in args[:2])
    powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    _state.clock_us += 9.0
    out[...] = powers / powers.sum(axis=1, keepdims=True)


def _row_scale(entry, args, threads):
    """The tunable kernel: larger blocks are faster."""
    _state.clock_us += {64: 12.0, 256: 8.0, 512: 6.0}[threads] - 7.0
    _rms_norm(entry, args)


@functools.cache
def _told(path):
    """What a kernel's code says of itself in its constants: its microseconds, and 1 if it is
    wrong. The clock here knows nothing of instructions."""
    with open(path, "rb") as file:
        held = ELFFile(file).get_section_by_name(".nv.constant3").data()
    return np.frombuffer(held[:8], np.float32).tolist()


def _as_told(entry, args, path):
    """A kernel of a stranger, with the time and the fault that its code tells."""
    us, is_wrong = _told(path)
    _state.clock_us += us
    arrays = [one.host for one in args if isinstance(one, ndarray)]
    answers = _TOLD[entry](arrays[0].astype(np.float64), float(args[-1]))
    for out, answer in zip(arrays[1:], answers, strict=True):
        out[...] = answer + is_wrong


def _smooth(x, near):
    wide = np.pad(x, ((0, 0), (1, 1)))
    return [near * (wide[:, :-2] + wide[:, 2:]) + (1 - 2 * near) * x]


def _heat(t, rate):
    inside = (slice(1, -1),) * 3
    new = t.copy()
    for axis in range(3):
        new[inside] += (
            rate
            * np.diff(t, 2, axis)[
                tuple(slice(None) if one == axis else slice(1, -1) for one in range(3))
            ]
        )
    return [new]


def _top_k(scores, _):
    powers = np.exp(scores)
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :8]
    return [np.take_along_axis(powers, ids, 1) / powers.sum(axis=1, keepdims=True), ids]


def _copy_cache(entry, args):
    """A preparation: k and v into buffers of their own. Slow, so that it shows in a time."""
    k, v, k_copy, v_copy = args
    _state.clock_us += 1000.0
    k_copy.host[...] = k.host
    v_copy.host[...] = v.host


_TOLD = {"smooth": _smooth, "heat": _heat, "top_k": _top_k}
_SPLIT = {"decode_r04": decode_pieces, "merge_pieces": merge_pieces}
_KERNELS = {
    **dict.fromkeys(("fill_normal", "fill_normal_bf16", "fill_normal_fp32"), _fill),
    "fingerprint": _fingerprint,
    "clear_counters": _clear,
    "split_merge": _split_merge,
    "read_sweep": _read_sweep,
    "copy_cache": _copy_cache,
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "softmax": _softmax,
    "empty_launch": lambda entry, args: None,
}


class _Pool:
    def free_all_blocks(self):
        pass


def get_default_memory_pool():
    return _Pool()
