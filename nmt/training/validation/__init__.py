"""Validation: what the model in training makes of sentences that it is not trained on."""

from __future__ import annotations

from nmt.training.validation.validation import Validation as Validation
