"""Nodes of JAX's primitives, where Marian has no operator with the same value and gradient."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core

from ..node import NaryNodeOp, Node, NodeMeta
from ..ops.structure import get

Params = tuple[tuple[str, Any], ...]

ELEMENTWISE = frozenset(
    """
    abs acos acosh and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clz cos cosh digamma div
    eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma igamma_grad_a igammac integer_pow is_finite
    le le_to lgamma log log1p log2 logistic lt lt_to max min ne nextafter not or polygamma population_count
    pow regularized_incomplete_beta rem round rsqrt select_n shift_left shift_right_arithmetic
    shift_right_logical sign sin sinh sqrt square tan tanh xor zeta
    """.split()
)
"""Primitives whose nodes broadcast their children, like all elementwise operators."""

OTHERS = frozenset(
    """
    argmax argmin broadcast_in_dim clamp conv_general_dilated cumlogsumexp cummax cummin
    cumprod dot_general dynamic_slice dynamic_update_slice gather pad polynomial reduce_and reduce_max
    reduce_min reduce_or reduce_precision reduce_prod reduce_window_max reduce_window_min reduce_window_sum
    reduce_xor rev scatter scatter-add scatter-max scatter-min scatter-mul select_and_gather_add
    select_and_scatter_add sort top_k
    """.split()
)
"""Primitives whose nodes have children of the shapes that JAX requires."""

_SCATTERS = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-max": lax.scatter_max,
    "scatter-min": lax.scatter_min,
    "scatter-mul": lax.scatter_mul,
}


IMPLIED = ("update_jaxpr", "update_consts")
"""Parameters of primitives that the other parameters and the children imply."""
TYPED = "call_hi_primitive"
"""The primitive whose parameter fixes the result's type for its operands, yet equals that for others."""
OPERANDS = "operands"
"""The types of such operands among a node's ``params``, for a node of other operands to be unequal."""


class PrimitiveNodeOp(NaryNodeOp):
    """Base of the nodes of primitives: the value is the primitive's, ``params`` are its parameters.

    There is a subclass for each primitive, made on first use; its ``type`` is the primitive's name. This
    base serves values without a gradient: integers, truth values.
    """

    type = "primitive"
    differentiable = False
    mixed_types = True
    primitive: ClassVar[Any] = None
    params: Params = ()

    def makes_wide(self) -> bool:
        return any(_is_wide_type(value) for _, value in self.params)

    def forward_ops(self, *values: Any) -> Any:
        if self.primitive.name in ELEMENTWISE:
            values = tuple(jnp.broadcast_arrays(*values))
        result = applied(self.primitive, values, {k: v for k, v in self.params if k != OPERANDS})
        return tuple(result) if self.primitive.multiple_results else result


def applied(primitive: core.Primitive, values: Sequence[Any], params: Mapping[str, Any]) -> Any:
    """The result of a primitive for arrays of any element types; ``params`` lack those in ``IMPLIED``."""
    scatter = _SCATTERS.get(primitive.name)
    return scatter(*values, **params) if scatter else primitive.bind(*values, **params)


class DifferentiablePrimitiveNodeOp(PrimitiveNodeOp):
    """Base of the nodes of primitives with a gradient, which is JAX's under any rule set."""

    composite = True


@functools.cache
def _class_of(primitive: core.Primitive, base: type[PrimitiveNodeOp]) -> Any:
    """The node class of a primitive."""
    words = primitive.name.replace("-", "_").split("_")
    name = "".join(word.capitalize() for word in words) + "PrimitiveNodeOp"
    return NodeMeta(name, (base,), {"type": primitive.name, "primitive": primitive, "__module__": __name__})


def apply_primitive(
    primitive: core.Primitive, children: list[Node], params: dict[str, Any], base: type[PrimitiveNodeOp]
) -> list[Node]:
    """The results of a primitive on nodes, as nodes."""
    typed = {OPERANDS: tuple(child.spec for child in children)} if primitive.name == TYPED else {}
    fields = tuple(sorted({**_plain(children, params), **typed}.items()))
    return parts(_class_of(primitive, base)(*children, params=fields))


def parts(made: Node) -> list[Node]:
    """The values of a node, each as a node."""
    return [get(made, i) for i in range(len(made.spec))] if isinstance(made.spec, tuple) else [made]


def _plain(children: list[Node], params: dict[str, Any]) -> dict[str, Any]:
    """The parameters without those that the children imply."""
    plain = {k: v for k, v in params.items() if k not in IMPLIED}
    preferred = plain.get("preferred_element_type")
    if preferred is not None and preferred == children[0].value_type.dtype:
        plain["preferred_element_type"] = None
    return plain


def _is_wide_type(value: Any) -> bool:
    return isinstance(value, np.dtype) and value.itemsize == 8 and value.kind in "fiu"
