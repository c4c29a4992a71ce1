"""Differences between platforms and versions of JAX."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxlib.version import __version__ as _JAXLIB

from .errors import DeviceError, first_line

T = TypeVar("T")

log = logging.getLogger("mgraph.platforms")

WRONG_JAXLIB = "0.10.2"
"""Its compiler for CPUs miscompiles programs. Source: issues 39103, 40412 and 39257 of jax-ml/jax."""
OVERRIDE = "MGRAPH_ALLOW_WRONG_JAXLIB"
"""The environment variable that allows it anyway."""

Options = dict[str, str | bool]

_UNWANTED_ON_CPU = "cse_barrier_expander", "small-while-loop-hoisting"
_WISHES: dict[str, Options] = {
    "cpu": {
        "xla_disable_hlo_passes": ",".join(_UNWANTED_ON_CPU),
        "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
    }
}


def compiler_wishes(platform: str) -> Options:
    """XLA's options that make programs for a platform faster or smaller; they override ``XLA_FLAGS``.

    On CPUs XLA drops barriers before fusion and would fuse what ``kept_apart`` separates. If barriers are
    kept, small loops must not become one kernel, because a kernel cannot contain a barrier. By default XLA
    runs kernels in parallel, and keeps more values for that: an update of a transformer then needs a fifth
    more memory, and is no faster.
    """
    return dict(_WISHES.get(platform, {}))


def as_wished(platform: str, compile: Callable[[Options], T]) -> T:
    """``compile(options)`` with our options for a platform, or with none if the compiler rejects them."""
    wishes = compiler_wishes(platform)
    try:
        return compile(wishes)
    except jax.errors.JaxRuntimeError as error:
        if not wishes:
            raise
        log.debug("compiled without %s: %s", wishes, first_line(error))
        return compile({})


def kept_apart(x: T) -> T:
    """``x``, which XLA on CPUs then does not fuse into its users. Otherwise it may fuse a value into each of
    the kernels that read it, and a transposed copy into the product that it should speed up. Other platforms
    have better rules for fusion.
    """
    result: T = jax.lax.platform_dependent(x, cpu=jax.lax.optimization_barrier, default=lambda x: x)
    return result


def on_cuda_by(kernel: Callable[..., T], plain: Callable[..., T], *args: jax.Array) -> T:
    """``plain(*args)``; in programs for CUDA ``kernel(*args)``, if JAX has the kernel for these arguments.

    Derivatives and ``jax.vmap`` use ``plain`` everywhere: a kernel may have no derivative of its own, and
    cuDNN's attention fails on a batch of masks that the heads share.
    """
    if not _exists(kernel, *args):
        return plain(*args)

    @jax.custom_batching.custom_vmap
    def chosen(*args: jax.Array) -> Any:
        return jax.lax.platform_dependent(*args, cuda=kernel, default=plain)

    @chosen.def_vmap
    def _(size: int, batched: list[bool], *args: jax.Array) -> tuple[Any, Any]:
        results = jax.vmap(plain, [0 if flag else None for flag in batched])(*args)
        return results, jax.tree.map(lambda _: True, results)

    differentiable = jax.custom_jvp(chosen)

    @differentiable.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return jax.jvp(plain, primals, tangents)

    result: T = differentiable(*args)
    return result


def _exists(kernel: Callable[..., Any], *args: jax.Array) -> bool:
    """Whether JAX can trace the kernel: that fails without cuDNN or a suitable GPU, and for shapes and types
    that the kernel does not support."""
    try:
        jax.eval_shape(kernel, *args)
    except (RuntimeError, NotImplementedError, ValueError):
        return False
    return True


def flash_attention(
    query: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array | None, scale: float
) -> jax.Array:
    """``softmax(scale query keys^T) values`` over the places where a mask is true, by cuDNN's kernel, which
    never stores the weights.

    ``query (batch, heads, time, depth)``, ``keys`` and ``values (batch, heads, places, depth)`` are of 16-bit
    types; the mask has up to four axes and broadcasts to ``(batch, heads, time, places)``. It is not a bias
    to add, because cuDNN would compute the bias's gradient, which takes longer than all the rest. JAX's own
    ``ValueError``, ``NotImplementedError`` or ``RuntimeError`` if the kernel, or cuDNN, is missing.
    """
    if mask is not None:
        lead = (1,) * (4 - mask.ndim) + mask.shape[:-2]
        mask = jnp.broadcast_to(mask, (*lead[:2], query.shape[-2], keys.shape[-2]))
    q, k, v = (x.swapaxes(1, 2) for x in (query, keys, values))
    y = jax.nn.dot_product_attention(q, k, v, mask=mask, scale=scale, implementation="cudnn")
    return y.swapaxes(1, 2)


def check_jaxlib(version: str = _JAXLIB, environment: Mapping[str, str] = os.environ) -> None:
    """``DeviceError`` if a jaxlib that is known to be wrong on CPUs would compile programs for a CPU."""
    if version != WRONG_JAXLIB or environment.get(OVERRIDE) or jax.default_backend() != "cpu":
        return
    raise DeviceError(
        f"jaxlib {version} computes wrong values on CPUs (jax-ml/jax issue 39103): install 0.10.1 or 0.11 or "
        f"newer; {OVERRIDE}=1 runs it anyway"
    )
