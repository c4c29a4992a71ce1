"""The page "Model parameters", written from the models themselves."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator
from typing import Any

from layers import Parameter, UnsupportedOptionError
from mgraph.inits import Glorot
from nmt.models.explanations import DEPTHS
from nmt.models.parameters import parameters, text_of_size
from nmt.models.types import TYPES
from nmt.settings.model_options import OPTIONS, ModelOptions, check_values

_KINDS = {bool: "flag", int: "number", str: "text", tuple[int, ...]: "numbers", tuple[str, ...]: "texts"}
_ABOUT = {
    "s2s": "Recurrent encoder and decoder.",
    "amun": "`s2s`, with Amun's parameter names in files.",
    "nematus": "`s2s`, with Nematus's normalization and, in files, its parameter names.",
    "multi-s2s": "Recurrent, two sources.",
    "shared-multi-s2s": "Recurrent, two sources, one encoder for both.",
    "lm": "Recurrent language model.",
    "transformer": "Transformer encoder and decoder.",
    "transformer-new": "`transformer`, with other parameter names in files.",
    "multi-transformer": "Transformer, two sources.",
    "shared-multi-transformer": "Transformer, two sources, one encoder for both.",
    "lm-transformer": "Transformer language model.",
    "transformer_s2s": "Transformer encoder, recurrent decoder.",
}
_SHOWN = ("s2s", "transformer")
"""Types whose parameters are shown with every option."""

_INTRODUCTION = """\
# Model parameters

The parameters of each of Marian's models. Written by `mgraph parameters --markdown`, which creates models of
each type and lists what their layers declare; a test compares the lists with models that Marian trained.

Layers are numbered from 1: `decoder_l1_self_Wq`, `decoder_l2_self_Wq`, ... The tables show models of one
layer. Shapes are written in terms of options. Layers are classes of `layers`, whose docstrings have their
formulas. Files of the types `amun`, `nematus` and `transformer-new` have other parameter names. Initial
values are functions of `mgraph.inits`; `transformer-depth-scaling`, which model files do not store, divides
the initial matrices of a transformer's layers by the square root of the layer's number. `mgraph parameters
--model model.npz` lists the parameters of one model, and the options that each exists with.
"""


def markdown() -> str:
    """The page."""
    return "\n".join(
        [
            _INTRODUCTION,
            "## Types\n",
            "Every option has its default, except that each stream has one vocabulary.\n",
            *_types(),
            "## What options change\n",
            *(_changes(name) for name in _SHOWN),
            "## Options\n",
            *_options(),
        ]
    )


def _plain(model_type: str, **changed: Any) -> ModelOptions:
    only = {name.replace("-", "_"): value for name, value in TYPES[model_type].only.items()}
    values: dict[str, Any] = {"type": model_type, **only, **changed}
    return ModelOptions(dim_vocabs=(1,) * (len(TYPES[model_type].encoders) + 1), **values)


def _types() -> Iterator[str]:
    """A section for each type; parameters that several types share are shown once."""
    shown: dict[tuple[tuple[str, ...], ...], str] = {}
    for name, about in _ABOUT.items():
        rows = tuple(
            (_code(p.name), _code(_shape(p)), _init(p), _code(p.layer))
            for p in parameters(_plain(name)).values()
        )
        first = shown.setdefault(rows, name)
        table = _table(("parameter", "shape", "initial values", "layer"), rows)
        same = [f"The parameters of [{first}](#{first}).\n"]
        yield "\n".join([f"### {name}\n", f"{about}\n", *(table if first == name else same)])


def _changes(model_type: str) -> str:
    """What each option adds to a model of a type and takes from it."""
    plain = parameters(_plain(model_type))
    lines = [f"### {model_type} with\n"]
    rows = []
    for name, value in _values(model_type):
        try:
            options = _plain(model_type, **{name.replace("-", "_"): value})
            check_values(options)
            other = parameters(options)
        except UnsupportedOptionError:
            continue
        added = [f"`{p.name}` {_code(_shape(p))}" for n, p in other.items() if n not in plain]
        gone = [f"`{n}`" for n in plain if n not in other]
        if added or gone:
            rows.append((_code(_given(name, value)), ", ".join(added), ", ".join(gone)))
    return "\n".join([*lines, *_table(("option", "adds", "removes"), rows)])


def _values(model_type: str) -> Iterable[tuple[str, Any]]:
    """Options that may change which parameters a model has, with values other than the default."""
    default = _plain(model_type)
    for name, option in OPTIONS.items():
        value = default[name]
        if isinstance(value, bool):
            yield name, not value
        elif option.letters:
            yield from ((name, letter) for letter in option.letters)
        elif option.choices and name != "type":
            yield from ((name, choice) for choice in option.choices if choice != value)
        elif name in DEPTHS:
            yield name, max(int(str(value)), 1) + 1


def _given(name: str, value: Any) -> str:
    return name if value is True else f"{name} {'false' if value is False else value}"


def _shape(parameter: Parameter) -> str:
    return " x ".join(map(text_of_size, parameter.shape))


def _init(parameter: Parameter) -> str:
    init = parameter.init
    if not isinstance(init, Glorot):
        return repr(init).removeprefix("inits.")
    fans = [name for name in ("fan_in", "fan_out") if getattr(init, name)]
    return f"glorot_uniform({fans[0]})" if len(fans) == 1 else "glorot_uniform"


def _options() -> list[str]:
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
    return _table(("option", "kind", "default", "values", "meaning"), rows)


def _default(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
