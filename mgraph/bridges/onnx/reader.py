"""Reading ONNX operations: known values, nodes, attributes."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np

from ... import inits
from ...errors import ElementTypeError
from ...graph import ExpressionGraph
from ...node import Node
from ...types import Type, as_type
from ..errors import BridgeError, UnsupportedOperatorError
from ..jaxpr import from_jax
from .extras import extra

Value = Any
"""A node, a numpy array that is known when the graph is recorded, or ``None`` for an input left out."""

MAX_FOLDED = 1 << 22
"""The most elements that folding an operation may produce: a short file can ask for any number."""
MAX_SIZES = 64
"""The most elements that an array may have to be taken for a shape."""

DRAWS = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
"""Operations that draw random numbers, which must not become constants."""

ReadRule = Callable[..., Any]


class Reader:
    """Reads one ONNX graph into an ``ExpressionGraph``."""

    def __init__(
        self,
        graph: ExpressionGraph,
        rules: Mapping[str, ReadRule],
        opset: int,
        values: MutableMapping[str, Value] | None = None,
    ) -> None:
        self.onnx = extra("onnx")
        self.graph, self.rules, self.opset = graph, rules, opset
        self.values: MutableMapping[str, Value] = {} if values is None else values
        self._constants: dict[int, tuple[np.ndarray, Node]] = {}

    def inner(self) -> Reader:
        """A reader for the body of a loop."""
        return Reader(self.graph, self.rules, self.opset, ChainMap({}, self.values))

    def run(self, operations: Any) -> None:
        """Read operations in order."""
        for source in operations:
            inputs = [self.values[name] if name else None for name in source.input]
            results = self._results(ReadOperation(self, source), inputs)
            for name, value in zip(source.output, results, strict=False):
                if name:
                    self.values[name] = value

    def _results(self, operation: ReadOperation, inputs: list[Value]) -> list[Value]:
        standard = operation.source.domain in ("", "ai.onnx")
        known = not any(isinstance(value, Node) for value in inputs)
        known &= standard and operation.kind not in DRAWS
        if known and not operation.has_graphs and (results := operation.folded(inputs)) is not None:
            return results
        rule = self.rules.get(operation.kind) if standard else None
        if rule is None:
            raise UnsupportedOperatorError(
                f"import_onnx: the operation {operation.kind!r} ({operation.title}) has no counterpart here"
            )
        try:
            result = rule(operation, *inputs)
        except ElementTypeError as error:
            raise operation.refuse(str(error)) from None
        return list(result) if isinstance(result, list | tuple) else [result]

    def node(self, value: Value) -> Node:
        """``value`` as a node; an array becomes a constant, with 64-bit integers as 32-bit ones."""
        if isinstance(value, Node):
            return value
        known = self._constants.get(id(value))
        if known is None:
            array = narrowed(np.asarray(value))
            made = self.graph.constant(array.shape, inits.from_tensor(array), as_type(array.dtype))
            known = self._constants[id(value)] = (value, made)
        return known[1]


class ReadOperation:
    """One operation of an ONNX graph."""

    def __init__(self, reader: Reader, source: Any) -> None:
        self.reader, self.source = reader, source
        self.kind: str = source.op_type
        get = reader.onnx.helper.get_attribute_value
        self.attributes = {attribute.name: get(attribute) for attribute in source.attribute}

    @property
    def title(self) -> str:
        name = f"{self.source.name!r}, " if self.source.name else ""
        return f"{name}giving {', '.join(map(repr, self.source.output))}"

    @property
    def has_graphs(self) -> bool:
        return any(isinstance(v, self.reader.onnx.GraphProto) for v in self.attributes.values())

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; bytes as ``str``."""
        value = self.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def node(self, value: Value) -> Node:
        return self.reader.node(value)

    def nodes(self, values: Any) -> list[Node]:
        return [self.reader.node(value) for value in values]

    def known(self, value: Value, what: str) -> np.ndarray:
        """A value that must be known when the graph is recorded; ``BridgeError`` for a node."""
        if isinstance(value, Node):
            raise BridgeError(
                f"import_onnx: {self.kind} ({self.title}) computes its {what} from values that are not known "
                "when the graph is recorded"
            )
        return np.asarray(value)

    def ints(self, value: Value, what: str) -> list[int]:
        return [int(n) for n in self.known(value, what).reshape(-1)]

    def axes(self, given: Value = None) -> list[int] | None:
        """The axes, an attribute in old operator sets and an input in new ones; ``None`` for all."""
        if given is not None:
            return self.ints(given, "axes")
        found = self.attributes.get("axes")
        return None if found is None else [int(n) for n in found]

    def jax(self, function: Callable[..., Any], *values: Value) -> Node:
        """A function of JAX on these values, as a node."""
        made: Node = from_jax(self.reader.graph, function, *self.nodes(values))
        return made

    def refuse(self, reason: str) -> UnsupportedOperatorError:
        return UnsupportedOperatorError(f"import_onnx: {self.kind} ({self.title}): {reason}")

    def folded(self, inputs: list[Value]) -> list[Value] | None:
        """The results for known inputs, computed by ONNX's own reference; ``None`` where that fails."""
        onnx, reference = self.reader.onnx, extra("onnx.reference")
        given = {n: v for n, v in zip(self.source.input, inputs, strict=True) if n}
        infos = [
            onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            for n, v in given.items()
        ]
        outs = [onnx.ValueInfoProto(name=n) for n in self.source.output if n]
        body = onnx.helper.make_graph([self.source], "known", infos, outs)
        opsets = [onnx.helper.make_opsetid("", self.reader.opset)]
        model = onnx.helper.make_model(body, opset_imports=opsets)
        self._check_sizes(model, given)
        try:
            results = iter(reference.ReferenceEvaluator(model).run(None, given))
        except Exception:  # any class: GatherElements along axis -1 raises ValueError
            return None
        return [np.asarray(next(results)) if name else None for name in self.source.output]

    def _check_sizes(self, model: Any, given: Mapping[str, np.ndarray]) -> None:
        """``BridgeError`` if ``model``, which has this operation alone, produces more elements than
        ``MAX_FOLDED`` and than its largest input and the largest tensor that the file gives it."""
        onnx, inference = self.reader.onnx, extra("onnx.shape_inference")
        told = onnx.ModelProto()
        told.CopyFrom(model)
        small = {name: array for name, array in given.items() if array.size <= MAX_SIZES}
        told.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in small.items())
        tensors = [v for v in self.attributes.values() if isinstance(v, onnx.TensorProto)]
        stored = [*(array.size for array in given.values()), *(math.prod(v.dims) for v in tensors)]
        most = max([MAX_FOLDED, *stored])
        for output in inference.infer_shapes(told).graph.output:
            shape = tuple(dim.dim_value for dim in output.type.tensor_type.shape.dim)
            if math.prod(shape) > most:
                raise BridgeError(
                    f"import_onnx: {self.kind} ({self.title}) makes a constant of shape {shape}; at most "
                    f"{most} elements are computed when a file is read"
                )


def narrowed(array: np.ndarray) -> np.ndarray:
    """64-bit integers as the 32-bit ones that JAX uses, clamped to their range."""
    if array.dtype != np.int64:
        return array
    bounds = np.iinfo(np.int32)
    return np.clip(array, bounds.min, bounds.max).astype(np.int32)


def type_of(reader: Reader, number: int) -> Type:
    """The element type of an ONNX type code; int64 becomes int32."""
    found = as_type(reader.onnx.helper.tensor_dtype_to_np_dtype(number))
    return Type.int32 if found is Type.int64 else found
