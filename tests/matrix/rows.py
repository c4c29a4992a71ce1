"""All rows: each of Marian's model types and option values at least once; ensembles; what Marian refuses."""

from __future__ import annotations

from typing import NamedTuple

from .recurrent_rows import RECURRENT
from .row import Row
from .transformer_rows import TRANSFORMERS

ROWS = (*RECURRENT, *TRANSFORMERS)


class Ensemble(NamedTuple):
    """Several rows' models together, with Marian's ``--weights``."""

    name: str
    rows: tuple[str, ...]
    weights: tuple[float, ...]

    @property
    def members(self) -> list[Row]:
        """The rows."""
        return [row for name in self.rows for row in ROWS if row.name == name]


ENSEMBLES = (
    Ensemble("ensemble-s2s-transformer", ("s2s", "transformer"), (1.0, 0.5)),
    Ensemble("ensemble-s2s-lm", ("s2s", "lm"), (1.0, 0.25)),
    Ensemble("ensemble-transformer-lm-transformer", ("transformer-deep", "lm-transformer"), (1.0, 0.25)),
    Ensemble("ensemble-three", ("rnn-ssru-projection", "average-attention", "amun"), (1.0, 1.0, 1.0)),
    Ensemble("ensemble-multi", ("multi-s2s", "multi-transformer"), (0.5, 0.5)),
)

REFUSED = {
    "char-s2s": "Unknown model type: char-s2s",
    "bert": "BERT masking symbol [MASK] not found in vocabulary",
    "bert-classifier": "BERT separator symbol [SEP] not found in vocabulary",
    "amun-deep": "--type amun does not support multiple encoder layers",
    "amun-lstm": "--type amun does not support other rnn cells than gru",
    "nematus-gru": "--type nematus does not support other rnn cells than gru-nematus",
    "nematus-alternating": "--type nematus does not support other encoder type than bidirectional",
    # Marian trains this one, but does not load it.
    "nematus-tied-all": "Graph was reloaded and parameter 'Wemb' with type float32 (specified: false) is newly",
    "sru": "For SRU state and input dims have to be equal",
    "ssru": "For SSRU state and input dims have to be equal",
    "dec-cell-depth-mlstm": "Multiplicative LSTM expects input",
    "enc-cell-depth-mgru": "Multiplicative LSTM expects input",
    "enc-cell-depth-nematus": "Segmentation fault",
    "heads-unequal": "Reshape must not change the number of elements",
    "activation-tanh": "Invalid activation name 'tanh'",
    "alibi": "You specified --transformer-attention-mask=alibi which is not implemented",
    "transformer-new-alibi": "Not implemented",
    "transformer-new-aan": "Unknown auto-regression block type average-attention",
    "transformer-new-no-affine": "Segmentation fault",
    "transformer-new-tied-ahead": "Cannot tie to layer above this layer",
}
"""Marian's messages for the rows that it refuses, or the beginning of each."""
