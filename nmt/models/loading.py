"""Model files into models, strictly: everything that a model needs is there, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import numpy as np

from mgraph import ExpressionGraph, MGraphError, ModelFileError, ParameterError, Type
from mgraph.files.parameter_files import read_items
from nmt.model_options import ModelOptions, model_options
from nmt.models.model import Model
from nmt.models.parts import Source
from nmt.models.support import check_options


def load_model(path: str | os.PathLike[str]) -> Model:
    """The model in the file ``path``, an ``.npz`` or ``.bin`` that Marian made.

    The configuration comes from the file (``special:model.yml``). ``ModelFileError`` if the file is damaged
    or has no configuration, ``ParameterError`` if its parameters are not just those that the configuration
    needs, in the same shapes; it lists every one. ``UnsupportedOptionError`` for a type or an option that
    is unknown or not supported yet. ``OSError`` if the file cannot be read. Every message names the file.
    """
    name = os.fspath(path)
    items = read_items(path)
    options = model_options(items, name)
    items = {item: array for item, array in items.items() if not _is_extra(item)}
    try:
        check_options(options)
        model = Model(options, _parameters(items))
        check_parameters(model)
    except MGraphError as error:
        raise type(error)(f"{name}: {error}") from None
    return model


def create_model(options: ModelOptions, *, seed: int = 1) -> Model:
    """A model with the parameters that ``options`` ask for, drawn as Marian initialises them."""
    check_options(options)
    graph = _declared(Model(options, {}), seed)
    return Model(options, graph.params().vals())


def check_parameters(model: Model) -> None:
    """``ParameterError`` that lists all parameters that are missing, unknown or wrongly shaped."""
    needed = {name: node.shape for name, node in _declared(model).params().items()}
    found = {name: tuple(value.shape) for name, value in model.params.items()}
    problems = [
        *_listed("missing", (f"{n} {s}" for n, s in needed.items() if n not in found)),
        *_listed("not used", (f"{n} {s}" for n, s in found.items() if n not in needed)),
        *_listed(
            "of another shape",
            (f"{n} {found[n]}, expected {s}" for n, s in needed.items() if n in found and found[n] != s),
        ),
    ]
    if problems:
        raise ParameterError(
            f"the parameters are not those of a {model.type} model with these options{''.join(problems)}"
        )


def _listed(problem: str, lines: Iterable[str]) -> list[str]:
    lines = list(lines)
    return [f"\n  {len(lines)} {problem}:", *(f"\n    {line}" for line in lines)] if lines else []


def _declared(model: Model, seed: int = 1) -> ExpressionGraph:
    """A graph with all parameters that the model asks for, none of them computed."""
    graph = ExpressionGraph(inference=True, seed=seed)
    ids = graph.input("ids", (1, 2), Type.int32)
    source = Source(ids, graph.input("mask", (1, 2)))
    model.logits(graph, model.encode(graph, [source] * model.sources), ids)
    return graph


def _is_extra(item: str) -> bool:
    """Whether an item of a model file is no parameter: the configuration, or the factors by which Bergamot's
    Marian quantises activations."""
    return item.startswith("special:") or item.endswith("_QuantMultA")


def _parameters(items: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters as float32."""
    odd = [f"{name} {array.dtype}" for name, array in items.items() if array.dtype.kind != "f"]
    if odd:
        raise ModelFileError(f"parameters of floating point are expected, got {', '.join(odd)}")
    return {name: array.astype(np.float32, copy=False) for name, array in items.items()}
