"""From a failure to the smallest one of its kind, printed as a test."""

from __future__ import annotations

from .evaluation import gradients_at as gradients_at
from .smallest import SmallestFailure as SmallestFailure
from .smallest import smallest_failure as smallest_failure
