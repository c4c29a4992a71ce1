"""Whether the parameters of a file are just those that its options ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from mgraph import ParameterError
from nmt.settings.model_options import ModelOptions

from .hints import explanations, told_sizes, with_sizes
from .scope import TRAINING
from .table import Parameter, parameters, possible
from .types import TYPES

Shapes = Mapping[str, tuple[int, ...]]


def check_parameters(options: ModelOptions, shapes: Shapes) -> None:
    """``ParameterError`` that lists all parameters that are missing, unknown or wrongly shaped.

    It says with each which options would explain it. ``shapes`` are those of the parameters, by name.
    """
    needed = parameters(_trained(options, shapes), shapes)
    missing = [p for name, p in needed.items() if name not in shapes]
    unknown = {name: shape for name, shape in shapes.items() if name not in needed}
    misshapen = [p for name, p in needed.items() if name in shapes and shapes[name] != p.shape]
    if not (missing or unknown or misshapen):
        return
    hints = explanations(unknown, options)
    lines = [
        *_listed("missing", (f"{p.name} {p.shape}{_because(p)}" for p in missing)),
        *_listed("not used", (f"{name} {shape}{_hint(hints, name)}" for name, shape in unknown.items())),
        *_listed(
            "of another shape",
            (f"{p.name} {shapes[p.name]}, expected {p.shape}: {' x '.join(p.sizes)}" for p in misshapen),
        ),
        *_listed("told otherwise by the shapes", _told(options, needed, shapes) if misshapen else ()),
    ]
    raise ParameterError(
        f"the parameters are not those of a {options.type} model with these options{''.join(lines)}"
    )


def completed(options: ModelOptions, shapes: Shapes) -> ModelOptions:
    """The options, with sizes that the file does not say, or says are 0, told by ``shapes``."""
    streams = len(TYPES[options.type].parts)
    if not any(options.dim_vocabs):
        options = replace(options, dim_vocabs=(0,) * streams)
    if len(options.dim_vocabs) != streams:
        return options
    told = told_sizes(possible(options, shapes), shapes)
    unsaid = {n: size for n, size in told.items() if n not in TRAINING and not _given(n, options)}
    return with_sizes(options, unsaid)


def _trained(options: ModelOptions, shapes: Shapes) -> ModelOptions:
    """The options, with those sizes of training that Marian does not keep told by ``shapes``."""
    told = told_sizes(possible(options, shapes), shapes)
    return with_sizes(options, {name: size for name, size in told.items() if name in TRAINING})


def _given(name: str, options: ModelOptions) -> bool:
    """Whether the file says this size."""
    option, _, index = name.rstrip("]").partition("[")
    if option not in options.given:
        return False
    return not index or options.dim_vocabs[int(index)] != 0


def _because(parameter: Parameter) -> str:
    return f": needed with {', '.join(parameter.when)}" if parameter.when else ""


def _hint(hints: Mapping[str, str], name: str) -> str:
    return f": {hints[name]}" if hints[name] else ""


def _told(options: ModelOptions, needed: Mapping[str, Parameter], shapes: Shapes) -> Iterable[str]:
    """Sizes that differ from those of the options."""
    for name, size in told_sizes(needed, shapes).items():
        if with_sizes(options, {name: size}) != options:
            yield f"{name} {size}"


def _listed(problem: str, lines: Iterable[str]) -> list[str]:
    lines = list(lines)
    return [f"\n  {len(lines)} {problem}:", *(f"\n    {line}" for line in lines)] if lines else []
