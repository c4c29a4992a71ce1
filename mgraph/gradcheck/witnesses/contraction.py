"""A function of arrays at a point, contracted with an adjoint, and the few programs that witnesses run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...arrays import as_array
from ...errors import ShapeError
from ...specs import is_real
from .differences import SAMPLES

_SMALL = 2000
"""With up to this many input elements, compiling takes longer than running."""
_MOST_SAMPLES = 1 << 22
"""The most elements of samples that one run gives, and of lines that it takes."""
_MOST_OUTPUTS = 1 << 12
"""More outputs than this are contracted in this many groups before they are sampled."""
SLOTS = 4
"""How many points and adjoints one run gives gradients for."""

Point = list[jax.Array]
Values = Callable[[Point, str, int | None], Any]
"""The outputs at a point, as a pytree of arrays, by a rule set; the input with the given number, if any, is
frozen."""
Adjoint = list[Any]
"""One array per output; ``None`` for one that is not of a floating point type."""


class Contraction:
    """A function of some arrays at a point. Its outputs are contracted with ``cotangent``, a pytree like the
    outputs, or with random numbers. Each program is compiled once."""

    undefined = False
    """Whether part of the value is NaN or infinite at the point: only the gradient of the rest can be
    judged."""

    def __init__(self, values: Values, point: Sequence[Any], seed: int, cotangent: Any = None) -> None:
        self._values = values
        self.random = adjoint_draws(seed)
        self.point: Point = jax.device_put([np.asarray(p) for p in point])
        outputs = jax.eval_shape(lambda v: self._values(v, "jax", None), self.point)
        self.adjoint: Adjoint = [self.random_like(spec) for spec in jax.tree.leaves(outputs)]
        if cotangent is not None:
            self.adjoint = _checked_adjoint(cotangent, outputs)
        self._left_out: list[Any] = [None] * len(self.adjoint)
        """For each output, where it is taken as zero; ``None`` for nowhere."""
        self._programs: dict[str, Any] = {}
        self._at_once = 0

    def random_like(self, spec: Any) -> Any:
        """Random numbers in the shape of ``spec``, ``None`` for integers."""
        if not is_real(spec):
            return None
        return np.asarray(self.random.standard_normal(spec.shape) + 0.5)

    def leave_out_undefined(self) -> None:
        """From now on, take output elements that are NaN or infinite at the point as zero. ``undefined`` says
        whether the adjoint weighs any of them."""
        outputs = jax.tree.leaves(self.run(lambda point: self._values(point, "jax", None), self.point))
        self._programs.clear()
        self._left_out = [
            None if a is None else ~np.isfinite(v) for v, a in zip(outputs, self.adjoint, strict=True)
        ]
        pairs = zip(self._left_out, self.adjoint, strict=True)
        self.undefined = any(bool(np.any(left & (a != 0))) for left, a in pairs if a is not None)

    def run(self, function: Callable[..., Any], *args: Any, name: str = "") -> Any:
        """``function(*args)``, compiled; for small inputs in the way that compiles fastest.

        With a ``name``, the program is kept and serves every function of this name.
        """
        program = self._programs.get(name)
        if program is None:
            small = sum(p.size for p in self.point) < _SMALL
            level: dict[str, str | bool] = {"xla_backend_optimization_level": "0"} if small else {}
            program = jax.jit(function).lower(*args).compile(compiler_options=level)
            if name:
                self._programs[name] = program
        return program(*args)

    # -- the function

    def loss(
        self,
        point: Point,
        rule_set: str,
        adjoint: Adjoint | None = None,
        *,
        frozen: int | None = None,
        curved: bool = False,
    ) -> Any:
        """The outputs, contracted; ``curved`` adds half their squares."""
        terms = self._terms(self._values(point, rule_set, frozen), adjoint)
        return total(jnp.sum(v * (a + 0.5 * v if curved else a)) for v, a in terms)

    def magnitude(self, point: Point, adjoint: Adjoint | None = None) -> jax.Array:
        """The sum of the absolute values of the terms of the loss."""
        terms = self._terms(self._values(point, "jax", None), adjoint)
        return total(jnp.sum(jnp.abs(v * a)) for v, a in terms)

    def _weighed(self, point: Point, adjoint: Adjoint) -> tuple[Any, Any]:
        """The loss, to be differentiated by JAX, and the sum of the absolute values of its terms."""
        terms = [v * a for v, a in self._terms(self._values(point, "jax", None), adjoint)]
        return total(map(jnp.sum, terms)), total(jnp.sum(jnp.abs(t)) for t in terms)

    def gradient(self, rule_set: str, frozen: int | None = None) -> Callable[[Point], Point]:
        """The gradient of the loss, as a function of the point."""
        return jax.grad(lambda point: self.loss(point, rule_set, frozen=frozen))

    def _terms(self, output: Any, adjoint: Adjoint | None) -> list[tuple[Any, Any]]:
        """Pairs of an output and its adjoint."""
        adjoints = self.adjoint if adjoint is None else adjoint
        triples = zip(jax.tree.leaves(output), adjoints, self._left_out, strict=True)
        return [
            (v if left is None else jnp.where(left, 0.0, v), a) for v, a, left in triples if a is not None
        ]

    # -- programs

    def gradients(
        self, rule_set: str, points: Sequence[Point], adjoints: Sequence[Adjoint]
    ) -> list[tuple[Any, Any, Any]]:
        """For each point and adjoint, the gradients by the rule and by JAX, and the magnitude."""

        def both(given: tuple[Point, Adjoint]) -> tuple[Point, Point, jax.Array]:
            point, adjoint = given
            by_rule = jax.grad(lambda p: self.loss(p, rule_set, adjoint))(point)
            by_jax, magnitude = jax.grad(self._weighed, has_aux=True)(point, adjoint)
            return by_rule, by_jax, magnitude

        def program(*given: Any) -> Any:
            return jax.lax.map(both, given)

        found = []
        for start in range(0, len(points), SLOTS):
            count = min(SLOTS, len(points) - start)
            padded = [start + min(k, count - 1) for k in range(SLOTS)]
            given = stacked(points[k] for k in padded), stacked(adjoints[k] for k in padded)
            answers = jax.tree.map(np.asarray, self.run(program, *given, name=f"gradients {rule_set}"))
            found += [jax.tree.map(lambda a, k=k: a[k], answers) for k in range(count)]
        return found

    def samples(self, directions: Callable[[Any], list[Any]], offsets: np.ndarray[Any, Any]) -> Any:
        """Values of all outputs with an adjoint, [lines, samples, outputs], along lines through the point.

        ``directions`` maps row numbers to the directions [rows, *shape] of each input; ``offsets`` [lines,
        samples] are the sample points on the lines. Contract the values with ``weights``.
        """

        def sampled(point: Point, lines: Point, places: jax.Array) -> jax.Array:
            def along(given: tuple[Point, jax.Array]) -> jax.Array:
                return jax.lax.map(lambda t: self.sample(point, given[0], t), given[1])

            return jax.lax.map(along, (lines, places))

        count = len(offsets)
        self._at_once = chunk = self._at_once or min(count, self._most_lines())
        found = []
        for start in range(0, count, chunk):
            rows = np.minimum(np.arange(start, start + chunk), count - 1)
            part = self.run(sampled, self.point, directions(rows), offsets[rows], name="samples")
            found.append(np.asarray(part)[: count - start])
        return np.concatenate(found)

    def sample(self, point: Point, line: Point, t: Any) -> jax.Array:
        """All outputs with an adjoint, as one vector, at the place ``t`` of a line through a point."""
        moved = [p + t * v for p, v in zip(point, line, strict=True)]
        terms = self._terms(self._values(moved, "jax", None), None)
        if not self._grouped:
            return jnp.concatenate([jnp.ravel(v) for v, _ in terms])
        contracted = jnp.concatenate([jnp.ravel(v * a) for v, a in terms])
        return jnp.sum(
            jnp.pad(contracted, (0, -len(contracted) % _MOST_OUTPUTS)).reshape(_MOST_OUTPUTS, -1), 1
        )

    @property
    def weights(self) -> np.ndarray[Any, Any]:
        """What sampled outputs are contracted with: their adjoint, as one vector; ones if they are contracted
        in groups already."""
        if self._grouped:
            return np.ones(_MOST_OUTPUTS)
        return np.concatenate([np.ravel(a) for a in self.adjoint if a is not None])

    @property
    def _grouped(self) -> bool:
        return self._outputs > _MOST_OUTPUTS

    @property
    def _outputs(self) -> int:
        return sum(a.size for a in self.adjoint if a is not None)

    def _most_lines(self) -> int:
        """The most lines that a run may sample."""
        inputs = sum(p.size for p in self.point)
        return max(1, min(64, _MOST_SAMPLES // max(1, SAMPLES * min(self._outputs, _MOST_OUTPUTS), inputs)))


def adjoint_draws(seed: int) -> np.random.Generator:
    """The generator that adjoints are drawn from. A case's values come from another one: for some functions,
    adjoints from the same draws give no gradient at all."""
    return np.random.default_rng((seed, 1))


def stacked(rows: Any) -> list[Any]:
    """Lists of arrays as one list of arrays with a new first axis; ``None`` stays."""
    columns = zip(*rows, strict=True)  # by NumPy: JAX would compile a program for each shape
    return [None if column[0] is None else np.stack(column) for column in columns]


def total(terms: Any) -> Any:
    """The sum of scalars, zero for none."""
    return sum(terms, start=jnp.zeros(()))


def _checked_adjoint(cotangent: Any, outputs: Any) -> Adjoint:
    """The leaves of a user's cotangent, in float64; ``ShapeError`` if they do not fit the outputs."""
    specs = jax.tree.leaves(outputs)
    whole = isinstance(outputs, jax.ShapeDtypeStruct)
    leaves = jax.tree.leaves(cotangent, is_leaf=lambda a: a is None)
    given = [as_array("cotangents", cotangent)] if whole else leaves
    shapes = [None if a is None else np.shape(a) for a in given]
    wanted = [s.shape if is_real(s) else None for s in specs]
    if len(shapes) != len(wanted) or any(a not in (None, w) for a, w in zip(shapes, wanted, strict=True)):
        expected, found = (", ".join(map(str, each)) for each in (wanted, shapes))
        raise ShapeError(f"cotangents: expected arrays like the outputs, of shapes {expected}, got {found}")
    return [None if a is None else np.asarray(a, np.float64) for a in given]
