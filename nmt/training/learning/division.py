"""How ``--tensor-parallel`` divides the parameters of a model among the devices of a group: one table.

It is Megatron's division (Shoeybi et al. 2019). A product with a matrix divided by columns needs no exchange,
and gives each device some of the features over which the next product, with a matrix divided by rows, sums;
the devices then add up their partial sums. So an attention block and a feed-forward block each exchange once
forwards and once backwards. Embeddings and output layer are divided by words, so that no device has all
logits.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from typing import NamedTuple

from layers import Parameter
from nmt.models.parameters import parameters, text_of_size
from nmt.settings.model_options import ModelOptions
from nmt.settings.option import OptionError

logger = logging.getLogger(__name__)

ROWS, COLUMNS = 0, 1
HEADS, UNITS, WORDS = "heads", "units", "words"


class DivisionRule(NamedTuple):
    """How some parameters are divided."""

    layer: str
    """The class that declares them."""
    names: str
    """A regular expression that matches the ends of their names."""
    axis: int
    each: str
    """The units of division: attention heads, units of a hidden layer, or words of a vocabulary."""


TABLE = (
    DivisionRule("Affine", r"_[Wb][qkv]", COLUMNS, HEADS),
    DivisionRule("Affine", r"_Wo", ROWS, HEADS),
    DivisionRule("Affine", r"_(ffn|aan)_[Wb]\d*[13579]", COLUMNS, UNITS),
    DivisionRule("Affine", r"_(ffn|aan)_W\d*[02468]", ROWS, UNITS),
    DivisionRule("Embedding", r"Wemb", ROWS, WORDS),
    DivisionRule("Output", r"_Wt", ROWS, WORDS),
    DivisionRule("Output", r"_[Wb]", COLUMNS, WORDS),
)
"""The first rule that matches a parameter applies. All other parameters are whole on every device: norms,
biases of row-divided products, gates, positions, and recurrent cells, after which XLA would divide norms,
too."""


def rule_for(parameter: Parameter) -> DivisionRule | None:
    """The rule of a parameter; ``None`` if it is whole on every device."""
    for rule in TABLE:
        if rule.layer == parameter.layer and re.search(f"({rule.names})$", parameter.name):
            return rule
    return None


def divided_axes(options: ModelOptions, parts: int, names: Collection[str] = ()) -> dict[str, int]:
    """The axis along which each parameter is divided into ``parts``, by name; whole parameters are missing.

    names: of the parameters in the model's file, as for ``parameters``. ``OptionError`` if heads or hidden
    units cannot be divided. A vocabulary that cannot be divided stays whole.
    """
    if parts == 1:
        return {}
    found = {}
    for name, parameter in parameters(options, names).items():
        rule = rule_for(parameter)
        if rule is None:
            continue
        size = parameter.shape[rule.axis]
        if rule.each == HEADS and options.transformer_heads % parts:
            raise _indivisible(parts, "transformer-heads", options.transformer_heads)
        if size % parts == 0:
            found[name] = rule.axis
        elif rule.each != WORDS:
            raise _indivisible(parts, text_of_size(size), size)
    return found


def warn_of_whole_vocabularies(options: ModelOptions, parts: int) -> None:
    """Log a warning for each vocabulary size that cannot be divided into ``parts``."""
    for size in sorted({size for size in options.dim_vocabs if size % parts}):
        logger.warning(
            "--tensor-parallel %d: every device has the whole vocabulary of %d words; it would be divided"
            " if it had %d",
            *(parts, size, -(-size // parts) * parts),
        )


def _indivisible(parts: int, what: str, size: int) -> OptionError:
    return OptionError(f"--tensor-parallel {parts}: expected a number that divides --{what}, which is {size}")
