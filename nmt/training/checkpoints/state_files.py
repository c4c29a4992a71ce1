"""The state files of a checkpoint: ``model.npz.optimizer.npz`` and ``model.npz.progress.yml``.

Each item of the former is one row: all parameters in the order of their names in Marian's graph, each
zero-padded to a multiple of 256 bytes, as in Marian's memory. Source: Marian, ``optimizers/optimizers.cpp``,
``training/graph_group.cpp``.
"""

from __future__ import annotations

import bisect
import json
import logging
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from mgraph import ModelFileError
from mgraph.errors import MGraphError
from mgraph.files.items import PADDING
from nmt.settings import yaml_text
from nmt.settings.option import OptionError
from nmt.settings.training import Learning
from nmt.training.schedule.state import Progress, TrainingState, progress
from nmt.training.update import LearnerState, Tensors

logger = logging.getLogger(__name__)


MOMENTS: Mapping[str, tuple[str, ...]] = {
    "sgd": (),
    "adagrad": ("adagrad_gt",),
    "adam": ("adam_mt", "adam_vt"),
}
"""The moments of each ``--optimizer``."""
BETAS = (0.9, 0.999)
"""Adam's, without ``--optimizer-params``."""
MASTER, AVERAGE, DENOMINATORS = "master_parameters", "exp_smoothing", "adam_denoms"
COST_SCALING, AVERAGE_WORDS, ERRORS = "cost_scaling", "average_words", "quantization_errors"
"""Our own items, see ``LearnerState``; Marian does not save these numbers, and ignores the items."""
_ALIGNED = PADDING // 4


class Moments:
    """Converts learner states to the items of an optimizer file and back.

    options: ``--optimizer`` determines the moments, ``--exponential-smoothing`` whether there is an average.
    Adam's betas are needed because the file stores ``1 - beta1^n`` and ``1 - beta2^n`` instead of n.
    """

    def __init__(self, options: Learning) -> None:
        self.optimizer, self.smoothing = options.optimizer, options.exponential_smoothing > 0
        given = options.optimizer_params[:2] if self.optimizer == "adam" else ()
        self.betas = tuple(float(np.float32(beta)) for beta in (*given, *BETAS[len(given) :]))

    def items(self, state: LearnerState, order: Sequence[str]) -> dict[str, np.ndarray]:
        """The items of the file in Marian's order; ``order``: of the parameters in each."""
        items = {} if state.average is None else {AVERAGE: flat(state.average, order)}
        items |= {name: flat(state.moments[name], order) for name in MOMENTS[self.optimizer]}
        if self.optimizer == "adam":
            both = [deque(_denominators(beta, state.steps), maxlen=1)[0] for beta in self.betas]
            items[DENOMINATORS] = np.array([both], np.float64)
        items[MASTER] = flat(state.params, order)
        if state.cost_scale is not None:
            items[COST_SCALING] = np.array([state.cost_scale], np.float64)
        if state.average_words:
            items[AVERAGE_WORDS] = np.array([[state.average_words]], np.float64)
        if state.errors is not None:
            items[ERRORS] = flat(state.errors, order)
        return items

    def fresh(self, params: Tensors) -> LearnerState:
        """The state before the first update of ``params``."""
        moments = {name: _zeros(params) for name in MOMENTS[self.optimizer]}
        return LearnerState(params, moments, 0, dict(params) if self.smoothing else None)

    def state(
        self, items: Mapping[str, np.ndarray], params: Tensors, path: str, *, updates: int
    ) -> LearnerState:
        """The state in the items of the file ``path``.

        params: of the model file, in the order of each item; used if this file has no parameters. Other
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
        missing = [name for name in MOMENTS[self.optimizer] if name not in rows]
        if missing:
            logger.warning("%s: no %s: the moments of %s are new", path, ", ".join(missing), self.optimizer)
        else:
            state.moments = {name: rows[name] for name in MOMENTS[self.optimizer]}
            state.steps = self._steps(items, path, updates)
        if COST_SCALING in items:
            factor, count = _numbers(items[COST_SCALING], 2, f"{path}: {COST_SCALING}")
            state.cost_scale = (factor, int(count))
        if AVERAGE_WORDS in items:
            (state.average_words,) = _numbers(items[AVERAGE_WORDS], 1, f"{path}: {AVERAGE_WORDS}")
        state.errors = rows.get(ERRORS)
        return state

    def _steps(self, items: Mapping[str, np.ndarray], path: str, updates: int) -> int:
        """The number of updates that the moments include."""
        if self.optimizer != "adam":
            return updates
        if DENOMINATORS not in items:
            return 0  # of an old Marian; newer ones correct the moments as if they were new
        both = _numbers(items[DENOMINATORS], 2, f"{path}: {DENOMINATORS}")
        beta, denominator = max(zip(self.betas, both, strict=True))
        values = list(_denominators(beta))
        steps = bisect.bisect_left(values, denominator)
        if steps >= len(values) - 1:
            return max(steps, updates)
        # Another build of Marian may round differently.
        return steps - (steps > 0 and denominator - values[steps - 1] < values[steps] - denominator)


def flat(tensors: Tensors, order: Sequence[str]) -> np.ndarray:
    """The tensors in this order as a float32 row ``(1, n)``, each padded to a multiple of 256 bytes."""
    parts = []
    for name in order:
        numbers = np.asarray(tensors[name], np.float32).reshape(-1)
        parts += [numbers, np.zeros(-numbers.size % _ALIGNED, np.float32)]
    return np.concatenate(parts)[None]


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


def _denominators(beta: float, steps: int | None = None) -> Iterator[float]:
    """``1 - beta^n`` for n = 0, 1, ... up to ``steps`` or until it is constant, by Marian's recursion."""
    value, following, n = 0.0, 1.0 - beta, 0
    yield value
    while n != steps and following != value:
        value, n = following, n + 1
        yield value
        following = beta * value + (1.0 - beta)


