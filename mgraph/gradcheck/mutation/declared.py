"""Mutants that no witness can tell from the rule, although their numbers may differ, and why."""

from __future__ import annotations

from collections.abc import Mapping

from ...node import NaryNodeOp


def unreached(function: str) -> str:
    """The key of a reason for all changes of a function in lines that no case reaches."""
    return f"{function}: no case comes here"


_KERNEL = "runs for 16-bit numbers on CUDA only, where the kernel's own rule gives the gradients"
_NO_DROPOUT = "inherited; there is no dropout here"
_NO_BATCHES = "for batches that broadcast; here there are none, or of one size"
_NO_MATRICES = "for products of two matrices, which the cases of dot judge"
_NO_ELEMENTS = "for an axis without elements, where there is no gradient that could be wrong"
_INFINITE = "differs only where a number is +inf, and the value NaN"
_ATTENTION = "DotProductAttentionNodeOp"

_DECLARED: Mapping[str, Mapping[str, str]] = {
    "DotProductAttentionNodeOp": {
        unreached(f"{_ATTENTION}.{name}"): _KERNEL
        for name in ("_by_kernel", "_flash_gradients", "_flash_with_pull", "_flash")
    },
    "CachedAttentionNodeOp": {
        unreached(f"{_ATTENTION}.{name}"): _NO_DROPOUT for name in ("_mask_gradients", "_slopes", "_weights")
    },
    "DotNodeOp": {unreached("matmul"): _NO_BATCHES, unreached("_op"): _NO_BATCHES},
    "AffineNodeOp": {unreached("matmul"): _NO_BATCHES, unreached("_op"): _NO_BATCHES},
    "DotBatchedLegacyNodeOp": {
        **{unreached(name): _NO_BATCHES for name in ("matmul", "_op")},
        **{unreached(name): _NO_MATRICES for name in ("matmul_of_columns", "_transposed_matmul")},
    },
    "DotBatchedNodeOp": {
        unreached(name): _NO_MATRICES for name in ("matmul_of_columns", "_transposed_matmul")
    },
    "SoftmaxCrossEntropyNodeOp": {"x == -jnp.inf -> distance == -jnp.inf": _INFINITE},
    "LogSumExpNodeOp": {unreached("largest"): _NO_ELEMENTS},
    "LogCumSumExpNodeOp": {"-jnp.inf -> jnp.inf": _INFINITE},
}
"""By the name of the operator: reasons, by changes as ``before -> after``, or for all changes of a function
in lines that no case reaches."""


def declared_for(cls: type[NaryNodeOp]) -> Mapping[str, str]:
    """The reasons for an operator of mgraph, and those that the class gives as ``equivalent_mutants``."""
    return {**_DECLARED.get(cls.__name__, {}), **cls.equivalent_mutants}
