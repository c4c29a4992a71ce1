"""``Trial``: one case of an operator, on which any function can be tried in place of its rule."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..cases import Case
from ..errors import GraphError
from ..graph import ExpressionGraph
from ..node import NaryNodeOp
from ..operators import make_operator
from ..specs import is_real
from ..structure import Excerpt, is_leaf
from .example import record_case
from .report import TOLERANCES, with_rounding
from .witnesses.agreement import relative, scales
from .witnesses.contraction import Values, adjoint_draws
from .witnesses.five_point import PLACES, STEP, WEIGHTS
from .witnesses.recorded import RecordedFunction, function_of_leaves, wide

Rule = Callable[..., Any]
"""A ``backward_ops``, or a variant of it."""
Gradients = tuple[np.ndarray, ...]
"""One per floating point leaf."""

_DIRECTIONS = 3


class Trial:
    """Gradients of one case by any rule, quickly: nothing is compiled, and the forward is computed once.

    ``arrays`` are the values of the children. With element type ``float64`` everything is computed in it, as
    in ``check_gradients``.
    """

    def __init__(
        self,
        cls: type[NaryNodeOp],
        case: Case,
        arrays: Sequence[np.ndarray],
        element_type: str = "float64",
        seed: int = 0,
    ) -> None:
        graph = ExpressionGraph(seed=seed + 1)
        node, _ = record_case(graph, cls, case, arrays, element_type)
        self.allowed = TOLERANCES
        """The largest difference to each witness that counts as agreement."""
        self._own: Rule = cls.backward_ops
        self._tried: Any = _stand_in(cls)
        tape = node.tape()
        excerpt = _replaced(tape.below([node.id]), cls, self._tried)
        leaves = [tape.nodes[i] for i in excerpt.inputs]
        chosen = [i for i, n in enumerate(leaves) if n.value_type.is_float]
        if not chosen:
            raise GraphError(f"{cls.__name__} {case} has no gradient")
        output, known = excerpt.row_of[node.id], [np.asarray(n.leaf_value()) for n in leaves]
        if element_type == "float64":
            function = RecordedFunction(excerpt, output, chosen, list(map(wide, known)), graph.seed)
            self._values: Values = function
            self.allowed = with_rounding(TOLERANCES, function.widening.rounding)
        else:
            self._values = function_of_leaves(excerpt.structure, output, chosen, known, graph.seed)
        self.point = [jnp.asarray(known[i]) for i in chosen]
        self._random = adjoint_draws(seed)
        self._scales: list[float] = []

    @property
    def values(self) -> Values:
        """The outputs as a function of the leaves, with the rule that is being tried."""
        return self._values

    def _outputs(self, rule_set: str) -> Callable[[list[jax.Array]], list[Any]]:
        def outputs(point: list[jax.Array]) -> list[Any]:
            return [v for v in jax.tree.leaves(self._values(point, rule_set, None)) if is_real(v)]

        return outputs

    @cached_property
    def _reverse(self) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """The outputs, and the pullback, which uses the rule in place at the time of the call."""
        return jax.vjp(self._outputs("rules"), self.point)

    @cached_property
    def adjoints(self) -> list[Any]:
        """Random adjoints of the outputs, in their types."""
        draw = self._random.standard_normal
        return [jnp.asarray(draw(v.shape) + 0.5, v.dtype) for v in self._reverse[0]]

    @property
    def is_finite(self) -> bool:
        """Whether no output is NaN or infinite."""
        return all(bool(jnp.isfinite(v).all()) for v in self._reverse[0])

    def being(self, rule: Rule, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, with ``rule`` in place of the operator's own."""
        own = self._tried.tried
        self._tried.tried = rule
        try:
            return function(*args)
        finally:
            self._tried.tried = own

    def gradients(self, rule: Rule, adjoints: Sequence[Any] | None = None) -> Gradients:
        """The gradients by a rule; it raises what the rule raises."""
        given = self.adjoints if adjoints is None else list(adjoints)
        (found,) = self.being(rule, self._reverse[1], given)
        return tuple(np.asarray(g) for g in found)

    @cached_property
    def own_gradients(self) -> Gradients:
        """The gradients by the operator's own rule."""
        return self.gradients(self._own)

    # -- the witnesses

    @cached_property
    def by_jax(self) -> Gradients:
        """The gradients by JAX's own derivatives."""
        (found,) = jax.vjp(self._outputs("jax"), self.point)[1](self.adjoints)
        gradients = tuple(np.asarray(g) for g in found)
        terms = zip(self._reverse[0], self.adjoints, strict=True)
        magnitude = sum(float(jnp.sum(jnp.abs(v * a))) for v, a in terms)
        self._scales = scales(gradients, magnitude)
        return gradients

    @cached_property
    def _measured(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each leaf, some directions and the slopes of the contracted output along them."""
        outputs = self._outputs("jax")

        def loss(i: int, moved: Any) -> Any:
            point = [moved if k == i else p for k, p in enumerate(self.point)]
            return sum(jnp.sum(v * a) for v, a in zip(outputs(point), self.adjoints, strict=True))

        found = []
        for i, p in enumerate(self.point):
            along = self._random.standard_normal((_DIRECTIONS, p.size)) / max(1.0, math.sqrt(p.size))
            step = STEP * max(1.0, float(jnp.max(jnp.abs(p), initial=0.0)))
            terms = [
                [w * loss(i, p + t * step * d.reshape(p.shape)) for t, w in zip(PLACES, WEIGHTS, strict=True)]
                for d in along
            ]
            found.append((along, np.array([sum(each) for each in terms], float) / step))
        return found

    def first_order(self, gradients: Gradients) -> dict[str, float]:
        """The largest relative differences of gradients to JAX's and to differences."""
        by_jax = self.by_jax
        triples = list(zip(gradients, by_jax, self._scales, strict=True))
        with np.errstate(all="ignore"):  # a mutant's gradient may be anything
            slopes = [along @ g.reshape(-1) for (along, _), g in zip(self._measured, gradients, strict=True)]
        pairs = zip(slopes, self._measured, self._scales, strict=True)
        return {
            "jax": max(relative(g, j, scale) for g, j, scale in triples),
            "differences": max(relative(s, measured, scale) for s, (_, measured), scale in pairs),
        }

    def second_order(self, rule: Rule) -> float:
        """The largest relative difference to JAX's second derivatives with respect to leaves and adjoints."""
        found, expected = self.being(rule, self._curvature, "rules"), self._curvature_by_jax
        scale = max(float(np.max(np.abs(e), initial=0.0)) for e in expected)
        return max(relative(f, e, max(scale, 1e-12)) for f, e in zip(found, expected, strict=True))

    @cached_property
    def _curvature_by_jax(self) -> list[np.ndarray]:
        return self._curvature("jax")

    @cached_property
    def _weights(self) -> list[np.ndarray]:
        return [self._random.standard_normal(p.shape) for p in self.point]

    def _curvature(self, rule_set: str) -> list[np.ndarray]:
        outputs = self._outputs(rule_set)

        def along(point: list[jax.Array], adjoints: list[jax.Array]) -> Any:
            (found,) = jax.vjp(outputs, point)[1](adjoints)
            return sum(jnp.sum(g * w) for g, w in zip(found, self._weights, strict=True))

        return list(map(np.asarray, jax.tree.leaves(jax.grad(along, (0, 1))(self.point, self.adjoints))))

    def same_program(self, rule: Rule) -> bool:
        """Whether a rule gives the program that the operator's own rule gives."""
        return self._program(rule) == self.own_program

    @cached_property
    def own_program(self) -> str:
        """The program that computes the gradients by the operator's own rule."""
        return self._program(self._own)

    def _program(self, rule: Rule) -> str:
        """The program that computes the gradients by a rule, with its constants."""

        def gradients(point: list[jax.Array], adjoints: list[Any]) -> Any:
            return jax.vjp(self._outputs("rules"), point)[1](adjoints)

        given = self.point, self.adjoints
        with jax.disable_jit(False):
            traced = self.being(rule, jax.make_jaxpr(gradients), *given)
        return f"{traced} {[np.asarray(c).tolist() for c in traced.consts]}"


@contextmanager
def elsewhere() -> Iterator[None]:
    """Inside, platform-dependent code takes its default branch: the one for platforms not named."""
    own = jax.lax.platform_dependent

    def default_first(*args: Any, default: Any = None, **branches: Any) -> Any:
        return own(*args, **branches) if default is None else default(*args)

    jax.lax.platform_dependent = default_first
    try:
        yield
    finally:
        jax.lax.platform_dependent = own


@functools.cache
def _stand_in(cls: Any) -> Any:
    """A subclass of an operator whose rule is the attribute ``tried``; all rules that are tried share it."""

    @functools.wraps(cls.backward_ops)  # for messages about a rule that takes other arguments
    def backward_ops(self: Any, *args: Any) -> Any:
        return type(self).tried(self, *args)

    members = {"backward_ops": backward_ops, "tried": cls.backward_ops, "__module__": __name__}
    return type(cls)(cls.__name__, (cls,), members)


def _replaced(excerpt: Excerpt, cls: Any, stand_in: Any) -> Excerpt:
    rows = tuple(
        (make_operator(stand_in, {n: getattr(row[0], n) for n in cls.fields}), *row[1:])
        if not is_leaf(row) and type(row[0]) is cls
        else row
        for row in excerpt.structure.rows
    )
    return replace(excerpt, structure=replace(excerpt.structure, rows=rows))
