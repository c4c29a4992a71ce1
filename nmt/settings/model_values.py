"""What the options of a model mean, and the values that each may have: a model file may ask for anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from layers import CELLS, UnsupportedOptionError
from nmt.settings.model_options import ModelOptions

MODEL_TYPES = (
    "s2s",
    "amun",
    "nematus",
    "multi-s2s",
    "shared-multi-s2s",
    "lm",
    "transformer",
    "transformer-new",
    "multi-transformer",
    "shared-multi-transformer",
    "lm-transformer",
    "transformer_s2s",
)
MOST_LAYERS = 256
LARGEST = 1 << 20


@dataclass(frozen=True)
class Option:
    """An option of Marian's model: what it means, and the values that it may have, if not all of its type.

    least, greatest: of a number. choices: all values. letters: the operations of which a string is made.
    """

    meaning: str
    least: int | None = None
    greatest: int | None = None
    choices: tuple[str, ...] = ()
    letters: str = ""

    def problem(self, value: Any) -> str:
        """What is wrong with ``value``; empty if nothing is."""
        if self.least is not None and not (
            isinstance(value, int) and self.least <= value <= (self.greatest or 0)
        ):
            return f"expected a number from {self.least} to {self.greatest}, got {value!r}"
        if self.choices and value not in self.choices:
            return f"{value!r} is unknown; there is {', '.join(map(repr, self.choices))}"
        unknown = [letter for letter in value if letter not in self.letters] if self.letters else []
        if unknown:
            known = ", ".join(self.letters)
            return f"{value!r} has the unknown operation {unknown[0]!r}; there is {known}"
        return ""

    @property
    def values(self) -> str:
        """The values in words; empty if all of its type."""
        if self.least is not None:
            return f"{self.least} to {self.greatest}"
        return ", ".join(choice or '""' for choice in self.choices) or ", ".join(self.letters)


def _size(meaning: str, least: int = 1) -> Option:
    return Option(meaning, least, LARGEST)


def _depth(meaning: str, least: int = 1) -> Option:
    return Option(meaning, least, MOST_LAYERS)


_ACTIVATIONS = ("swish", "relu", "gelu", "sigmoid", "tanh", "leakyrelu", "prelu", "linear", "")
_PRE, _POST = "dnr", "danrh"

OPTIONS: Mapping[str, Option] = {
    "type": Option("the model type", choices=MODEL_TYPES),
    "version": Option("the version of Marian that wrote the model"),
    "dim-vocabs": Option("the sizes of the vocabularies, the target's last"),
    "dim-emb": _size("features of embeddings, and of a transformer's layers"),
    "dim-rnn": _size("features of the states of recurrent cells"),
    "enc-type": Option(
        "how a recurrent encoder reads: both ways, both and then forward, or alternating by layer",
        choices=("bidirectional", "bi-unidirectional", "alternating"),
    ),
    "enc-cell": Option("the encoder's recurrent cell", choices=tuple(CELLS)),
    "enc-cell-depth": _depth("cells one after another in each layer of a recurrent encoder"),
    "enc-depth": _depth("layers of the encoder"),
    "dec-cell": Option("the decoder's recurrent cell", choices=tuple(CELLS)),
    "dec-cell-base-depth": _depth("cells in the first layer of a recurrent decoder, around its attention"),
    "dec-cell-high-depth": _depth("cells in each other layer of a recurrent decoder"),
    "dec-depth": _depth("layers of the decoder"),
    "skip": Option("the input of each recurrent layer but the first is added to its output"),
    "layer-normalization": Option("products in recurrent models are normalized"),
    "right-left": Option("the target is written from its end"),
    "input-types": Option("what each input stream holds"),
    "tied-embeddings": Option("the output layer multiplies by the decoder's embedding table"),
    "tied-embeddings-src": Option("one embedding table for all sides"),
    "tied-embeddings-all": Option("one embedding table for all sides and the output layer"),
    "output-omit-bias": Option("the output layer has no bias"),
    "transformer-heads": _size("heads of each attention"),
    "transformer-no-projection": Option("no projection after an attention"),
    "transformer-rnn-projection": Option("a projection after a recurrent autoregression"),
    "transformer-pool": Option("the first state of a source in place of attention to it"),
    "transformer-dim-ffn": _size("features between the feed-forward layers"),
    "transformer-decoder-dim-ffn": _size("the same in the decoder, 0 for as many", least=0),
    "transformer-ffn-depth": _depth("affine layers of a feed-forward block"),
    "transformer-decoder-ffn-depth": _depth("the same in the decoder, 0 for as many", least=0),
    "transformer-ffn-activation": Option(
        "the activation between the feed-forward layers", choices=_ACTIVATIONS
    ),
    "transformer-dim-aan": _size("features between the affine layers of average attention"),
    "transformer-aan-depth": _depth("affine layers of average attention, the last may be missing", 0),
    "transformer-aan-activation": Option("the activation between these layers", choices=_ACTIVATIONS),
    "transformer-aan-nogate": Option("average attention without gates"),
    "transformer-decoder-autoreg": Option(
        "how the decoder sees the words before", choices=("self-attention", "average-attention", "rnn")
    ),
    "transformer-tied-layers": Option("the number in the names of each decoder layer: equal ones share"),
    "transformer-guided-alignment-layer": Option("the decoder layer of alignments: `last` or a number"),
    "transformer-preprocess": Option("operations before each sub-layer", letters=_PRE),
    "transformer-postprocess-emb": Option("operations on embeddings", letters=_PRE),
    "transformer-postprocess": Option("operations after each sub-layer", letters=_POST),
    "transformer-postprocess-top": Option("operations after the last layer", letters=_POST),
    "transformer-train-position-embeddings": Option("trained positions; `transformer` takes no notice"),
    "transformer-disable-position-embeddings": Option("no positions"),
    "transformer-attention-mask": Option("what else an attention's mask does", choices=("default", "alibi")),
    "transformer-alibi-shift": Option("of the mask `alibi`"),
    "transformer-alibi-trainable": Option("of the mask `alibi`"),
    "transformer-no-bias": Option("no biases of affine layers; `transformer` takes no notice"),
    "transformer-no-affine": Option("no gains of norms; `transformer` takes no notice"),
    "separator-symbol": Option("the word between the parts of a joined input"),
    "bert-train-type-embeddings": Option("trained embeddings of BERT's segments"),
    "bert-type-vocab-size": Option("the number of BERT's segments"),
    "ulr": Option("embeddings mixed from universal ones"),
    "ulr-dim-emb": Option("features of universal embeddings"),
    "ulr-trainable-transformation": Option("universal embeddings are transformed"),
    "lemma-dim-emb": Option("features of lemmas that predict factors"),
    "lemma-dependency": Option("how factors depend on lemmas"),
    "factors-combine": Option("how the embeddings of factors are combined", choices=("sum", "concat")),
    "factors-dim-emb": Option("features of the embeddings of factors"),
}
"""By name, in the order of ``ModelOptions``."""


def check_values(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for the first option with a value that it cannot have."""
    for name, option in OPTIONS.items():
        problem = option.problem(options[name]) if name != "type" else ""
        if problem:
            raise UnsupportedOptionError(f"{name}: {problem}")
