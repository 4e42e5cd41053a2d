"""What a kernel of the fake device computed: replays of one call ask for the same many times."""

import hashlib

import numpy as np

_answers = {}
MOST_ANSWERS = 64


def answer_once(kind, inputs, work):
    """What ``work`` computes of these bytes; replays of a call ask for the same again and again."""
    digest = hashlib.blake2b(repr(kind).encode())
    for one in inputs:
        digest.update(np.ascontiguousarray(one).view(np.uint8))
    key = digest.digest()
    if key not in _answers:
        while len(_answers) >= MOST_ANSWERS:
            del _answers[next(iter(_answers))]
        _answers[key] = work()
    return _answers[key]
