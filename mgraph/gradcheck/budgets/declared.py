"""Rules that are kept although JAX's gradients have fewer roundings somewhere, and why."""

from __future__ import annotations

from collections.abc import Mapping

from ...node import NaryNodeOp
from .report import WORSE_THAN_JAX

_DECLARED: Mapping[str, Mapping[str, str]] = {
    "AffineCrossEntropyNodeOp": {
        WORSE_THAN_JAX: "it keeps lse, beside which the logarithm of a sum vanishes for logits above 1e7: "
        "where the largest two of such are equal, each has the share 1; JAX stores all logits"
    },
    "DotProductAttentionNodeOp": {
        WORSE_THAN_JAX: "where a weight is nearly 1 both lose its small slope, as softmax does, and JAX by "
        "chance less; to keep it without dropout, too, would make attention up to a quarter slower"
    },
}
"""Reasons, by the name of the operator and the verdict."""


def declared_for(cls: type[NaryNodeOp]) -> Mapping[str, str]:
    """The reasons for an operator of mgraph, and those that the class gives as ``accepted_budgets``."""
    return {**_DECLARED.get(cls.__name__, {}), **cls.accepted_budgets}
