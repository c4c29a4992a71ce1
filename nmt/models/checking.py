"""Check the parameters of a file against its options, and infer missing sizes from their shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from layers import Parameter
from mgraph import ParameterError
from nmt.models.explanations import Explanations
from nmt.models.parameters import NamedSize, Shapes, parameters, plain, text_of_size
from nmt.models.parts import TRAINING
from nmt.models.types import TYPES
from nmt.settings.model_options import ModelOptions


def check_parameters(options: ModelOptions, shapes: Shapes) -> None:
    """``ParameterError`` that lists all missing, unknown and wrongly shaped parameters, with the options that
    would explain each. ``shapes`` has the shape of each parameter by name."""
    needed = parameters(_trained(options, shapes), shapes)
    missing = [p for name, p in needed.items() if name not in shapes]
    unknown = {name: shape for name, shape in shapes.items() if name not in needed}
    misshapen = [p for name, p in needed.items() if name in shapes and shapes[name] != p.shape]
    if not (missing or unknown or misshapen):
        return
    explanations = Explanations(options)
    conditions = explanations.conditions() if missing else {}
    hints = explanations.hints(unknown)
    lines = [
        *_listed("missing", (_missing(p, conditions.get(p.name, ())) for p in missing)),
        *_listed("not used", (f"{name} {shape}{_hint(hints[name])}" for name, shape in unknown.items())),
        *_listed("of another shape", (_misshapen(p, shapes[p.name]) for p in misshapen)),
        *_listed("told otherwise by the shapes", _told(options, needed, shapes) if misshapen else ()),
    ]
    raise ParameterError(
        f"the parameters are not those of a model of type {options.type} with these options{''.join(lines)}"
    )


def completed(options: ModelOptions, shapes: Shapes) -> ModelOptions:
    """The options, with sizes that the file omits or sets to 0 inferred from ``shapes``.

    Where no parameter tells the size of a vocabulary, the largest of the others is used, or 1: its table is
    missing, which ``check_parameters`` reports with the option that needs it.
    """
    streams = len(TYPES[options.type].encoders) + 1
    if not any(options.dim_vocabs):
        options = replace(options, dim_vocabs=(0,) * streams)
    if len(options.dim_vocabs) != streams:
        return options
    told = _told_sizes(_possible(options, shapes), shapes)
    unsaid = {n: size for n, size in told.items() if n not in TRAINING and not _given(n, options)}
    options = _with_sizes(options, unsaid)
    likely = max(*options.dim_vocabs, 1)
    return replace(options, dim_vocabs=tuple(size or likely for size in options.dim_vocabs))


def _possible(options: ModelOptions, shapes: Shapes) -> dict[str, Parameter]:
    """The parameters with sizes that fit all other options, because the real sizes may be invalid."""
    size = 4 * max(options.transformer_heads, 1)
    vocabs = (1,) * len(options.dim_vocabs)
    return parameters(replace(options, dim_emb=size, dim_rnn=size, dim_vocabs=vocabs), shapes)


def _trained(options: ModelOptions, shapes: Shapes) -> ModelOptions:
    """The options, with the training sizes that Marian does not save inferred from ``shapes``."""
    told = _told_sizes(parameters(options, shapes), shapes)
    return _with_sizes(options, {name: size for name, size in told.items() if name in TRAINING})


def _told_sizes(needed: Mapping[str, Parameter], shapes: Shapes) -> dict[str, int]:
    """Sizes inferred from ``shapes``, by option (``dim-emb``, ``dim-vocabs[0]``).

    Each of the ``needed`` parameters with the right number of axes votes for the options in its sizes; the
    value with most votes wins.
    """
    votes: dict[str, Counter[int]] = {}
    for name, parameter in needed.items():
        shape = shapes.get(name, ())
        if len(shape) != len(parameter.shape):
            continue
        for said, size in zip(parameter.shape, shape, strict=True):
            if isinstance(said, NamedSize) and size and size % said.factor == 0:
                votes.setdefault(said.option, Counter())[size // said.factor] += 1
    return {name: counter.most_common(1)[0][0] for name, counter in votes.items()}


def _with_sizes(options: ModelOptions, told: Mapping[str, int]) -> ModelOptions:
    """The options with the inferred sizes."""
    values: dict[str, Any] = {}
    vocabs = list(options.dim_vocabs)
    for name, size in told.items():
        option, _, index = name.rstrip("]").partition("[")
        if index:
            vocabs[int(index)] = size
        elif name in TRAINING:
            values["extra"] = MappingProxyType({**options.extra, name: size})
        else:
            values[option.replace("-", "_")] = size
    return replace(options, dim_vocabs=tuple(vocabs), **values)


def _given(name: str, options: ModelOptions) -> bool:
    """Whether the file has this size."""
    option, _, index = name.rstrip("]").partition("[")
    if option not in options.given:
        return False
    return not index or options.dim_vocabs[int(index)] != 0


def _misshapen(parameter: Parameter, shape: tuple[int, ...]) -> str:
    sizes = " x ".join(map(text_of_size, parameter.shape))
    return f"{parameter.name} {shape}, expected {plain(parameter.shape)}: {sizes}"


def _missing(parameter: Parameter, conditions: tuple[str, ...]) -> str:
    needed = f": needed with {', '.join(conditions)}" if conditions else ""
    return f"{parameter.name} {plain(parameter.shape)}{needed}"


def _hint(hint: str) -> str:
    return f": {hint}" if hint else ""


def _told(options: ModelOptions, needed: Mapping[str, Parameter], shapes: Shapes) -> Iterable[str]:
    """Inferred sizes that differ from the options."""
    for name, size in _told_sizes(needed, shapes).items():
        if _with_sizes(options, {name: size}) != options:
            yield f"{name} {size}"


def _listed(problem: str, lines: Iterable[str]) -> list[str]:
    lines = list(lines)
    return [f"\n  {len(lines)} {problem}:", *(f"\n    {line}" for line in lines)] if lines else []
