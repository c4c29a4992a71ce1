"""``model.npz.optimizer.npz``: the parameters of a checkpoint in training, and the moments of the optimizer.

Each of Marian's items, except ``adam_denoms``, is one row: all parameters in the order of their names in
Marian's graph, each zero-padded to a multiple of 256 bytes, as in Marian's memory. Source: Marian,
``optimizers/optimizers.cpp``, ``training/graph_group.cpp``. The state of an optax optimizer has one item for
each of its arrays, named by moment and parameter: ``optax.adam.0.mu.encoder_Wemb``.
"""

from __future__ import annotations

import bisect
import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mgraph import ModelFileError
from mgraph.files.items import PADDING
from nmt.settings.training import TrainOptions
from nmt.training.learning.optimizers import optimizer_of
from nmt.training.update import LearnerState, Tensors

logger = logging.getLogger(__name__)


MOMENTS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("adagrad_gt",),
    "adam": ("adam_mt", "adam_vt"),
}
"""The moments of each of Marian's optimizers (``--optimizer``)."""
BETAS = (0.9, 0.999)
"""Adam's betas without ``--optimizer-params``."""
MASTER, AVERAGE, DENOMINATORS = "master_parameters", "exp_smoothing", "adam_denoms"
COST_SCALING, AVERAGE_WORDS, ERRORS = "cost_scaling", "average_words", "quantization_errors"
BETAS_CHANGED = "adam_betas_changed"
"""Our own items, see ``LearnerState``; Marian does not save these numbers, and ignores the items. The last
one has the denominators when Adam's betas last changed, and the number of updates since then."""
ROUNDING = 1e-9
"""By how much the rounded denominators of another build of Marian may differ."""
_ALIGNED = PADDING // 4


