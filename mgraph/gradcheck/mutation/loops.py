"""``ending_loops``: an end to loops, because a mutant of a rule may loop forever."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from ...errors import GradientError

_ROUNDS = 1_000
"""No case is so large that a correct rule needs more."""


@contextmanager
def ending_loops() -> Iterator[None]:
    """Inside, an uncompiled ``jax.lax.while_loop`` raises ``GradientError`` instead of running forever."""
    own = jax.lax.while_loop

    def ending(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
        rounds = itertools.count()

        def goes_on(state: Any) -> Any:
            if next(rounds) > _ROUNDS:
                raise GradientError(f"a loop has not ended after {_ROUNDS:,} rounds")
            return cond_fun(state)

        return own(goes_on, body_fun, init_val)

    jax.lax.while_loop = ending
    try:
        yield
    finally:
        jax.lax.while_loop = own
