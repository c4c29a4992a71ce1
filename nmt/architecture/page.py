"""The page "Model parameters", written from the table."""

from __future__ import annotations

import typing
from collections.abc import Iterator

from nmt.settings.model_options import OPTIONS, ModelOptions

from .conditions import Condition
from .notation import Block, Either, Part, Row
from .scope import Scope, Size
from .types import TYPES

_KINDS = {bool: "flag", int: "number", str: "text", tuple[int, ...]: "numbers", tuple[str, ...]: "texts"}

_INTRODUCTION = """\
# Model parameters

Which parameters each of Marian's models has. Written by `mgraph parameters --markdown` from the table in
`nmt/architecture`, from which models are created and files are checked; a test holds it against models that
Marian trained.

A model type is put together from blocks under prefixes, which are joined by `_`: the parameter `W` of a
block at `l{layer}_rnn` in one at `decoder` is `decoder_l1_rnn_W`, `decoder_l2_rnn_W`, ... What stands behind
two dots comes after the names of the parameters. Shapes are written in options and in names that the block
around gives. Files of the types `amun`, `nematus` and `transformer-new` have other names. Initial values are
functions of `mgraph.inits`; with `transformer-depth-scaling`, which models do not keep, those that are marked
"by depth" are divided by the square root of the layer's number. `mgraph parameters --model model.npz` lists
the parameters of one model.
"""


def markdown() -> str:
    """The page."""
    blocks = [block for block in _used() if block.name not in TYPES]
    return "\n".join(
        [
            _INTRODUCTION,
            "## Types\n",
            *(_section(block) for block in TYPES.values()),
            "## Blocks\n",
            *(_section(block) for block in blocks),
            "## Options\n",
            _options(),
        ]
    )


def _used() -> list[Block]:
    """All blocks, each once, those of which a block is made after it."""
    found: dict[str, Block] = {}

    def visit(block: Block) -> None:
        found.setdefault(block.name, block)
        for part in block.parts:
            visit(part.block)

    for block in TYPES.values():
        visit(block)
    return list(found.values())


def _section(block: Block) -> str:
    needs = "" if block.needs is None else f" Needs {_code(_text(block.needs))}."
    lines = [f"### {block.name}\n", f"{block.title[0].upper()}{block.title[1:]}.{needs}\n"]
    if block.rows:
        lines += _table(("parameter", "shape", "initial values", "exists with"), map(_row, block.rows))
    if block.parts:
        lines += _table(("at", "block", "for each", "with", "exists with"), map(_part, block.parts))
    return "\n".join(lines)


def _row(row: Row) -> tuple[str, ...]:
    init = f"{row.init}, by depth" if row.init.scaled else str(row.init)
    return _code(row.name), _code(" x ".join(map(str, row.shape))), init, _code(_text(row.when))


def _part(part: Part) -> tuple[str, ...]:
    each = part.each
    repeated = "" if each is None else f"{each.name} from {each.first} to {each.last}"
    tied = f", or {each.tied}" if each is not None and each.tied else ""
    place = part.prefix + (f"..{part.suffix}" if part.suffix else "")
    sizes = (f"{name} = {_size(size)}" for name, size in part.sizes.items())
    return (
        "without a prefix" if part.rooted else _code(place),
        f"[{part.block.name}](#{part.block.name.replace(' ', '-').replace(',', '')})",
        _code(repeated + tied),
        ", ".join(map(_code, sizes)),
        _code(_text(part.when)),
    )


def _size(size: Size | Either) -> str:
    if isinstance(size, Either):
        return f"{_size(size.then)} if {_text(size.when)}, else {_size(size.other)}"
    return str(size)


def _text(condition: Condition) -> str:
    return condition.text(Scope(ModelOptions()))


def _options() -> str:
    types = typing.get_type_hints(ModelOptions)
    defaults = ModelOptions()
    rows = (
        (
            _code(name),
            _KINDS[types[name.replace("-", "_")]],
            _code(_default(defaults[name])),
            option.values,
            option.help,
        )
        for name, option in OPTIONS.items()
    )
    return "\n".join(_table(("option", "kind", "default", "values", "meaning"), rows))


def _default(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
