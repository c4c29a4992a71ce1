"""Average models: the mean of the checkpoints of a training."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgraph import ArgumentError, ModelFileError, Type
from mgraph.files.items import MODEL_YML, with_model_yml
from mgraph.files.parameter_files import Path, load_parameters, write_items
from nmt.settings import yaml_text

_CHECKPOINT = re.compile(r"\.iter(\d+)\.[a-z]+$")
_VALIDATION = r"Ep\. \S+ : Up\. ([\d,]+) : {metric} : (\S+) : "


def average_models(sources: Sequence[Path], target: Path, *, smoothing: float = 0.0) -> None:
    """Write the mean of the parameters of ``sources``, model files, to ``target``: ``.npz``, ``.bin`` or
    ``.safetensors``. The configuration is that of the last.

    Checkpoints, ``model.iterN.npz``, are taken in the order of their updates, other files in the order given.
    With ``smoothing`` s, later models count more: ``mean += s (model - mean)``, from the first on, as
    ``--exponential-smoothing`` does during training. Sums are in float64, parameters written in float32.

    ``ArgumentError`` for no models and a ``smoothing`` outside of [0, 1]; ``ModelFileError``, which names the
    file, for a damaged one, for another ending, and for models whose parameters or configurations differ;
    ``OSError`` if a file cannot be read or written.
    """
    if not sources:
        raise ArgumentError("expected one or more models to average, got none")
    if not 0 <= smoothing <= 1:
        raise ArgumentError(f"expected a smoothing from 0 to 1, got {smoothing}")
    mean: dict[str, np.ndarray] = {}
    text: str | None = None
    for number, source in enumerate(_in_time(sources), 1):
        values, own = load_parameters(source, Type.float32)
        if number == 1:
            mean = {name: value.astype(np.float64) for name, value in values.items()}
        else:
            _check_likeness(os.fspath(source), mean, values, text, own)
            weight = smoothing or 1 / number
            for name, value in values.items():
                mean[name] += weight * (value - mean[name])
        text = own
    items = {name: mean[name].astype(np.float32) for name in sorted(mean)}
    if text is not None:
        items[MODEL_YML] = with_model_yml(text)
    write_items(target, items)


def _in_time(sources: Sequence[Path]) -> Sequence[Path]:
    """Checkpoints by update: a shell sorts ``model.iter10000.npz`` before ``model.iter8000.npz``."""
    if not all(_CHECKPOINT.search(os.fspath(source)) for source in sources):
        return sources
    return sorted(sources, key=_update)


def _check_likeness(
    name: str,
    mean: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    before: str | None,
    text: str | None,
) -> None:
    """``ModelFileError`` unless a model has the parameters and the configuration of those before it."""
    missing, unknown = sorted(mean.keys() - values.keys()), sorted(values.keys() - mean.keys())
    if missing or unknown:
        found = [f"lacks {missing[0]!r}"] * bool(missing) + [f"has {unknown[0]!r}"] * bool(unknown)
        raise ModelFileError(f"{name}: {' and '.join(found)}, unlike the models before it")
    for key, value in values.items():
        if value.shape != mean[key].shape:
            raise ModelFileError(
                f"{name}: {key!r} has the shape {list(value.shape)}, "
                f"in the models before it {list(mean[key].shape)}"
            )
    own, others = _configuration(text), _configuration(before)
    for key in sorted({*own, *others} - {"version"}):
        if own.get(key) != others.get(key):
            raise ModelFileError(
                f"{name}: {key} is {own.get(key)!r}, in the models before it {others.get(key)!r}"
            )


def _configuration(text: str | None) -> dict[str, Any]:
    found = yaml_text.read(text) if text else None
    return found if isinstance(found, dict) else {}


def best_checkpoints(
    sources: Sequence[Path], log: Path, metric: str, count: int, *, lower_is_better: bool
) -> list[Path]:
    """The ``count`` best of the checkpoints ``model.iterN.npz``, the best first, by the value of a metric
    that a training log has for update N. If an update has several values, the last one counts.

    ``ArgumentError`` for a file that is not a checkpoint, and if fewer than ``count`` have a value;
    ``OSError`` if the log cannot be read.
    """
    updates = {source: _update(source) for source in sources}
    pattern = re.compile(_VALIDATION.format(metric=re.escape(metric)))
    with open(log, encoding="utf-8", errors="replace") as lines:
        found = [match for line in lines if (match := pattern.search(line))]
    values = {int(match[1].replace(",", "")): float(match[2]) for match in found}
    judged = [s for s in sources if not math.isnan(values.get(updates[s], math.nan))]
    if len(judged) < count:
        raise ArgumentError(
            f"{os.fspath(log)} has values of {metric} for {len(judged)} of the {len(sources)} models, "
            f"expected {count}"
        )
    judged.sort(key=lambda source: values[updates[source]], reverse=not lower_is_better)
    return judged[:count]


def _update(source: Path) -> int:
    match = _CHECKPOINT.search(os.fspath(source))
    if match is None:
        raise ArgumentError(
            f"{os.fspath(source)}: expected a checkpoint, whose name ends in .iterN.npz for the update N"
        )
    return int(match[1])
