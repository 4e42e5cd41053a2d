"""A matrix product: ``out = A B^T``, both factors with the summed axis last."""

from .gemm import GEMM_DISTRIBUTIONS, Gemm