class Moments:
    """Converts learner states to the items of an optimizer file and back.

    options: the optimizer determines the moments, ``--exponential-smoothing`` whether there is an average.
    Adam's betas are needed because the file stores ``1 - beta1^n`` and ``1 - beta2^n`` instead of n.
    ``OptionError`` for an optimizer that does not exist.
    """

    def __init__(self, options: TrainOptions) -> None:
        self.optimizer, self.smoothing = options.optimizer, options.exponential_smoothing > 0
        self._names, self._init = MOMENTS.get(self.optimizer, ()), optimizer_of(options).init
        given = options.optimizer_params[:2]
        self.betas = tuple(float(np.float32(beta)) for beta in (*given, *BETAS[len(given) :]))

    def items(self, state: LearnerState, order: Sequence[str]) -> dict[str, np.ndarray]:
        """The items of the file in Marian's order. order: of the parameters in each item."""
        items = {} if state.average is None else {AVERAGE: flat(state.average, order)}
        items |= {name: flat(state.moments[name], order) for name in self._names}
        if self.optimizer not in MOMENTS:
            items |= {name: _writable(array) for name, array in _by_item(state.moments).items()}
        if self.optimizer == "adam":
            items[DENOMINATORS] = np.array([self._after(state.denominators, state.steps)], np.float64)
            if any(state.denominators):
                items[BETAS_CHANGED] = np.array([[*state.denominators, state.steps]], np.float64)
        items[MASTER] = flat(state.params, order)
        if state.cost_scale is not None:
            items[COST_SCALING] = np.array([state.cost_scale], np.float64)
        if state.average_words:
            items[AVERAGE_WORDS] = np.array([[state.average_words]], np.float64)
        if state.errors is not None:
            items[ERRORS] = flat(state.errors, order)
        return items

    def fresh(self, params: Tensors) -> LearnerState:
        """The state before the first update of ``params``; the learner adds the moments of optax."""
        moments = {name: _zeros(params) for name in self._names}
        return LearnerState(params, moments, 0, dict(params) if self.smoothing else None)

    def state(
        self, items: Mapping[str, np.ndarray], params: Tensors, path: str, *, updates: int
    ) -> LearnerState:
        """The state in the items of the file ``path``.

        params: of the model file, in the order that each item has; used if this file has no parameters. Other
            missing items are initialized with a warning, as in Marian.
        updates: since training began; used if the file does not determine the number of updates.
        ``ModelFileError`` for items of the wrong size or type.
        """
        shapes = {name: np.shape(value) for name, value in params.items()}
        rows = {name: _split(items[name], shapes, f"{path}: {name}") for name in items if name in _ROWS}
        if MASTER not in rows:
            logger.warning("%s: no %s: the parameters are those of the model", path, MASTER)
        state = self.fresh(rows.get(MASTER, params))
        if self.smoothing and AVERAGE in rows:
            state.average = rows[AVERAGE]
        elif self.smoothing:
            logger.warning("%s: no %s: smoothing starts from the current parameters", path, AVERAGE)
        if self.optimizer in MOMENTS:
            missing = [name for name in self._names if name not in rows]
            moments = {name: rows[name] for name in self._names if name in rows}
        else:
            found = self._of_optax(items, state.params, path)
            missing, moments = ([self.optimizer], {}) if found is None else ([], found)
        if missing:
            logger.warning("%s: no %s: the moments of %s are new", path, ", ".join(missing), self.optimizer)
        else:
            state.moments = moments
            state.steps, state.denominators = self._progress(items, path, updates)
        if COST_SCALING in items:
            factor, count = _amounts(items[COST_SCALING], 2, f"{path}: {COST_SCALING}")
            state.cost_scale = (factor, int(count))
        if AVERAGE_WORDS in items:
            (state.average_words,) = _amounts(items[AVERAGE_WORDS], 1, f"{path}: {AVERAGE_WORDS}")
        state.errors = rows.get(ERRORS)
        return state

    def _of_optax(
        self, items: Mapping[str, np.ndarray], params: Tensors, path: str
    ) -> dict[str, Tensors] | None:
        """The moments of an optax optimizer; None if it has moments and the file is another optimizer's."""
        begin = f"{self.optimizer}."
        found = {name: array for name, array in items.items() if name.startswith(begin)}
        expected = jax.eval_shape(self._init, params).moments
        wanted = _by_item(expected)
        if wanted and not found:
            return None
        different = sorted(wanted.keys() ^ found.keys())
        if different:
            there, other = ("no", "has") if different[0] in wanted else ("an", "does not have")
            raise ModelFileError(
                f"{path}: there is {there} item {different[0]}, which {self.optimizer} {other} with these "
                f"--optax-params; expected those that the checkpoint was made with, or --no-optimizer-reload"
            )
        for name, spec in wanted.items():
            kind, array = _written_as(spec.dtype), found[name]
            if (array.shape, array.dtype) != (spec.shape, kind):
                raise ModelFileError(
                    f"{path}: {name}: expected {kind} of shape {spec.shape}, got {array.dtype} of shape "
                    f"{array.shape}; is it the checkpoint of another model?"
                )
        return {
            moment: {name: found[_item(moment, name)] for name in tree} for moment, tree in expected.items()
        }

    def _after(self, denominators: tuple[float, float], steps: int) -> tuple[float, ...]:
        """The denominators ``steps`` updates later."""
        each = zip(self.betas, denominators, strict=True)
        return tuple(deque(_denominators(beta, before, steps), maxlen=1)[0] for beta, before in each)

    def _progress(
        self, items: Mapping[str, np.ndarray], path: str, updates: int
    ) -> tuple[int, tuple[float, float]]:
        """The number of updates that the moments include, and the denominators before them."""
        new = (0.0, 0.0)
        if self.optimizer != "adam":
            return updates, new
        if DENOMINATORS not in items:
            return 0, new  # an old Marian's file; newer versions correct its moments as if they were new
        first, second = both = _numbers(items[DENOMINATORS], 2, f"{path}: {DENOMINATORS}")
        if not all(0 <= number <= 1 for number in both):
            raise ModelFileError(f"{path}: {DENOMINATORS}: expected numbers from 0 to 1, got {both}")
        if BETAS_CHANGED in items:
            *begin, count = _numbers(items[BETAS_CHANGED], 3, f"{path}: {BETAS_CHANGED}")
            before = begin[0], begin[1]
            usable = 0 <= count <= updates and all(0 <= number <= 1 for number in before)
            if usable and self._after(before, int(count)) == both:  # else the betas have changed again
                return int(count), before
        steps = self._steps(both, updates)
        if np.allclose(self._after(new, steps), both, rtol=0, atol=ROUNDING):
            return steps, new
        logger.info("%s: Adam's betas have changed: its denominators go on from the last ones", path)
        return 0, (first, second)

    def _steps(self, both: Sequence[float], updates: int) -> int:
        """The number of updates after which the denominator of the larger beta is closest to its value in
        ``both``; at least ``updates`` if the denominator no longer changes."""
        beta, denominator = max(zip(self.betas, both, strict=True))
        values = list(_denominators(beta))
        steps = bisect.bisect_left(values, denominator)
        if steps >= len(values) - 1:
            return max(steps, updates)
        return steps - (steps > 0 and denominator - values[steps - 1] < values[steps] - denominator)


