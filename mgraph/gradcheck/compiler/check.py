"""``check_compiled``: compiled programs, compared with the same programs uncompiled and with NumPy."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...arrays import checked_seed, described, is_series, whole
from ...errors import ArgumentError
from ...node import NaryNodeOp
from ...ops.convolution import ConvolutionOp
from ...platforms import as_wished
from ...specs import is_real
from ..functions.rounding import narrowest
from ..references.numpy_primitives import NoReferenceError
from ..references.numpy_witness import computed_by_numpy
from ..report import problem_of
from ..subjects import COMPOSITIONS, Subject
from ..survey import chosen_operators, rows_of
from .report import CompiledReport, CompiledRow, Difference

SIZES = (*(2**k + d for k in range(10, 17) for d in (-1, 0, 1)), 100_000)
"""Numbers of examples: around powers of two, where compilers split loops and buffers, up to a large one."""
SHORT_SIZES = {"float32": (32_769,), "float64": (16_385,)}
"""Numbers of examples in the short form: one number of each takes just over 128 KiB."""
FIRST_CASE = (1_025, 2_049, 4_097, 8_193, 16_383, 16_384, 16_385, 32_767, 32_768, 32_769, 65_537, 100_000)
OTHER_CASES = (16_385, 32_769, 100_000)
"""Numbers of examples for the first case of an operator, and for its other ones."""

_WEIGHTS: dict[type[NaryNodeOp], tuple[int, ...]] = {ConvolutionOp: (1, 2)}
"""Children that all examples share: with a kernel for each example, XLA makes a grouped convolution, whose
time grows with the square of the number of groups."""

_MOST_ROWS: dict[Any, int] = {ConvolutionOp: 2_049}
"""The most examples of operators that XLA computes too slowly for more: a kernel's gradient is a convolution
with as many channels as there are examples."""

_ROUNDINGS = 256
"""How many roundings a number may be off, relative to the typical number of its array and the largest of its
example."""
_MOVED = 8
"""By how many roundings inputs are perturbed, both ways, to see how far rounding moves a result: enough that
an input within a rounding of a kink of ``relu`` crosses it one way or the other."""
_MOST_BYTES, _SHORT_BYTES = 1 << 28, 1 << 25
"""The size of the largest array, in the long form and in the short form."""

Arrays = dict[str, np.ndarray]


def check_compiled(
    names: Sequence[str] = (),
    module: str | None = None,
    *,
    quick: bool = False,
    sizes: Sequence[int] | None = None,
    seed: int = 0,
    on_row: Callable[[CompiledRow], None] | None = None,
) -> CompiledReport:
    """Compare compiled programs with the same programs uncompiled, and with NumPy in float64.

    Rule, ``jax.grad`` and differences pass through one compiler, on small shapes; they cannot see that it is
    wrong on large ones, as that of jaxlib 0.10.2 is (jax-ml/jax, issue 39103). So every operator, on its
    ``cases``, and compositions as in models are computed for many examples together, up to 100,000, in
    float32 and float64: the values with the gradient of their randomly weighted sum, and the values of
    compositions also alone. These are compared with

    - ``jax.disable_jit``: each primitive by itself, without fusion. JAX compiles each of them, too, so this
      witness sees only errors of fusion;
    - NumPy, in float64, which interprets what JAX has traced: no compiler at all. A program with a primitive
      that is not implemented there goes without this witness, and the report says so.

    ``names`` and ``module`` are those of ``check_operators``; without them the compositions are examined,
    too. ``quick`` takes the first case of each operator at one size for each element type, asks only NumPy
    wherever it can, and examines operators in parallel, one per core. ``sizes`` are numbers of examples to
    take instead. There are fewer examples where an array would be larger than 256 MB (32 MB with ``quick``),
    and at most 2,049 for a convolution.

    A number may be off by 256 roundings of its element type, relative to the sum of the typical number of its
    array, the largest number of its example, and how far roundings (of inputs, and in float32) move it
    according to NumPy. Sums over examples, with n terms of random sign, may be off by ``sqrt(n)`` times as
    many roundings. XLA's ``tanh`` in a loop needs 64 of the 256. Integers must be equal.

    ``on_row`` is called with each row, in order, as soon as it is complete.

    ``ArgumentError`` for an unknown operator or module, and for ``sizes`` that are not positive whole
    numbers.
    """
    chosen, seed = chosen_operators(names, module), checked_seed(seed)
    sizes = None if sizes is None else _checked_sizes(sizes)
    compositions = [(subject, SIZES) for subject in COMPOSITIONS]
    operators = [
        (Subject(cls.__name__, cls, case, _WEIGHTS.get(cls, ())), OTHER_CASES if i else FIRST_CASE)
        for cls in chosen
        for i, case in enumerate(cls.cases[: 1 if quick else None])
    ]
    everything = not names and module is None
    start = time.perf_counter()
    without = [cls for cls in chosen if not cls.cases]
    lacking = [CompiledRow(cls.__name__, "", {}, problem="declares no cases") for cls in without]
    if on_row is not None:
        for row in lacking:
            on_row(row)
    subjects = [*(compositions if everything else ()), *operators]

    def examined(each: tuple[Subject, Sequence[int]]) -> CompiledRow:
        return _row_of(*each, quick, sizes, seed)

    # The long form's arrays are too large to examine several subjects at the same time.
    rows = rows_of(examined, subjects, on_row, side_by_side=quick)
    return CompiledReport((*lacking, *rows), time.perf_counter() - start)


def _checked_sizes(sizes: Sequence[int]) -> list[int]:
    if is_series(sizes) and not isinstance(sizes, str):
        found = [whole("check_compiled", "each of sizes", n) for n in sizes]
        if found and min(found) > 0:
            return found
    raise ArgumentError(
        f"check_compiled: expected sizes to be positive whole numbers, got {described(sizes)}"
    )


def _row_of(
    subject: Subject, usual: Sequence[int], quick: bool, sizes: Sequence[int] | None, seed: int
) -> CompiledRow:
    """One row, whose problem says what could not be recorded or compiled."""
    try:
        with jax.enable_x64(True), np.errstate(all="ignore"):  # a value may be anything
            plan = {t: _sizes(t, subject, usual, quick, sizes) for t in ("float32", "float64")}
            return _Examination(subject, plan, quick, seed).row()
    except (Exception, SystemExit) as e:  # a user's operator may raise anything
        return CompiledRow(subject.name, str(subject.case), {}, problem=problem_of(e))


def _sizes(
    element_type: str, subject: Subject, usual: Sequence[int], quick: bool, sizes: Sequence[int] | None
) -> list[int]:
    """The numbers of examples of a subject, none of which makes arrays too large."""
    wanted = sizes if sizes is not None else SHORT_SIZES[element_type] if quick else usual
    most = subject.most_rows(_SHORT_BYTES if quick else _MOST_BYTES)
    most = min(most, _MOST_ROWS.get(subject.target, most))
    return sorted({n for n in wanted if n <= most} or {most})


class _Examination:
    """One subject at several sizes, in several element types, by all witnesses."""

    def __init__(self, subject: Subject, plan: dict[str, list[int]], quick: bool, seed: int) -> None:
        self._subject, self._plan, self._quick = subject, plan, quick
        self._row = CompiledRow(subject.name, str(subject.case), plan)
        self._rows = max(n for sizes in plan.values() for n in sizes)
        self._arrays = subject.arrays(self._rows, seed)
        specs = jax.eval_shape(subject.mapped("float64"), *self._arrays)
        random = np.random.default_rng(seed + 1)
        self._adjoints = [
            random.standard_normal(s.shape).astype(np.float32).astype(np.float64)
            for s in jax.tree.leaves(specs)
            if is_real(s)
        ]
        self._seed = seed
        self._summed = {f"gradient by child {i}" for i in subject.shared}
        self._sums: dict[int, Arrays] = {}

    def row(self) -> CompiledRow:
        """The row that says what was found."""
        note, by_numpy = "", None
        moves: Arrays = {}
        try:
            by_numpy, moves = self._by_numpy()
        except NoReferenceError as missing:
            note = f"not by NumPy, which has no {missing}"
        differences: list[Difference] = []
        programs, largest = 0, 0.0
        for element_type, sizes in self._plan.items():
            eager = None
            if by_numpy is None or not self._quick:
                eager = self._computed(element_type, max(sizes), _not_compiled)
            for n in sizes:
                known = {"NumPy": self._at(n, by_numpy), "not compiled": self._of_eager(n, eager, max(sizes))}
                for found in self._programs(element_type, n):
                    programs += 1
                    for witness, expected in known.items():
                        wrong, most = self._held_against(found, expected, moves, element_type, n, witness)
                        differences += wrong
                        largest = max(largest, most)
        return replace(self._row, programs=programs, differences=(*differences,), largest=largest, note=note)

    # -- what is computed

    def _computed(self, element_type: str, n: int, how: Callable[..., Any], moved: int = 0) -> Arrays:
        """Values, gradients and the weighted sum of the values of the first ``n`` examples.

        All real inputs are moved by ``moved`` roundings, up or down at random.
        """
        values, gradients = how(*self._call(element_type, n, moved))
        return {**_named(values), **{name: np.asarray(g) for name, g in gradients.items()}}

    def _call(self, element_type: str, n: int, moved: int = 0) -> tuple[Callable[..., Any], *tuple[Any, ...]]:
        """The function of arrays that is computed, and its arguments. The function returns the values and, by
        name, the gradients and the weighted sum."""
        arrays = self._subject.first(self._arrays, n)
        if moved:
            random = np.random.default_rng(self._seed + 2)
            scale = moved * float(np.finfo(np.float32).eps)
            arrays = [
                a * (1 + scale * random.choice([-1.0, 1.0], a.shape)) if a.dtype.kind == "f" else a
                for a in arrays
            ]
        arrays = [_cast(a, element_type) for a in arrays]
        adjoints = [a[:n].astype(element_type) for a in self._adjoints]
        mapped = self._subject.mapped(element_type)
        floats = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]

        def loss(moving: list[Any], arrays: list[Any], adjoints: list[Any]) -> tuple[Any, Any]:
            values = list(arrays)
            for i, value in zip(floats, moving, strict=True):
                values[i] = value
            leaves = jax.tree.leaves(mapped(*values))
            weighted = [v for v in leaves if is_real(v)]
            terms = (jnp.sum(v * a.astype(v.dtype)) for v, a in zip(weighted, adjoints, strict=True))
            return sum(terms), leaves

        def program(moving: list[Any], arrays: list[Any], adjoints: list[Any]) -> tuple[Any, Any]:
            if not adjoints:
                return jax.tree.leaves(mapped(*arrays)), {}
            (total, leaves), gradients = jax.value_and_grad(loss, has_aux=True)(moving, arrays, adjoints)
            found = {f"gradient by child {i}": g for i, g in zip(floats, gradients, strict=True)}
            return leaves, {**found, "weighted sum": total}

        return program, [arrays[i] for i in floats], arrays, adjoints

    @functools.cached_property
    def _epsilons(self) -> dict[str, float]:
        """For each element type, the rounding of the least precise type that anything is computed in: an
        operator may have a type of its own."""
        found = {}
        for element_type in self._plan:
            function, *args = self._call(element_type, 1)
            found[element_type] = narrowest(jax.make_jaxpr(function)(*args)).epsilon
        return found

    def _programs(self, element_type: str, n: int) -> Iterator[Arrays]:
        """What compiled programs compute: values and gradients; for a composition also the values alone."""
        yield self._computed(element_type, n, _compiled)
        if self._subject.is_composition:
            arrays = [_cast(a, element_type) for a in self._subject.first(self._arrays, n)]
            yield _named(jax.tree.leaves(_compiled(self._subject.mapped(element_type), *arrays)))

    # -- witnesses

    def _by_numpy(self) -> tuple[Arrays, Arrays]:
        """What NumPy computes for all examples, and how far roundings move each result: of inputs, and in
        float32."""
        here = self._computed("float64", self._rows, computed_by_numpy)
        moves: Arrays = {}
        for element_type, moved in (("float64", _MOVED), ("float64", -_MOVED), ("float32", 0)):
            there = self._computed(element_type, self._rows, computed_by_numpy, moved)
            for quantity, value in here.items():
                if value.dtype.kind == "f" and value.ndim:
                    roundings = max(abs(moved), 1) * np.finfo(np.float32).eps
                    move = np.nan_to_num(np.abs(there[quantity] - value) / roundings, posinf=0.0)
                    most = move if quantity in self._summed else _by_example(move)
                    moves[quantity] = np.maximum(moves.get(quantity, 0.0), most)
        return here, moves

    def _at(self, n: int, all_examples: Arrays | None) -> Arrays:
        """NumPy's results for the first ``n`` examples."""
        if all_examples is None:
            return {}
        if n == self._rows:
            return all_examples
        if self._adjoints and n not in self._sums:
            if self._summed:
                found = self._computed("float64", n, computed_by_numpy)
                self._sums[n] = {q: found[q] for q in (*self._summed, "weighted sum")}
            else:
                values = [v for q, v in all_examples.items() if q.startswith("value") and v.dtype.kind == "f"]
                pairs = zip(values, self._adjoints, strict=True)
                self._sums[n] = {"weighted sum": np.asarray(sum(np.sum(v[:n] * a[:n]) for v, a in pairs))}
        sums = self._sums.get(n, {})
        return {q: sums[q] if q in sums else v[:n] for q, v in all_examples.items()}

    def _of_eager(self, n: int, found: Arrays | None, rows: int) -> Arrays:
        """The uncompiled results for the first ``n`` examples; sums only if these are all."""
        if found is None or n == rows:
            return found or {}
        return {q: v[:n] for q, v in found.items() if q not in self._summed and q != "weighted sum"}

    def _held_against(
        self, found: Arrays, expected: Arrays, moves: Arrays, element_type: str, n: int, witness: str
    ) -> tuple[list[Difference], float]:
        """What is off, and the largest difference in units of what is allowed."""
        differences, largest = [], 0.0
        for quantity in found.keys() & expected.keys():
            values, others = found[quantity], expected[quantity]
            size = self._size(quantity, others, moves.get(quantity), n)
            ratios = _ratios(values, others, _ROUNDINGS * self._epsilons[element_type] * size)
            if not ratios.size:
                continue
            at = tuple(int(i) for i in np.unravel_index(np.argmax(ratios), ratios.shape))
            largest = max(largest, float(ratios[at]))
            if ratios[at] > 1:
                numbers = float(values[at]), float(others[at])
                wrong = int(np.sum(ratios > 1))
                where = self._row.operator, self._row.case, quantity, element_type, n, at
                differences.append(Difference(*where, *numbers, witness, wrong))
        return differences, largest

    def _size(self, quantity: str, expected: np.ndarray, moves: np.ndarray | None, n: int) -> Any:
        """The size that roundings are relative to."""
        sizes = np.nan_to_num(np.abs(expected), posinf=0.0)
        if quantity == "weighted sum":
            return math.sqrt(n) * self._weight(n)
        typical = float(np.mean(sizes)) if sizes.size else 0.0
        if quantity in self._summed:
            known = 0.0 if moves is None or n < self._rows else moves
            return math.sqrt(n) * (typical + float(np.max(sizes, initial=0.0))) + known
        return typical + _by_example(sizes) + (0.0 if moves is None else moves[:n])

    def _weight(self, n: int) -> float:
        """The root of the sum of squares of the weights, for values of about 1."""
        return math.sqrt(sum(float(np.sum(a[:n] ** 2)) for a in self._adjoints))


