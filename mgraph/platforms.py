"""What is done in one way on one platform, or with one version of JAX, and in another way elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

import jax
from jaxlib.version import __version__ as _JAXLIB

from .errors import DeviceError

T = TypeVar("T")

WRONG_JAXLIB = "0.10.2"
"""Its compiler for CPUs computes wrong values. Source: issues 39103, 40412 and 39257 of jax-ml/jax."""
OVERRIDE = "MGRAPH_ALLOW_WRONG_JAXLIB"
"""The environment variable that lets it be used all the same."""

Options = Mapping[str, str | bool]

_UNWANTED_ON_CPU = "cse_barrier_expander", "small-while-loop-hoisting"
_WISHES: dict[str, Options] = {"cpu": {"xla_disable_hlo_passes": ",".join(_UNWANTED_ON_CPU)}}


def compiler_wishes(platform: str) -> Options:
    """XLA's options that make programs for a platform faster, in place of what ``XLA_FLAGS`` says of them.

    A compiler may refuse them; a program is then compiled without. For CPUs XLA drops barriers before it
    fuses, and would fuse what ``kept_apart`` keeps apart. Where barriers stay, small loops must not become
    one kernel, which cannot hold a barrier.
    """
    return _WISHES.get(platform, {})


def kept_apart(x: T) -> T:
    """``x``, which XLA for CPUs computes by itself and not as a part of what uses it.

    There a value that several kernels read may become a part of each, and a transposed copy a part of the
    product that it is to speed up. Other platforms fuse by better rules.
    """
    result: T = jax.lax.platform_dependent(x, cpu=jax.lax.optimization_barrier, default=lambda x: x)
    return result


def check_jaxlib(version: str = _JAXLIB, environment: Mapping[str, str] = os.environ) -> None:
    """``DeviceError`` if programs for CPUs would be compiled by a jaxlib that is known to be wrong there."""
    if version != WRONG_JAXLIB or environment.get(OVERRIDE) or jax.default_backend() != "cpu":
        return
    raise DeviceError(
        f"jaxlib {version} computes wrong values on CPUs (jax-ml/jax issue 39103): install 0.10.1 or 0.11 or "
        f"newer; {OVERRIDE}=1 runs it all the same"
    )
