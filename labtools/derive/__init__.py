"""From the limits of a GPU to a kernel: one engine, and of each operation its facts as data."""

from .decode.derivation import Design
from .parts import AnyDesign, DesignStep, Figure, Rejected
from .registry import DERIVABLE, derive, find_derivable, space_of
