"""Names of parameters in files, where they differ from those in graphs.

Source: Marian, ``models/amun.h`` and ``models/nematus.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nmt.settings.model_options import ModelOptions

Arrays = Mapping[str, np.ndarray]

MARK = "decoder_c_tt"
NOT_PARAMETERS = (MARK, "uidx", "history_errs")
"""Items that Nematus keeps beside the parameters."""

_GATED = {letter: letter for letter in ("U", "Ux", "W", "Wx", "b", "bx")}
_SECOND = {"U_nl": "U", "Ux_nl": "Ux", "Wc": "W", "Wcx": "Wx", "b_nl": "b", "bx_nl": "bx"}
_INPUTS = ("prev", "lstm", "ctx")
"""The inputs of the layer below the output layer: word, state, context."""


class FileNames:
    """How the files of a model type name its parameters: as graphs do."""

    def in_graph(self, items: Arrays, options: ModelOptions) -> dict[str, np.ndarray]:
        """The items of a file, but for those that are no parameters, under the names that a graph has."""
        return dict(items)

    def in_file(self, params: Arrays, options: ModelOptions) -> dict[str, np.ndarray]:
        """The inverse: parameters, sorted by their names in graphs, as the items of a file in its order."""
        return dict(params)


AS_IN_GRAPHS = FileNames()


class OldNames(FileNames):
    """The names of Nematus, by a table of names in graphs by names in files.

    Files that go back to Nematus are marked by an item ``decoder_c_tt`` without numbers, and may have rows
    with one axis; a file without the mark has the graph's own names.
    """

    def __init__(self, table: Callable[[ModelOptions], dict[str, str]]) -> None:
        self.table = table

    def in_graph(self, items: Arrays, options: ModelOptions) -> dict[str, np.ndarray]:
        if MARK not in items:
            return dict(items)
        names = self.table(options)
        return {
            names.get(name, name): array.reshape(1, -1) if array.ndim == 1 else array
            for name, array in items.items()
            if name not in NOT_PARAMETERS
        }

    def in_file(self, params: Arrays, options: ModelOptions) -> dict[str, np.ndarray]:
        names = {graph: file for file, graph in self.table(options).items()}
        items = {names.get(name, name): array for name, array in params.items()}
        return items | {MARK: np.zeros((1, 0), np.float32)}


def amun_names(options: ModelOptions) -> dict[str, str]:
    """Names in graphs by names in files of the type ``amun``, where they differ."""
    names = _common(options)
    names |= _cells("encoder_{}", "encoder_bi_{}", {"gamma1": "gamma1", "gamma2": "gamma2"})
    names |= _cells("encoder_r_{}", "encoder_bi_r_{}", {"gamma1": "gamma1", "gamma2": "gamma2"})
    names |= {f"ff_logit_l1_gamma{i}": f"decoder_ff_logit_l1_gamma{i}" for i in range(len(_INPUTS))}
    return names | {"ff_state_gamma": "decoder_ff_state_gamma"}


def nematus_names(options: ModelOptions) -> dict[str, str]:
    """Names in graphs by names in files of the type ``nematus``, where they differ."""
    names = _common(options)
    recurrent = {letter: letter for letter in ("U", "Ux", "b", "bx")}
    for i in range(2, options.enc_cell_depth + 1):
        names |= _cells(f"encoder_{{}}_drt_{i - 1}", f"encoder_bi_cell{i}_{{}}", recurrent)
        names |= _cells(f"encoder_r_{{}}_drt_{i - 1}", f"encoder_bi_r_cell{i}_{{}}", recurrent)
    for i in range(3, options.dec_cell_base_depth + 1):
        names |= _cells(f"decoder_{{}}_nl_drt_{i - 2}", f"decoder_cell{i}_{{}}", recurrent)
    cells = {file: graph for file, graph in names.items() if file.startswith(("encoder", "decoder"))}
    for kind in ("lns", "lnb"):
        names |= {f"{file}_{kind}": f"{graph}_{kind}" for file, graph in cells.items()}
    for kind in ("ln_s", "ln_b"):
        names[f"ff_state_{kind}"] = f"decoder_ff_state_{kind}"
        names |= {f"ff_logit_{x}_{kind}": f"decoder_ff_logit_l1_{kind}{i}" for i, x in enumerate(_INPUTS)}
    return names


def _common(options: ModelOptions) -> dict[str, str]:
    """What both types name alike."""
    names = _cells("decoder_{}", "decoder_cell1_{}", _GATED)
    names |= _cells("decoder_{}", "decoder_cell2_{}", _SECOND)
    names |= _cells("encoder_{}", "encoder_bi_{}", _GATED)
    names |= _cells("encoder_r_{}", "encoder_bi_r_{}", _GATED)
    for letter in ("W", "b"):
        names |= {f"ff_logit_{x}_{letter}": f"decoder_ff_logit_l1_{letter}{i}" for i, x in enumerate(_INPUTS)}
        names[f"ff_logit_{letter}"] = f"decoder_ff_logit_l2_{letter}"
        names[f"ff_state_{letter}"] = f"decoder_ff_state_{letter}"
    names["Wemb_dec"] = "decoder_Wemb"
    if not (options.tied_embeddings_src or options.tied_embeddings_all):
        names["Wemb"] = "encoder_Wemb"
    return names


def _cells(file: str, graph: str, letters: Mapping[str, str]) -> dict[str, str]:
    """The names of one cell's parameters: each letter put into both patterns."""
    return {file.format(there): graph.format(here) for there, here in letters.items()}


AMUN = OldNames(amun_names)
NEMATUS = OldNames(nematus_names)
