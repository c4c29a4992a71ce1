"""``model.npz.progress.yml``, the training state of a checkpoint, as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import yaml

from mgraph.errors import MGraphError
from nmt.settings import yaml_text
from nmt.settings.option import OptionError
from nmt.text.order import WORDS, MersenneTwister
from nmt.training.schedule.state import Progress, TrainingState, progress

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

    Missing keys, as in files of older Marian versions, get the values of a new state; unknown keys are kept
    in ``extra``. Raises TrainingStateError with the name of the file (``where``), the key, and the expected
    and actual values.
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


def _generator(text: Any) -> str:
    if _string(text):  # empty before training begins
        MersenneTwister(0).restore(text)
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
_GENERATOR = _Kind(f"{WORDS + 1} numbers of 32 bits (mt19937 as C++ writes it)", _quoted, _generator)
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
        (_GENERATOR, "seed-batch seed-corpus"),
    )
    for key in keys.split()
}
"""For each key its attribute of ``TrainingState`` and its kind, in the order of the file."""