def _ratios(found: np.ndarray, expected: np.ndarray, allowed: Any) -> np.ndarray:
    """Differences in units of what is allowed; integers must be equal."""
    off = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    same = (found == expected) | ((found != found) & (expected != expected))
    if found.dtype.kind != "f":
        return np.where(same, 0.0, math.inf)
    ratios = np.where(np.isnan(off), math.inf, off) / np.maximum(allowed, np.finfo(np.float64).tiny)
    return np.where(same, 0.0, ratios)


def _cast(array: np.ndarray, element_type: str) -> np.ndarray:
    return array.astype(element_type) if array.dtype.kind == "f" else array


def _named(leaves: Sequence[Any]) -> Arrays:
    return {f"value {i}" if len(leaves) > 1 else "value": np.asarray(leaf) for i, leaf in enumerate(leaves)}


def _by_example(sizes: np.ndarray) -> np.ndarray:
    """The largest number of each example, as an array of the same rank."""
    return np.max(sizes, axis=tuple(range(1, sizes.ndim)), keepdims=True, initial=0.0)


def _compiled(function: Callable[..., Any], *args: Any) -> Any:
    """The function's results, compiled as graphs compile their programs."""
    lowered = jax.jit(function).lower(*args)
    program = as_wished(jax.default_backend(), lambda options: lowered.compile(options or None))
    return jax.tree.map(np.asarray, program(*args))


def _not_compiled(function: Callable[..., Any], *args: Any) -> Any:
    with jax.disable_jit():
        return jax.tree.map(np.asarray, function(*jax.tree.map(jnp.asarray, args)))
