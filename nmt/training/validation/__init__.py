"""Validation of the model in training on a held-out set."""

from __future__ import annotations

from nmt.training.validation.validation import Validation as Validation
