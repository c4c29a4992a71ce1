"""The recurrent cells that a model's options ask for."""

from __future__ import annotations

from collections.abc import Sequence

from layers import Cell, StackedCell, find_cell
from nmt.models.parts import EncoderPart, ModelPart


def cell(part: ModelPart, option: str, prefix: str, dim_input: int, *, final: bool = False) -> Cell:
    """The cell that ``option`` (``enc-cell`` or ``dec-cell``) names, with ``dim-rnn`` features."""
    options = part.options
    return find_cell(str(options[option]), option)(
        prefix,
        dim_input,
        options.dim_rnn,
        layer_normalization=options.layer_normalization,
        dropout=part.setup.dropouts.rnn,
        final=final,
        in_encoder=isinstance(part, EncoderPart),
    )


def deep_cell(part: ModelPart, option: str, prefixes: Sequence[str], dim_input: int) -> StackedCell:
    """Cells one after another of which only the first has an input."""
    first, *rest = prefixes
    return StackedCell(
        cell(part, option, first, dim_input), [cell(part, option, prefix, 0) for prefix in rest]
    )
