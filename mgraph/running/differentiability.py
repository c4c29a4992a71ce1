"""Nodes that JAX cannot differentiate, such as a ``while_loop``; JAX finds them only when it traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax

from ..errors import GradientError, MGraphError, told
from ..node import Node
from ..places import place
from ..recording import describe
from ..rules import row_gradients
from ..specs import is_real, is_wide


@contextmanager
def naming_failures(nodes: Sequence[Node], rule_set: str) -> Iterator[None]:
    """``GradientError`` about the first node that JAX fails to differentiate, in place of JAX's error."""
    try:
        yield
    except MGraphError:
        raise
    except Exception as e:
        for node in nodes:
            if node.children and node.trainable and (why := _failure_of_jax(node, rule_set)):
                raise GradientError(
                    f"{type(node).__name__} ({node.type}): JAX has no gradient of it: {why}"
                    f"\n  children: {describe(node.children)}\n  the node was made at {place(node.where)}"
                ) from e
        raise


def _failure_of_jax(node: Node, rule_set: str) -> str:
    """What JAX raises when it differentiates a node by itself; empty if nothing, or if a rule does it."""
    operator = node.operator
    if not operator.composite and rule_set != "jax":
        return ""
    specs = [node.spec, *(child.spec for child in node.children)]
    structs = [tuple(s.struct for s in x) if isinstance(x, tuple) else x.struct for x in specs]
    trained = tuple(child.trainable for child in node.children)

    def gradients(value: Any, *values: Any) -> Any:
        adjoint = jax.tree.map(lambda v: v if is_real(v) else None, value)
        return row_gradients(operator, rule_set, trained, adjoint, value, values)

    try:
        with jax.enable_x64(any(map(is_wide, specs))):
            jax.eval_shape(gradients, *structs)
    except Exception as e:
        return told(e)
    return ""
