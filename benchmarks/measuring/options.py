"""Types for the options of benchmarks."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """A number of at least 1; else an error that names the option."""
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return number


def natural(text: str) -> int:
    """A number of at least 0."""
    return 0 if text == "0" else positive(text)
