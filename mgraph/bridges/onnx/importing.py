"""ONNX files as parts of a graph."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import inits
from ...arrays import as_array, described
from ...errors import ArgumentError, ElementTypeError
from ...files.paths import path_text
from ...graph import ExpressionGraph
from ...node import Node
from ...places import here
from ...types import as_type
from ..errors import BridgeError
from .exporting import PARAMETERS, is_large
from .extras import extra
from .read_places import PLACES
from .read_values import VALUES
from .reader import Reader, type_of

OLDEST = 13


def import_onnx(
    graph: ExpressionGraph, path: str | os.PathLike[str], *inputs: Any, **named: Any
) -> dict[str, Node]:
    """The ONNX model ``path`` as a part of ``graph``: its outputs by name, as nodes.

    ``inputs`` are nodes in the order of the model's inputs, or by name; their sizes are those of the graph,
    including open axes. An input that shapes depend on may be a number or an array instead. Initializers that
    ``export_onnx`` wrote as parameters become parameters under their names; in other files, so do all
    floating point initializers that have an axis. The rest become constants. 64-bit integers are read as
    32-bit ones. Gradients are those of the operators: the file does not say where ``stop_gradient`` or a
    frozen node held them back.

    Needs the package onnx: ``pip install 'mgraph-jax[onnx]'``. ``BridgeError`` for a file that is not a valid
    model of operator set 13 or later, for inputs that do not fit and for a parameter that exists with another
    value; ``UnsupportedOperatorError``, with the name, for an operation without a counterpart.
    """
    if not isinstance(graph, ExpressionGraph):
        raise ArgumentError(f"import_onnx: expected a graph, got {described(graph)}{here()}")
    model = _loaded(path_text(path))
    opsets = {o.domain: o.version for o in model.opset_import}
    opset = opsets.get("", opsets.get("ai.onnx", 0))
    if opset < OLDEST:
        raise BridgeError(
            f"import_onnx: {path} uses operator set {opset}; the oldest supported one is {OLDEST}"
        )
    if model.graph.sparse_initializer:
        raise BridgeError(f"import_onnx: {path} has sparse constants, which are not read")
    reader = Reader(graph, {**VALUES, **PLACES}, opset)
    listed = {p.key: p.value for p in model.metadata_props}.get(PARAMETERS)
    parameters = None if listed is None else _names(listed, path)
    known = {tensor.name for tensor in model.graph.initializer}
    wanted = [info for info in model.graph.input if info.name not in known]
    given = _given([info.name for info in wanted], inputs, named)
    for info in wanted:
        reader.values[info.name] = _input(reader, info, given[info.name])
    first = len(graph.tape.nodes)
    with graph.tape.all_or_nothing(), graph.params().all_or_nothing():
        for tensor in model.graph.initializer:
            reader.values[tensor.name] = _initializer(graph, reader, tensor, parameters)
        reader.run(model.graph.node)
        found = {info.name: reader.node(reader.values[info.name]) for info in model.graph.output}
    graph.tape.hide_dead_ends(first, found.values())
    return found


def _names(listed: str, path: str | os.PathLike[str]) -> dict[str, str]:
    """The names of parameters by those of their initializers, as ``export_onnx`` lists them."""
    try:
        found = json.loads(listed)
        return dict(found) if isinstance(found, dict) else {name: name for name in found}
    except (ValueError, TypeError, RecursionError) as error:
        raise BridgeError(f"import_onnx: {path}: {PARAMETERS}: expected a list of names: {error}") from None


def _loaded(path: str) -> Any:
    onnx = extra("onnx")
    try:
        model = onnx.load(path)
        onnx.checker.check_model(path if is_large(model) else model)
    except OSError:
        raise
    except Exception as e:  # protobuf and the checker raise their own errors
        raise BridgeError(f"import_onnx: {path} is not a valid ONNX model: {str(e).strip()[:500]}") from None
    return model


def _initializer(
    graph: ExpressionGraph, reader: Reader, tensor: Any, parameters: Mapping[str, str] | None
) -> Any:
    array = reader.onnx.numpy_helper.to_array(tensor)
    try:
        kind = as_type(array.dtype)
    except ElementTypeError:
        raise BridgeError(
            f"import_onnx: the constant {tensor.name!r} is of {array.dtype}, which is not an element type of "
            "a graph"
        ) from None
    if not (kind.is_float and array.ndim if parameters is None else tensor.name in parameters):
        return array
    name = tensor.name if parameters is None else parameters[tensor.name]
    known = graph.get(name)
    node = graph.param(name, array.shape, inits.from_tensor(array), kind)
    if known is not None and not np.array_equal(np.asarray(known.val()), array, equal_nan=kind.is_float):
        raise BridgeError(f"import_onnx: parameter {name!r} is in the graph already, with another value")
    return node


def _given(names: list[str], inputs: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    given = {**dict(zip(names, inputs, strict=False)), **named}
    if len(inputs) > len(names) or set(given) != set(names) or len(given) != len(inputs) + len(named):
        raise BridgeError(
            f"import_onnx: expected the inputs {names}, got {len(inputs)} and {sorted(named)} by name{here()}"
        )
    return given


def _input(reader: Reader, info: Any, value: Any) -> Any:
    tensor = info.type.tensor_type
    try:
        kind = type_of(reader, tensor.elem_type)
    except (ElementTypeError, KeyError):  # KeyError for a sequence of tensors
        raise BridgeError(
            f"import_onnx: input {info.name!r} is no tensor of an element type of a graph{here()}"
        ) from None
    sizes = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    shape: tuple[int, ...]
    if isinstance(value, Node):
        shape = value.shape
        same = value.value_type is kind or (kind.is_index and value.value_type.is_index)
    else:
        dtype = reader.onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        array = as_array(f"import_onnx: input {info.name!r}", value)
        shape = array.shape
        same = np.can_cast(array.dtype, dtype, "same_kind")
    fits = len(sizes) == len(shape) and all(n in (None, m) for n, m in zip(sizes, shape, strict=True))
    if (tensor.HasField("shape") and not fits) or not same:
        expected = f"{kind}{['?' if n is None else n for n in sizes]}"
        got = repr(value.spec) if isinstance(value, Node) else f"{value!r:.80}"
        raise BridgeError(f"import_onnx: input {info.name!r} is {expected}, got {got}{here()}")
    return value.current() if isinstance(value, Node) else array.astype(dtype)