def flat(tensors: Tensors, order: Sequence[str]) -> np.ndarray:
    """The tensors in this order as a float32 row ``(1, n)``, each padded to a multiple of 256 bytes."""
    parts = []
    for name in order:
        numbers = np.asarray(tensors[name], np.float32).reshape(-1)
        parts += [numbers, np.zeros(-numbers.size % _ALIGNED, np.float32)]
    return np.concatenate(parts)[None]


def _by_item(moments: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The arrays of an optax optimizer by the names of their items."""
    return {_item(moment, name): array for moment, tree in moments.items() for name, array in tree.items()}


def _item(moment: str, parameter: str) -> str:
    return f"{moment}.{parameter}" if parameter else moment


def _writable(array: Any) -> np.ndarray:
    return np.asarray(array).astype(_written_as(array.dtype))


def _written_as(kind: np.dtype) -> np.dtype:
    """The element type in files, which have neither booleans nor extension types such as bfloat16."""
    if kind == np.bool_:
        return np.dtype(np.uint8)
    return kind if kind.isbuiltin == 1 else np.dtype(np.float32)


_ROWS = frozenset((MASTER, AVERAGE, ERRORS, *(name for names in MOMENTS.values() for name in names)))


def _split(row: np.ndarray, shapes: Mapping[str, tuple[int, ...]], what: str) -> Tensors:
    """The inverse of ``flat`` for tensors of these shapes, in their order."""
    total = sum(_padded(shape) for shape in shapes.values())
    if row.dtype != np.float32:
        raise ModelFileError(f"{what}: expected float32, got {row.dtype}")
    if row.size != total:
        raise ModelFileError(
            f"{what}: expected {total} numbers, those of the model's parameters, got {row.size}; "
            "is it the checkpoint of another model?"
        )
    numbers, tensors, at = row.reshape(-1), {}, 0
    for name, shape in shapes.items():
        tensors[name] = numbers[at : at + math.prod(shape)].reshape(shape)
        at += _padded(shape)
    return tensors


def _padded(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // _ALIGNED) * _ALIGNED


def _zeros(params: Tensors) -> Tensors:
    return {name: np.zeros(np.shape(value), np.float32) for name, value in params.items()}


def _numbers(item: np.ndarray, count: int, what: str) -> tuple[float, ...]:
    if item.size != count or item.dtype != np.float64:
        raise ModelFileError(f"{what}: expected {count} numbers of float64, got {item.size} of {item.dtype}")
    return tuple(item.reshape(-1).tolist())


def _amounts(item: np.ndarray, count: int, what: str) -> tuple[float, ...]:
    numbers = _numbers(item, count, what)
    if not all(0 <= number < math.inf for number in numbers):
        raise ModelFileError(f"{what}: expected finite numbers from 0, got {numbers}")
    return numbers


def _denominators(beta: float, value: float = 0.0, steps: int | None = None) -> Iterator[float]:
    """The denominator, ``value`` at first, after 0, 1, ... up to ``steps`` updates, or until it is constant,
    by Marian's recursion; if ``value`` is 0 it is ``1 - beta^n``."""
    following, n = beta * value + (1.0 - beta), 0
    yield value
    while n != steps and following != value:
        value, n = following, n + 1
        yield value
        following = beta * value + (1.0 - beta)
