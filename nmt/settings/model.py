"""Marian's model options: what a command line says of a model, and what the model file then carries."""

from __future__ import annotations

import typing
from dataclasses import fields, replace

from nmt.settings.model_options import ModelOptions
from nmt.settings.model_values import OPTIONS as MEANINGS
from nmt.settings.option import Option, Support, ignored, later

_DEFAULTS = {field.name: field.default for field in fields(ModelOptions)}
_TYPES = typing.get_type_hints(ModelOptions)

NO_BERT = "models of Marian's BERT types are not supported yet"
NO_COMET = "models of Marian's COMET types are not supported yet"
NO_FACTORS = "factored vocabularies are not supported yet"
NO_ULR = "universal embeddings are not supported yet"
NO_CHARACTERS = "models of characters with convolutions are not supported yet"


def _of_model(name: str, support: Support = Support.YES, reason: str = "") -> Option:
    """The option of a model that ``ModelOptions`` has a field for, with its type and default."""
    attribute = name.replace("-", "_")
    elements = typing.get_args(_TYPES[attribute])
    meaning = MEANINGS[name]
    return Option(
        name,
        elements[0] if elements else _TYPES[attribute],
        _DEFAULTS[attribute],
        reason or meaning.meaning,
        many=bool(elements),
        least=meaning.least,
        choices=() if name == "type" else meaning.choices,
        support=support,
    )


def _several(names: str) -> tuple[Option, ...]:
    return tuple(_of_model(name) for name in names.split())


def _factors(name: str) -> Option:
    return _of_model(name, Support.IGNORED, NO_FACTORS)


BEST_DEEP = Option("best-deep", help="the options of a deep recurrent model and of its training")
ALIBI = Option("alibi", help="the options of a transformer whose attention looks less far")

MODEL_OPTIONS = (
    *_several("type dim-vocabs dim-emb"),
    _factors("factors-dim-emb"),
    _factors("factors-combine"),
    _factors("lemma-dependency"),
    _factors("lemma-dim-emb"),
    *_several("""
    dim-rnn enc-type enc-cell enc-cell-depth enc-depth dec-cell dec-cell-base-depth dec-cell-high-depth
    dec-depth skip layer-normalization right-left input-types
    """),
    later("input-reorder", int, (), many=True),
    later("input-join-fields"),
    BEST_DEEP,
    *_several("""
    tied-embeddings tied-embeddings-src tied-embeddings-all output-omit-bias transformer-heads
    transformer-no-projection transformer-rnn-projection transformer-pool transformer-dim-ffn
    transformer-decoder-dim-ffn transformer-ffn-depth transformer-decoder-ffn-depth
    transformer-ffn-activation transformer-dim-aan transformer-aan-depth transformer-aan-activation
    transformer-aan-nogate transformer-decoder-autoreg transformer-tied-layers
    transformer-guided-alignment-layer transformer-preprocess transformer-postprocess-emb
    transformer-postprocess transformer-postprocess-top transformer-train-position-embeddings
    """),
    Option("transformer-depth-scaling", help="new weights are divided by the root of their layer's number"),
    *_several("""
    transformer-attention-mask transformer-alibi-shift separator-symbol
    transformer-disable-position-embeddings transformer-alibi-trainable
    """),
    ALIBI,
    *_several("transformer-no-bias transformer-no-affine"),
    ignored("bert-mask-symbol", str, "[MASK]", help=NO_BERT),
    ignored("bert-sep-symbol", str, "[SEP]", help=NO_BERT),
    ignored("bert-class-symbol", str, "[CLS]", help=NO_BERT),
    ignored("bert-masking-fraction", float, 0.15, help=NO_BERT),
    _of_model("bert-train-type-embeddings", Support.IGNORED, NO_BERT),
    _of_model("bert-type-vocab-size", Support.IGNORED, NO_BERT),
    ignored("comet-final-sigmoid", help=NO_COMET),
    ignored("comet-stop-grad", help=NO_COMET),
    ignored("comet-mix", help=NO_COMET),
    ignored("comet-mix-norm", help=NO_COMET),
    ignored("comet-pool", str, "avg", help=NO_COMET),
    ignored("comet-mix-transformation", str, "softmax", help=NO_COMET),
    ignored("comet-dropout", float, 0.1, help=NO_COMET),
    ignored("comet-mixup", float, 0.0, help=NO_COMET),
    ignored("comet-mixup-reg", help=NO_COMET),
    ignored("comet-augment-bad", float, 0.0, help=NO_COMET),
    ignored("comet-pooler-ffn", int, (2048, 1024), many=True, help=NO_COMET),
    ignored("comet-prepend-zero", help=NO_COMET),
    ignored("comet-use-separator", help=NO_COMET),
)
"""Of all commands, in Marian's order."""

# In configurations of Marians that were built for a GPU; others refuse them.
CHARACTERS = (
    ignored("char-stride", int, 5, dumped=False, help=NO_CHARACTERS),
    ignored("char-highway", int, 4, dumped=False, help=NO_CHARACTERS),
    ignored(
        "char-conv-filters-num",
        int,
        (200, 200, 250, 250, 300, 300, 300, 300),
        many=True,
        dumped=False,
        help=NO_CHARACTERS,
    ),
    ignored(
        "char-conv-filters-widths",
        int,
        (1, 2, 3, 4, 5, 6, 7, 8),
        many=True,
        dumped=False,
        help=NO_CHARACTERS,
    ),
)

ULR = (
    _of_model("ulr", Support.LATER),
    ignored("ulr-query-vectors", str, "", help=NO_ULR),
    ignored("ulr-keys-vectors", str, "", help=NO_ULR),
    _of_model("ulr-trainable-transformation", Support.IGNORED, NO_ULR),
    _of_model("ulr-dim-emb", Support.IGNORED, NO_ULR),
    ignored("ulr-dropout", float, 0.0, help=NO_ULR),
    ignored("ulr-softmax-temperature", float, 1.0, help=NO_ULR),
)


def _saved(option: Option, dumped: bool) -> Option:
    return replace(
        option,
        help="the model file's own value counts",
        support=Support.IGNORED,
        command=True,
        dumped=dumped,
        least=None,
        choices=(),
    )


SAVED_IN_MODEL = (
    *(_saved(option, True) for option in MODEL_OPTIONS),
    *(_saved(option, False) for option in (*CHARACTERS, *ULR)),
)
"""For commands that read models: the model file holds these and overrides the command line, as in Marian."""
