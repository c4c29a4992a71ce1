"""First values of the parameters of a new model."""

from __future__ import annotations

from typing import Any

from mgraph import ExpressionGraph
from nmt.settings.model_options import ModelOptions

from .table import parameters


def initial_values(options: ModelOptions, seed: int) -> dict[str, Any]:
    """The parameters that the options ask for, drawn as Marian initializes them, by name."""
    graph = ExpressionGraph(inference=True, seed=seed)
    for parameter in parameters(options).values():
        graph.param(parameter.name, parameter.shape, parameter.initializer)
    return dict(graph.params().vals())
