"""The witnesses: a function of arrays, in float64, with gradients by rules, by JAX and by differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..specs import is_real

_ELEMENTWISE = 48
"""Inputs up to this many elements are moved one element at a time, larger ones along random directions."""
_DIRECTIONS = 12
_STEP = 2e-4
"""Step of the five-point difference, relative to the size of the input; its error goes as step**4."""

_SMALL = 2000
"""Elements of inputs up to which compiling takes longer than running."""

Point = list[jax.Array]
Values = Callable[[Point, str, int | None], Any]
"""The outputs at a point, as a tree of arrays, by a rule set, and without a gradient by the input of one
number, if there is one."""
Differences = dict[str, float]


class Problem:
    """A function of some arrays at a point. Its outputs are contracted with a random adjoint."""

    def __init__(self, values: Values, point: Sequence[Any], seed: int) -> None:
        self._values = values
        # Not the draws that a case's values are made of: for some functions they give no gradient at all.
        self._random = np.random.default_rng((seed, 1))
        self._point = [jnp.asarray(p) for p in point]
        shapes = jax.eval_shape(lambda v: self._values(v, "jax", None), self._point)
        self._adjoint = jax.tree.map(self._random_like, shapes)

    def first_order(self, rule_set: str) -> list[Differences]:
        """For each input the differences to JAX and to finite differences, all by one program."""
        directions = [self._directions(math.prod(p.shape)) for p in self._point]

        def witnesses(point: Point, directions: list[jax.Array]) -> tuple[Any, ...]:
            by_rule = self._gradient(rule_set)(point)
            by_jax = self._gradient("jax")(point)
            measured = [self._slopes(point, i, along) for i, along in enumerate(directions)]
            expected = [along @ g.reshape(-1) for along, g in zip(directions, by_rule, strict=True)]
            return by_rule, by_jax, measured, expected, self._magnitude(point)

        by_rule, by_jax, measured, slopes, magnitude = self._run(witnesses, self._point, directions)
        scales = _scales(by_jax, magnitude)
        return [
            {"jax": relative(rule, jaxs, scale), "differences": relative(slope, difference, scale)}
            for rule, jaxs, slope, difference, scale in zip(
                by_rule, by_jax, slopes, measured, scales, strict=True
            )
        ]

    def second_order(self, rule_set: str) -> list[Differences]:
        """For each input the difference of second derivatives, reverse over reverse, rule to JAX.

        A square of the output is added to what is differentiated, so that the rule is differentiated by
        the adjoint too.
        """
        directions = [self._random_like(p) for p in self._point]

        def curvature(point: Point, rule_set: str) -> tuple[Any, Any]:
            gradient = jax.grad(lambda p: self._loss(p, rule_set, curved=True))

            def along(point: Point) -> tuple[jax.Array, jax.Array]:
                terms = [g * d for g, d in zip(gradient(point), directions, strict=True)]
                return _total(map(jnp.sum, terms)), _total(jnp.sum(jnp.abs(t)) for t in terms)

            return jax.grad(along, has_aux=True)(point)

        def witnesses(point: Point) -> tuple[Any, Any]:
            return curvature(point, rule_set), curvature(point, "jax")

        (found, _), (expected, magnitude) = self._run(witnesses, self._point)
        triples = zip(found, expected, _scales(expected, magnitude), strict=True)
        return [{"second": relative(f, e, scale)} for f, e, scale in triples]

    def transformed(self, rule_set: str) -> list[Differences]:
        """For each input the differences between the gradient and the same one over a batch, in a loop,
        recomputed, and with other inputs frozen."""
        gradient = self._gradient(rule_set)
        near = [0.999 * p for p in self._point]
        positions = range(len(self._point))

        def witnesses(point: Point, near: Point) -> tuple[Any, Any]:
            here, there = gradient(point), gradient(near)
            both = [jnp.stack(pair) for pair in zip(point, near, strict=True)]
            expected = [jnp.stack(pair) for pair in zip(here, there, strict=True)]
            remat = jax.grad(jax.checkpoint(lambda p: self._loss(p, rule_set)))
            return (here, expected, self._magnitude(point)), {
                "vmap": jax.vmap(gradient)(both),
                "scan": jax.grad(lambda b: self._in_a_loop(b, rule_set))(both),
                "remat": remat(point),
                "frozen": [self._gradient(rule_set, frozen=k)(point) for k in positions],
            }

        (here, expected, magnitude), found = self._run(witnesses, self._point, near)
        scales = _scales(here, magnitude)
        return [
            {
                "vmap": relative(found["vmap"][i], expected[i], scales[i]),
                "scan": relative(found["scan"][i], expected[i], scales[i]),
                "remat": relative(found["remat"][i], here[i], scales[i]),
                "frozen": max(
                    relative(found["frozen"][k][i], 0 * here[i] if i == k else here[i], scales[i])
                    for k in positions
                ),
            }
            for i in positions
        ]

    def compiled(self, rule_set: str) -> list[Differences]:
        """For each input the difference between the compiled gradient and the same one not compiled."""
        gradient = self._gradient(rule_set)

        def witnesses(point: Point) -> tuple[Point, jax.Array]:
            return gradient(point), self._magnitude(point)

        found, magnitude = self._run(witnesses, self._point)
        triples = zip(gradient(self._point), found, _scales(found, magnitude), strict=True)
        return [{"jit": relative(eager, here, scale)} for eager, here, scale in triples]

    def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(*args)``, compiled; for small inputs in the way that compiles fastest."""
        small = sum(p.size for p in self._point) < _SMALL
        level: dict[str, str | bool] = {"xla_backend_optimization_level": "0"} if small else {}
        return jax.jit(function).lower(*args).compile(compiler_options=level)(*args)

    # -- the function itself

    def _loss(self, point: Point, rule_set: str, *, frozen: int | None = None, curved: bool = False) -> Any:
        terms = self._terms(self._values(point, rule_set, frozen))
        return _total(jnp.sum(v * (a + 0.5 * v if curved else a)) for v, a in terms)

    def _magnitude(self, point: Point) -> jax.Array:
        """The sum of the absolute values of the terms of the loss."""
        return _total(jnp.sum(jnp.abs(v * a)) for v, a in self._terms(self._values(point, "jax", None)))

    def _terms(self, output: Any) -> list[tuple[Any, Any]]:
        """Pairs of an output and its adjoint."""
        adjoints = jax.tree.leaves(self._adjoint, is_leaf=lambda a: a is None)
        pairs = zip(jax.tree.leaves(output), adjoints, strict=True)
        return [(v, a) for v, a in pairs if a is not None]

    def _gradient(self, rule_set: str, frozen: int | None = None) -> Callable[[Point], Point]:
        return jax.grad(lambda point: self._loss(point, rule_set, frozen=frozen))

    def _in_a_loop(self, points: Point, rule_set: str) -> jax.Array:
        def step(total: jax.Array, point: Point) -> tuple[jax.Array, None]:
            return total + self._loss(point, rule_set), None

        return jax.lax.scan(step, jnp.zeros(()), points)[0]

    def _random_like(self, spec: Any) -> Any:
        if not is_real(spec):
            return None
        return jnp.asarray(self._random.standard_normal(spec.shape) + 0.5)

    # -- differences

    def _directions(self, size: int) -> jax.Array:
        """Directions in which an input of ``size`` elements is moved, one per row."""
        if size <= _ELEMENTWISE:
            return jnp.eye(size)
        return jnp.asarray(self._random.standard_normal((_DIRECTIONS, size)) / math.sqrt(size))

    def _slopes(self, point: Point, i: int, directions: jax.Array) -> jax.Array:
        """Five-point differences of the loss along directions of the i-th input."""
        step = _STEP * jnp.maximum(1.0, jnp.max(jnp.abs(point[i]), initial=0.0))
        weights = jnp.array([1.0, -8.0, 8.0, -1.0]) / (12 * step)
        places = jnp.array([-2.0, -1.0, 1.0, 2.0]) * step

        def moved(direction: jax.Array, t: jax.Array) -> jax.Array:
            shifted = list(point)
            shifted[i] = point[i] + t * direction.reshape(point[i].shape)
            return self._loss(shifted, "jax")

        def slope(direction: jax.Array) -> jax.Array:
            return weights @ jax.lax.map(lambda t: moved(direction, t), places)

        return jax.lax.map(slope, directions)


def _total(terms: Any) -> Any:
    return sum(terms, start=jnp.zeros(()))


def relative(found: Any, expected: Any, scale: float) -> float:
    """Largest difference over ``scale``; infinite where a value is not finite."""
    found, expected = np.asarray(found), np.asarray(expected)
    if not (np.isfinite(found).all() and np.isfinite(expected).all()):
        return math.inf
    difference = float(np.max(np.abs(found - expected), initial=0.0))
    return difference / scale if difference else 0.0


def _scales(gradients: Sequence[Any], magnitude: Any) -> list[float]:
    """What differences of each gradient are relative to: its largest element, but no less than what rounding
    in the others, or in the terms of the output (whose sum of absolute values is ``magnitude``), can blur.
    """
    sizes = [float(np.max(np.abs(np.asarray(g)), initial=0.0)) for g in gradients]
    least = max(1e-4 * max(sizes), 1e-5 * float(magnitude))
    return [max(size, least) for size in sizes]
