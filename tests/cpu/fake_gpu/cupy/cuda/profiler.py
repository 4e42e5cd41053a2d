"""The range that a profiler watches; launches within it go to the file ``FAKE_PROFILE_LOG``."""

from ._state import state as _state


def start():
    assert not _state.watched
    _state.watched = True


def stop():
    assert _state.watched
    _state.watched = False
