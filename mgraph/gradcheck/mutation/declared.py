"""Mutants that no witness can tell from the rule, although their numbers may differ, and why."""

from __future__ import annotations

from collections.abc import Mapping

from ...node import NaryNodeOp


def unreached(function: str) -> str:
    """The key of a reason for all changes to a function in lines that no case reaches."""
    return f"{function}: no case comes here"


_KERNEL = "runs for 16-bit numbers on CUDA only, where the kernel's own rule gives the gradients"
_NO_DROPOUT = "inherited; there is no dropout here"
_NO_BATCHES = "for batches that broadcast; here there are none, or of one size"
_NO_MATRICES = "for products of two matrices, which the cases of dot judge"
_NARROW = "for bfloat16, in which mutants are not computed"
_NO_ELEMENTS = "for an axis without elements, where there is no gradient that could be wrong"
_HALF = "for float16, in which mutants are not computed"
_SHIFT = "the mean takes away what is subtracted from all; it is about digits"
_ROUNDED = "no share is more than 1 but by rounding"
_INFINITE = "differs only where a number is +inf, and the value NaN"
_ATTENTION = "DotProductAttentionNodeOp"
_DROPPED = "by_weights * accumulable(masks[-1])"
_TOP = "jnp.where(weights < largest(weights, -1), -jnp.inf, by_weights)"
_MOST = "jnp.max(top, -1, keepdims=True, initial=-jnp.inf)"
_SHIFTS = (
    f"_from_that_of_largest(weights, {_DROPPED}) -> {_DROPPED}",
    f"_from_that_of_largest(weights, {_DROPPED}) -> _from_that_of_largest(by_weights, {_DROPPED})",
    f"{_TOP} -> by_weights",
    f"{_TOP} -> jnp.where(weights < largest(weights, -1), by_weights, -jnp.inf)",
    "weights < largest(weights, -1) -> weights > largest(weights, -1)",
    "largest(weights, -1) -> weights",
    "largest(weights, -1) -> -1",
    "-1 -> -2",
    "-1 -> -0",
    f"{_MOST} -> -1",
    *(f"{_MOST} -> {_MOST.replace('top', other)}" for other in ("by_weights", "weights")),
)
"""Changes to what attention with dropout subtracts from all slopes of a row."""
_SCALED_LAST = unreached("ProductNodeOp.product_gradients")
_BFLOAT16 = "_bfloat16_matmul", "_copy_by_blocks"
_ONE_MATRIX = {
    **{unreached(function): _NO_BATCHES for function in ("matmul", "_matmul_of_batch_copy")},
    **{unreached(function): _NARROW for function in _BFLOAT16},
}
_MANY_MATRICES = {
    unreached(function): _NO_MATRICES
    for function in ("matmul_of_columns", "_matmul_of_copy", "_transposed_matmul", *_BFLOAT16)
}

_DECLARED: Mapping[str, Mapping[str, str]] = {
    "DotProductAttentionNodeOp": {
        **{
            unreached(f"{_ATTENTION}.{name}"): _KERNEL
            for name in ("_by_kernel", "_flash_gradients", "_flash_with_pull", "_flash")
        },
        **dict.fromkeys(_SHIFTS, _SHIFT),
    },
    "CachedAttentionNodeOp": {
        unreached(name): _NO_DROPOUT
        for name in (
            *(f"{_ATTENTION}.{method}" for method in ("_mask_gradients", "_slopes", "_weights")),
            "_from_that_of_largest",
        )
    },
    "DotNodeOp": {**_ONE_MATRIX, _SCALED_LAST: _HALF},
    "AffineNodeOp": {**_ONE_MATRIX, _SCALED_LAST: _HALF},
    "DotBatchedLegacyNodeOp": {
        unreached("matmul"): _NO_BATCHES,
        _SCALED_LAST: _HALF,
        **_MANY_MATRICES,
    },
    "DotBatchedNodeOp": {
        **_MANY_MATRICES,
        _SCALED_LAST: _HALF,
        "kept_apart(a.mT) -> a.mT": "the same numbers, where XLA has such a product",
    },
    "SoftmaxCrossEntropyNodeOp": {"x == -jnp.inf -> distance == -jnp.inf": _INFINITE},
    "AffineCrossEntropyNodeOp": {
        "jnp.minimum(logits - lse, 0) -> logits - lse": _ROUNDED,
        "jnp.minimum(logits - lse, 0) -> jnp.minimum(logits - lse, 1)": _ROUNDED,
    },
    "LogSumExpNodeOp": {unreached("largest"): _NO_ELEMENTS},
    "LogCumSumExpNodeOp": {"-jnp.inf -> jnp.inf": _INFINITE},
}
"""By the name of the operator: reasons, for a change as ``before -> after``, or for all changes to a function
in lines that no case reaches."""


def declared_for(cls: type[NaryNodeOp]) -> Mapping[str, str]:
    """The reasons for an operator of mgraph, and those that the class gives as ``equivalent_mutants``."""
    return {**_DECLARED.get(cls.__name__, {}), **cls.equivalent_mutants}
