"""Places in the user's code: where a node was made, for messages."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax
import numpy as np

from .errors import first_line

_FOREIGN = (
    *(str(Path(file).parent / "_")[:-1] for file in (__file__, jax.__file__, np.__file__)),
    *(str(module.__file__) for module in (contextlib, copy, dataclasses, functools)),
)
"""Files without user code: this package, JAX and numpy, and modules that call them back."""

Place = tuple[CodeType, int]
"""Code and instruction; the line is looked up only when a message needs it."""


def user_frame(skipped: int = 1) -> Place | None:
    """Code and instruction of the nearest caller outside this package, JAX and numpy; the nearest ``skipped``
    frames are known to be inside them."""
    frame: FrameType | None = sys._getframe(skipped)
    while frame is not None and frame.f_code.co_filename.startswith(_FOREIGN):
        frame = frame.f_back
    return (frame.f_code, frame.f_lasti) if frame is not None else None


def place(where: Place | None) -> str:
    """``file:line`` of a recorded place."""
    if where is None:
        return "an unknown place"
    code, instruction = where
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
    return f"{code.co_filename}:{line}"


def rule_place(rule: Callable[..., Any]) -> str:
    """The line of a message that says where a rule is written; empty if it is not written in Python."""
    code = getattr(inspect.unwrap(rule), "__code__", None)
    return f"\n  rule at {place((code, 0))}" if code else ""


def raised_at(error: BaseException) -> str | None:
    """``file:line`` of the last line of the user's code that an exception passed through."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_FOREIGN):
            found = traceback
        traceback = traceback.tb_next
    return f"{found.tb_frame.f_code.co_filename}:{found.tb_lineno}" if found else None


def place_of(error: BaseException) -> str:
    """``raised_at``; without such a line, the user's line that is running now."""
    return raised_at(error) or place(user_frame())


def asks_for_numbers(error: BaseException) -> bool:
    """Whether JAX raised ``error`` because a rule asks for numbers that are unknown while it is traced."""
    if isinstance(error, jax.errors.JAXTypeError | jax.errors.JAXIndexError):
        return True
    # raised by range(x) if x is traced and a float
    return isinstance(error, TypeError) and str(error).startswith("Only integer scalar arrays")


def failed(rule: str, error: Exception, runtime_fields: Sequence[str] = ()) -> str:
    """The message about an exception that a user's rule, ``forward_ops`` or ``backward_ops``, raised.

    ``runtime_fields`` are the fields whose numbers the rule does not know either.
    """
    kind = type(error).__name__
    if asks_for_numbers(error):
        fields = f", not the numbers of runtime_fields {list(runtime_fields)}" if runtime_fields else ""
        return (
            f"{rule} asks for numbers, but JAX traces it and knows shapes and types only{fields}: use "
            "jax.numpy instead of numpy, and jnp.where or jax.lax.cond instead of if "
            f"({kind} at {place_of(error)})"
        )
    return f"{rule} failed: {kind}: {first_line(error)} ({place_of(error)})"


def here() -> str:
    """The end of a message: the user's line that is running now."""
    return f"\n  at {place(user_frame())}"
