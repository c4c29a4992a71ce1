"""Small recurrent models with every cell that Marian has; each gets the same numbers whenever it is made.

``data/cells`` has Marian's scores for them. The models are not trained, so gains and biases are far from 1
and 0, and cells can stand where Marian can run them but not train them.
"""

from __future__ import annotations

import zlib

import numpy as np

from nmt.files import create_model
from nmt.models import Model
from nmt.settings.model_options import parse_model_options
from tests.helpers.places import DATA

VOCABS = [DATA / "options" / f"{side}.yml" for side in ("source", "target")]
TEXTS = [DATA / "options" / f"{side}.txt" for side in ("source", "target")]

COMMON = "type: s2s\nversion: v1.12.42\ndim-vocabs: [16, 21]\ndim-emb: 8\ndim-rnn: 8\n"
NORMED = "layer-normalization: true\n"
TRANSITIONS = "enc-cell-depth: 2\ndec-cell-base-depth: 3\n"
DEEP = "enc-depth: 2\ndec-depth: 2\nskip: true\n"
HIGH = "dec-cell-high-depth: 2\nenc-type: alternating\n"
ONE_WAY = "enc-depth: 2\nenc-type: bi-unidirectional\n"
NO_CONTEXT = "dec-cell-base-depth: 1\n"


def cells(encoder: str, decoder: str) -> str:
    return f"enc-cell: {encoder}\ndec-cell: {decoder}\n"


ROWS = {
    "gru-nematus": cells("gru-nematus", "gru-nematus") + TRANSITIONS,
    "lstm": cells("lstm", "lstm") + TRANSITIONS + DEEP + HIGH,
    "mlstm-mgru": cells("mlstm", "mgru") + DEEP,
    "tanh-relu": cells("tanh", "relu") + TRANSITIONS,
    "sru-ssru": cells("sru", "ssru") + DEEP + NO_CONTEXT,
    "gru-nematus-normed": cells("gru-nematus", "gru-nematus") + TRANSITIONS + NORMED,
    "lstm-normed": cells("lstm", "lstm") + TRANSITIONS + DEEP + NORMED,
    "mgru-mlstm-normed": cells("mgru", "mlstm") + DEEP + NORMED,
    "relu-tanh-normed": cells("relu", "tanh") + TRANSITIONS + DEEP + HIGH + NORMED,
    "ssru-sru-normed": cells("ssru", "sru") + DEEP + NO_CONTEXT + NORMED,
    "gru-sru-normed": cells("gru", "sru") + ONE_WAY + NORMED,
}
"""Options by row name."""


def make(row: str) -> Model:
    """The model of a row of ``ROWS``."""
    created = create_model(parse_model_options(COMMON + ROWS[row], row))
    return Model(created.options, {name: draw(name, value.shape) for name, value in created.params.items()})


def draw(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """What a parameter of this name holds: around 1 for gains, around 0 for others."""
    middle = 1.0 if "gamma" in name or name.endswith("_lns") else 0.0
    state = np.random.RandomState(zlib.crc32(name.encode()))
    return (middle + state.uniform(-0.5, 0.5, shape)).astype(np.float32)