_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+-]*")
_NEEDED = ("epochs", "batches", "batches-epoch", "samples", "eta")


class TrainingStateError(MGraphError, ValueError):
    """A ``.progress.yml`` is not a mapping, lacks a key, or has an invalid value."""


def state_text(state: TrainingState) -> str:
    """The text of ``.progress.yml``: one key per line, in Marian's order, without a final line break.

    Real numbers have seven digits, as in Marian, or eight or nine if float32 needs them. Marian reads either.
    """
    lines: list[str] = []
    for key, (attribute, kind) in _KEYS.items():
        value = getattr(state, attribute)
        if kind is _VALIDATORS:
            lines += _validators_lines(value)
        else:
            lines.append(f"{key}: {kind.write(value)}")
    lines += [f"{key}: {_quoted(value)}" for key, value in state.extra.items()]
    return "\n".join(lines)


def read_state(text: str, where: str) -> TrainingState:
    """Parse the text of a ``.progress.yml``, Marian's or ours; ``loaded`` is set.

    Missing keys, as in files of older Marian versions, have the value of a new state; unknown ones are kept
    in ``extra``. Raises TrainingStateError with the name of the file (``where``), the key, what was expected
    and what was got.
    """
    try:
        found = yaml_text.read(text)
    except yaml.YAMLError as error:
        raise TrainingStateError(f"{where} is not valid YAML: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict):
        raise TrainingStateError(f"{where}: expected the keys of a training state, got none")
    missing = [key for key in _NEEDED if key not in found]
    if missing:
        raise TrainingStateError(
            f"{where}: expected the key {missing[0]} of a training state, which is missing"
        )
    values = {
        attribute: _read(kind, found[key], f"{where}: {key}")
        for key, (attribute, kind) in _KEYS.items()
        if key in found
    }
    extra = {str(key): str(value) for key, value in found.items() if key not in _KEYS}
    return TrainingState(**values, extra=extra, loaded=True)


class _Kind(NamedTuple):
    expected: str
    write: Callable[[Any], str]
    read: Callable[[Any], Any]


def _float_text(value: float) -> str:
    number = np.float32(value)
    if not np.isfinite(number):
        return ".nan" if np.isnan(number) else (".inf" if number > 0 else "-.inf")
    texts = (f"{float(number):.{digits}g}" for digits in (7, 8))
    return next((text for text in texts if np.float32(text) == number), f"{float(number):.9g}")


def _float(text: Any) -> float:
    number = text.replace(".inf", "inf").replace(".nan", "nan") if isinstance(text, str) else ""
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _count(text: Any) -> int:
    if not isinstance(text, str) or not re.fullmatch("[0-9]+", text):
        raise ValueError
    number = int(text)
    if number >= 1 << 64:
        raise ValueError
    return number


def _flag(text: Any) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return bool(text == "true")


def _string(text: Any) -> str:
    if not isinstance(text, str):
        raise ValueError
    return text


def _amount(text: Any) -> Progress:
    return progress(_string(text), "warmup-start")


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def _validators(found: Any) -> dict[str, dict[str, Any]]:
    if found in ("~", "", "null"):
        return {}
    if not isinstance(found, Mapping) or not all(isinstance(entry, Mapping) for entry in found.values()):
        raise ValueError
    return {
        str(kind): {"last-best": _float(entry["last-best"]), "stalled": _count(entry["stalled"])}
        for kind, entry in found.items()
    }


def _validators_lines(validators: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not validators:
        return ["validators: ~"]
    lines = ["validators:"]
    for kind, entry in validators.items():
        lines += [f"  {_quoted(kind)}:", f"    last-best: {_float_text(entry['last-best'])}"]
        lines.append(f"    stalled: {entry['stalled']}")
    return lines


def _read(kind: _Kind, found: Any, where: str) -> Any:
    try:
        return kind.read(found)
    except (ValueError, KeyError, OptionError):
        got = found if isinstance(found, str) else json.dumps(found)
        raise TrainingStateError(f"{where}: expected {kind.expected}, got '{got[:60]}'") from None


_COUNT = _Kind("a whole number", str, _count)
_REAL = _Kind("a number", _float_text, _float)
_FLAG = _Kind("true or false", lambda value: str(value).lower(), _flag)
_TEXT = _Kind("text", _quoted, _string)
_AMOUNT = _Kind("a number with u, t or e", str, _amount)
_VALIDATORS = _Kind("'last-best' and 'stalled' of each validator", str, _validators)

_KEYS = {
    key: (key.replace("-", "_"), kind)
    for kind, keys in (
        (
            _COUNT,
            "epochs batches batches-epoch samples labels-total prev-labels-total prev-batches prev-epochs",
        ),
        (_COUNT, "stalled stalled-max"),
        (_TEXT, "validator"),
        (_VALIDATORS, "validators"),
        (_FLAG, "reset"),
        (_REAL, "eta eta-factor"),
        (_AMOUNT, "warmup-start"),
        (_REAL, "cost-sum cost-count"),
        (_COUNT, "disp-updates disp-samples disp-words"),
        (_REAL, "loss-avg-slow loss-avg-fast loss-var-slow gradient-norm-avg gradient-norm-var"),
        (_REAL, "log-gradient-norm-avg log-gradient-norm-var"),
        (_TEXT, "seed-batch seed-corpus"),
    )
    for key in keys.split()
}
"""The attribute of ``TrainingState`` and its kind by key, in the order of the file."""
