"""The lab behind the decode-attention field guide.

Seven rooms, each of which may use only the rooms before it:
``problem``, ``toolchain``, ``record``, ``predict``, ``measure``, ``optimize``, ``widgets``.
"""

__version__ = "0.1.0"
