"""Prefill attention: many queries a sequence, all keys at hand."""

from .prefill import Prefill
