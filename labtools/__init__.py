"""The lab behind the decode-attention field guide.

Rooms, each of which may use only the rooms before it: ``problem``, ``toolchain``, ``record``,
``predict``, ``measure``, ``microbench``, ``optimize``, ``notebook``, ``cli``.
"""

from typing import Any

__version__ = "0.1.0"


def load_ipython_extension(shell: Any) -> None:
    """Give a notebook the cell magics ``%%cuda`` and ``%%solution``: ``%load_ext labtools``."""
    from labtools.notebook.magic import load_ipython_extension as load

    load(shell)
