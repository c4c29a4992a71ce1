"""Options that set several others, such as ``--task transformer-base``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from nmt.settings.optax_options import BY_OPTIMIZER, BY_SCHEDULE, OPTAX


class Origin(IntEnum):
    """Where a value comes from; a higher origin overrides a lower one."""

    DEFAULT = 0
    FILE = 1
    COMMAND_LINE = 2


class Given(NamedTuple):
    """A given value and its origin."""

    value: Any
    origin: Origin


@dataclass(frozen=True)
class Alias:
    """``--option value`` sets ``settings``, values by option name."""

    option: str
    value: str | bool
    settings: Mapping[str, Any]

    def is_in(self, given: Mapping[str, Given]) -> bool:
        """Whether the alias was given."""
        value = given[self.option].value if self.option in given else None
        return self.value in value if isinstance(value, tuple) else value == self.value


def expanded(aliases: Sequence[Alias], given: Mapping[str, Given]) -> dict[str, Given]:
    """``given`` with its aliases expanded, by Marian's rules.

    A setting has the origin of its alias. It overrides only values of a lower origin, so it does not override
    settings of earlier aliases. An alias does not set what an optimizer or a schedule of optax replaces.
    """
    result, replaced = dict(given), _replaced(given)
    for alias in aliases:
        if not alias.is_in(given):
            continue
        origin = given[alias.option].origin
        for name, value in alias.settings.items():
            if name not in replaced and (name not in result or result[name].origin < origin):
                result[name] = Given(value, origin)
    for alias in aliases:
        result.pop(alias.option, None)
    return result


def _replaced(given: Mapping[str, Given]) -> tuple[str, ...]:
    """The options that a given optimizer or schedule of optax replaces."""
    begin = {name: str(found.value).startswith(OPTAX) for name, found in given.items()}
    return (*(BY_SCHEDULE * begin.get("lr-schedule", False)), *(BY_OPTIMIZER * begin.get("optimizer", False)))


_ALIBI = {
    "transformer-attention-mask": "alibi",
    "transformer-alibi-shift": True,
    "transformer-disable-position-embeddings": True,
    "separator-symbol": "[eos]",
    "transformer-alibi-trainable": True,
}
_FP32 = {"cost-scaling": [], "fp16": "false", "precision": ["float32", "float32"]}
_SCALED_FP16 = {
    "precision": ("float16", "float32"),
    "cost-scaling": ("8.f", "10000", "1.f", "8.f"),
}
_TRANSFORMER = {
    "type": "transformer",
    "enc-depth": 6,
    "dec-depth": 6,
    "tied-embeddings-all": True,
    "transformer-postprocess": "dan",
    "transformer-preprocess": "",
    "transformer-ffn-activation": "relu",
    "transformer-dropout": 0.1,
}
# The training options of the tasks and --best-deep.
_LONG_TRAINING = {
    "cost-type": "ce-mean-words",
    "label-smoothing": 0.1,
    "clip-norm": 0.0,
    "sync-sgd": True,
    "exponential-smoothing": 1e-4,
    "mini-batch-fit": True,
    "mini-batch": 1000,
    "maxi-batch": 1000,
}
_BASE = {
    **_TRANSFORMER,
    "dim-emb": 512,
    "transformer-dim-ffn": 2048,
    "transformer-heads": 8,
    **_LONG_TRAINING,
    "learn-rate": 0.0003,
    "lr-warmup": "16000",
    "lr-decay-inv-sqrt": ("16000",),
    "max-length": 100,
    "workspace": 9500,
    "optimizer-params": (0.9, 0.98, 1e-09),
    "beam-size": 8,
    "valid-mini-batch": 16,
    "normalize": 1.0,
}
_BIG = {
    **_BASE,
    "dim-emb": 1024,
    "transformer-dim-ffn": 4096,
    "transformer-heads": 16,
    "learn-rate": 0.0002,
    "lr-warmup": "8000",
    "lr-decay-inv-sqrt": ("8000",),
    "workspace": 13000,
    "optimizer-params": (0.9, 0.998, 1e-09),
    "valid-mini-batch": 8,
}
_PRENORM = {
    "transformer-postprocess": "da",
    "transformer-preprocess": "n",
    "transformer-postprocess-top": "n",
}
_BEST_DEEP = {
    "type": "s2s",
    "layer-normalization": True,
    "tied-embeddings": True,
    "enc-type": "alternating",
    "enc-cell-depth": 2,
    "enc-depth": 4,
    "dec-cell-base-depth": 4,
    "dec-cell-high-depth": 2,
    "dec-depth": 4,
    "skip": True,
    **_LONG_TRAINING,
    "learn-rate": 0.0003,
    "lr-decay-inv-sqrt": ("16000",),
}
_COMET_QE = {
    "bert-train-type-embeddings": False,
    "bert-type-vocab-size": 0,
    "comet-final-sigmoid": True,
    "comet-mix": False,
    "comet-mix-norm": False,
    "comet-dropout": 0.1,
    "comet-pooler-ffn": (2048, 1024),
    "comet-prepend-zero": True,
    "dim-emb": 1024,
    "dim-vocabs": (250000,),
    "enc-depth": 24,
    "max-length": 512,
    "valid-max-length": 512,
    "tied-embeddings-all": True,
    "transformer-dim-ffn": 4096,
    "transformer-ffn-activation": "gelu",
    "transformer-ffn-depth": 2,
    "transformer-heads": 16,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "nd",
    "transformer-preprocess": "",
    "transformer-train-position-embeddings": True,
    "type": "comet-qe",
}


OF_TRAINING = (
    Alias("alibi", True, _ALIBI),
    Alias("fp16-fallback-to-fp32", True, {"custom-fallbacks": (_FP32,)}),
    Alias("fp16", True, _SCALED_FP16),
    Alias("no-shuffle", True, {"shuffle": "none"}),
    Alias("best-deep", True, _BEST_DEEP),
    Alias("task", "transformer-base", _BASE),
    Alias("task", "transformer-big", _BIG),
    Alias("task", "transformer-base-prenorm", {**_BASE, **_PRENORM}),
    Alias("task", "transformer-big-prenorm", {**_BIG, **_PRENORM}),
    Alias("task", "comet-qe", _COMET_QE),
)
"""The aliases of ``train``, in the order in which Marian expands them."""

OF_READING = (
    Alias("alibi", True, _ALIBI),
    Alias("fp16", True, {"precision": ("float16",)}),
)
"""The aliases of ``decode`` and ``score``."""
