"""Recurrent cells, each with ``input`` features (0 for a cell without input) and ``state`` features."""

from __future__ import annotations

from collections.abc import Mapping

from .conditions import Given, Is, Same
from .dense import NORMED
from .notation import EYE, ONES, ZEROS, Block, Init, Row

FED = Given("input")
_EVEN = Same("input", "state")


def _gates(number: str) -> tuple[Row, ...]:
    """Weights that stand side by side in one matrix, ``number`` of them."""
    return (
        Row("U", ("state", number)),
        Row("W", ("input", number), when=FED),
        Row("b", (1, number), ZEROS),
        Row("gamma1", (1, number), ONES, NORMED & FED),
        Row("gamma2", (1, number), ONES, NORMED),
    )


def _plain(gains: str, recurrent: Init | None = None) -> tuple[Row, ...]:
    return (
        Row("U", ("state", "state"), recurrent) if recurrent else Row("U", ("state", "state")),
        Row("W", ("input", "state"), when=FED),
        Row("b", (1, "state"), ZEROS),
        Row("gamma1", (1, gains), ONES, NORMED & FED),
        Row("gamma2", (1, gains), ONES, NORMED),
    )


def _norms(weight: str, size: str, *, fed: bool) -> tuple[Row, ...]:
    """Nematus's gain and bias for the product with one matrix."""
    when = NORMED & FED if fed else NORMED
    return Row(f"{weight}_lns", (1, size), ONES, when), Row(f"{weight}_lnb", (1, size), ZEROS, when)


_GRU = (
    Row("U", ("state", "2 * state")),
    Row("Ux", ("state", "state")),
    Row("W", ("input", "2 * state"), when=FED),
    Row("Wx", ("input", "state"), when=FED),
    Row("b", (1, "2 * state"), ZEROS),
    Row("bx", (1, "state"), ZEROS),
)
_GAINS = (
    Row("gamma1", (1, "3 * state"), ONES, NORMED & FED),
    Row("gamma2", (1, "3 * state"), ONES, NORMED),
)
_MULTIPLIER = (
    Row("Um", ("state", "state")),
    Row("Wm", ("input", "state"), when=FED),
    Row("bm", (1, "state"), ZEROS),
    Row("bwm", (1, "state"), ZEROS),
    Row("gamma1m", (1, "state"), ONES, NORMED),
    Row("gamma2m", (1, "state"), ONES, NORMED),
)
_SSRU = (
    Row("W", ("input", "state"), when=FED),
    Row("Wf", ("input", "state"), when=FED),
    Row("bf", (1, "state"), ZEROS),
    Row("gamma", (1, "state"), ONES, NORMED),
    Row("gammaf", (1, "state"), ONES, NORMED),
)

CELLS: Mapping[str, Block] = {
    block.name: block
    for block in (
        Block("gru", "the gated recurrent unit", (*_GRU, *_GAINS)),
        Block(
            "gru-nematus",
            "the gated recurrent unit with the layer normalization of Nematus",
            (
                *_GRU,
                *_norms("U", "2 * state", fed=False),
                *_norms("Ux", "state", fed=False),
                *_norms("W", "2 * state", fed=True),
                *_norms("Wx", "state", fed=True),
            ),
        ),
        Block("lstm", "long short-term memory", _gates("4 * state")),
        Block(
            "mlstm",
            "multiplicative long short-term memory",
            (*_gates("4 * state"), *_MULTIPLIER),
            needs=FED,
        ),
        Block(
            "mgru",
            "the multiplicative gated recurrent unit",
            (*_GRU, *_GAINS, *_MULTIPLIER),
            needs=FED,
        ),
        Block("tanh", "a hyperbolic tangent; two thirds of its gains do nothing", _plain("3 * state")),
        Block("relu", "a rectifier", _plain("state", EYE)),
        Block(
            "sru",
            "the simple recurrent unit",
            (
                *_SSRU,
                Row("Wr", ("input", "state"), when=FED),
                Row("br", (1, "state"), ZEROS),
                Row("gammar", (1, "state"), ONES, NORMED),
            ),
            needs=_EVEN,
        ),
        Block("ssru", "the simpler simple recurrent unit", _SSRU, needs=_EVEN),
    )
}
"""By the value of ``enc-cell`` and ``dec-cell``."""

CELL = Block(
    "cell",
    "the cell that an option names",
    parts=tuple(block.at(when=Is("kind", name)) for name, block in CELLS.items()),
)
