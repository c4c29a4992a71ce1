"""Parameters with which a recurrent model (``s2s``, GRU) copies its source, and ends by itself.

The usual random parameters stay, with these changes. Some units of the forward encoder and of the decoder's
first cell are a shift register, in which a one moves by a unit with each word: it shows the position. Other
units of the encoder hold the word's embedding. The attention looks for the source word whose register equals
the decoder's, and that word's embedding goes to the output layer. ``STOP`` has the embedding of ``</s>`` and
is never output itself. All values that positions need are -1, 0 and 1, which survive int8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.copying.text import EOS, STOP, UNK
from benchmarks.copying.transformer import MARGIN, NEVER, Params

CERTAIN = 20.0
"""Makes a tanh 1, and a gate open or shut."""
CONTENT = 0.7
ENERGY = 10.0
"""The attention's weight of a match: the right position's energy exceeds all others by twice this."""


def copying(params: Mapping[str, Any], *, seed: int = 1) -> Params:
    """The parameters that make a new model a copier.

    params: as initialized, with separate embeddings, one layer, and ``dim-rnn`` greater than ``dim-emb``.
    A source may have as many words as there are units left for the register.
    """
    made = {name: np.array(value, np.float32) for name, value in params.items()}
    words, content = made["encoder_Wemb"].shape
    table = np.random.default_rng(seed).standard_normal((words, content), np.float32)
    table[STOP] = table[EOS]
    made["encoder_Wemb"] = CONTENT * table
    units = made["encoder_bi_Ux"].shape[0]
    register = np.arange(content, units)
    _fix(made, "encoder_bi", np.arange(units), keep=False)
    made["encoder_bi_Wx"][:, :content] = np.eye(content)
    _shift(made, "encoder_bi", register)
    _fix(made, "decoder_cell1", register, keep=False)
    _shift(made, "decoder_cell1", register)
    _fix(made, "decoder_cell2", register, keep=True)
    made["decoder_ff_state_W"][:, register] = 0
    made["decoder_ff_state_b"][:, register] = 0
    _attend(made, register[1:])
    _say(made, table, content)
    return made


def _fix(made: Params, prefix: str, units: np.ndarray, *, keep: bool) -> None:
    """Cut units off from all others, and set their gates: the state is kept, or replaced."""
    dim = made[f"{prefix}_Ux"].shape[0]
    for name in ("W", "U"):
        made[f"{prefix}_{name}"][:, np.concatenate([units, dim + units])] = 0
        made[f"{prefix}_{name}x"][:, units] = 0
    made[f"{prefix}_b"][:, units] = CERTAIN
    made[f"{prefix}_b"][:, dim + units] = CERTAIN if keep else -CERTAIN
    made[f"{prefix}_bx"][:, units] = 0


def _shift(made: Params, prefix: str, register: np.ndarray) -> None:
    """Units of a register: the first says that there was a word before, the others shift a one."""
    marker, first = register[0], register[1]
    made[f"{prefix}_bx"][:, [marker, first]] = CERTAIN
    moves = made[f"{prefix}_Ux"]
    moves[marker, first] = -2 * CERTAIN
    moves[register[1:-1], register[2:]] = CERTAIN


def _attend(made: Params, places: np.ndarray) -> None:
    """A hidden unit for each place is 1 if the place is on in both registers, else -1."""
    number = np.arange(min(len(places), made["decoder_b_att"].shape[-1]))
    places = places[: len(number)]
    for name in ("decoder_Wc_att", "decoder_W_comb_att", "decoder_U_att"):
        made[name][...] = 0
    made["decoder_Wc_att"][places, number] = CERTAIN
    made["decoder_W_comb_att"][places, number] = CERTAIN
    made["decoder_b_att"][0, number] = -1.5 * CERTAIN
    made["decoder_U_att"][number] = ENERGY


def _say(made: Params, table: np.ndarray, content: int) -> None:
    """Output the word that is attended to."""
    for name in ("W0", "W1", "W2"):
        made[f"decoder_ff_logit_l1_{name}"][...] = 0
    made["decoder_ff_logit_l1_W2"][:content] = np.eye(content)
    hidden = np.tanh(np.tanh(CONTENT * table[STOP + 1 :]))
    fitting = np.mean(np.sum(hidden * table[STOP + 1 :], 1))
    scale = (math.log(len(table)) + MARGIN) / fitting
    made["decoder_ff_logit_l2_Wt"] = (table * scale).astype(np.float32)
    made["decoder_ff_logit_l2_b"][0, [UNK, STOP]] = NEVER
