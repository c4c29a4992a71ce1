"""``mgraph diff``: compare two dumps or models and name the first node that differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from mgraph import ModelFileError, NodeDifference, diff
from mgraph.files.items import MODEL_YML
from mgraph.files.parameter_files import read_items
from nmt.commands.common import Operands
from nmt.settings import Command, OptionError, option, require_readable


class DiffOptions(Operands):
    """The options of ``mgraph diff``."""

    title = "Tolerance"

    rtol: float = option(1e-5, "relative tolerance: |a - b| may be atol + rtol |b|", least=0)
    atol: float = option(1e-6, "absolute tolerance", least=0)


COMMAND = Command(
    "diff",
    "compare two dumps or two models node by node; the exit code is 1 if they differ",
    DiffOptions,
    operands="FILE",
    examples=(
        ("mgraph diff before.npz after.npz", "two dumps of graph.dump(path)"),
        ("mgraph diff model.npz model.bin", "two models"),
    ),
)


def run(options: DiffOptions, argv: Sequence[str]) -> int:
    """Print the differences; the exit code is 1 if there are any."""
    if len(options.operands) != 2:
        raise OptionError(f"two files are needed, got {len(options.operands)}")
    require_readable("FILE", options.operands)
    first, second = (read_items(path) for path in options.operands)
    found = diff(first, second, options.rtol, options.atol)
    found = replace(found, nodes=tuple(_by_option(node, first, second) for node in found.nodes))
    print(found)
    return 0 if found.first is None else 1


def _by_option(node: NodeDifference, *models: Mapping[str, np.ndarray]) -> NodeDifference:
    """``node``, but with the options of models compared by their values, not as text."""
    from nmt.settings.model_options import model_options

    if node.name != MODEL_YML or not node.problem or not all(MODEL_YML in items for items in models):
        return node
    try:
        a, b = (model_options(items, "") for items in models)
    except ModelFileError:
        return node
    unequal = [
        f"{name} is {' and '.join(str(model[name]) if name in model else 'missing' for model in (a, b))}"
        for name in dict.fromkeys([*a, *b])
        if name not in a or name not in b or a[name] != b[name]
    ]
    return NodeDifference(node.name, node.shape, node.type, "; ".join(unequal))
