"""``mgraph parameters``: list the parameters of a model or of all types of models."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nmt.commands.common import Json
from nmt.settings import Command, OptionError, Options, option

if TYPE_CHECKING:
    import numpy as np

    from layers import Parameter


class ListedModel(Options):
    """The model whose parameters to list."""

    title = "Model"

    model: str = option("", "list those of this model: .npz, .bin or .safetensors", short="m")


class Divided(Options):
    """How training divides the parameters."""

    title = "Division"

    tensor_parallel: int = option(
        1, "show the part of each parameter on one of N devices", least=1, command=True
    )


class ParametersOutput(Json):
    """The format of the list."""

    markdown: bool = option(False, 'print the page "Model parameters" instead', command=True)


class ParametersOptions(ListedModel, Divided, ParametersOutput):
    """The options of ``mgraph parameters``."""


DIVIDED = ("rows", "columns")
"""Names of the axes along which parameters are divided."""
PARTS = ("each device has", "divided by")
COMMAND = Command(
    "parameters",
    "list the parameters of a model with their shapes, or those of all model types and options",
    ParametersOptions,
    examples=(
        ("mgraph parameters -m model.npz", "name, shape, size, layer, and the options that it exists with"),
        ("mgraph parameters -m model.npz --tensor-parallel 4", "the parts that each of four devices has"),
        ("mgraph parameters --markdown", "the page of all model types"),
    ),
)


def run(options: ParametersOptions, argv: Sequence[str]) -> None:
    """Print the list, or the page."""
    if not options.model and not options.markdown:
        raise OptionError("either --model or --markdown is needed")
    of_model = {"model": options.model, "tensor-parallel": options.tensor_parallel > 1, "json": options.json}
    for name, given in of_model.items():
        if options.markdown and given:
            raise OptionError(f"--{name} cannot go with --markdown")
    if options.markdown:
        from nmt.models.page import markdown

        print(markdown(), end="")
        return
    from nmt.files.loading import read_parameters
    from nmt.models.explanations import Explanations
    from nmt.models.parameters import parameters
    from nmt.training.learning.division import divided_axes

    model, params = read_parameters(options.model)
    rows = _rows(params, parameters(model, params), Explanations(model).conditions())
    if options.tensor_parallel > 1:
        rows = _divided(rows, divided_axes(model, options.tensor_parallel, params), options.tensor_parallel)
    print(json.dumps(rows, indent=2) if options.json else _table(model.type, rows))


def _rows(
    params: Mapping[str, np.ndarray],
    known: Mapping[str, Parameter],
    conditions: Mapping[str, Sequence[str]],
) -> list[dict[str, Any]]:
    """The row of each parameter; the layer is empty if the parameter is not one of the model's."""
    return [
        {
            "name": name,
            "shape": list(value.shape),
            "size": value.size,
            "layer": known[name].layer if name in known else "",
            "options": list(conditions.get(name, ())),
        }
        for name, value in sorted(params.items())
    ]


def _divided(rows: Sequence[Mapping[str, Any]], axes: Mapping[str, int], parts: int) -> list[dict[str, Any]]:
    """The rows with the axis along which each parameter is divided into ``parts``, and a part's shape."""
    found = []
    for row in rows:
        axis = axes.get(row["name"])
        part = [size // parts if i == axis else size for i, size in enumerate(row["shape"])]
        found.append({**row, "divided": "" if axis is None else DIVIDED[axis], "part": part})
    return found


def _table(model_type: str, rows: Sequence[Mapping[str, Any]]) -> str:
    divided = any("part" in row for row in rows)
    columns = [["parameter", "shape", "size", *(PARTS if divided else ()), "layer", "exists with"]]
    for row in rows:
        part = [_shape(row["part"]), row["divided"] or "whole"] if divided else []
        found = row["layer"] or "unknown", ", ".join(row["options"])
        columns.append([row["name"], _shape(row["shape"]), f"{row['size']:,}", *part, *found])
    widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in columns]
    total = sum(row["size"] for row in rows)
    summary = f"{model_type}: {len(rows)} parameters, {total:,} numbers"
    if divided:
        summary += f", {sum(math.prod(row['part']) for row in rows):,} on each device"
    return "\n".join([*lines, "", summary])


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))
