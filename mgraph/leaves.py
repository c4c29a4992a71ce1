"""Leaves of a graph: constants and named parameters."""

from __future__ import annotations

import math
import weakref
import zlib
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from .arrays import allocating, as_array, described, is_array, refuse_traced, text
from .errors import ArgumentError, ElementTypeError, GraphError, ParameterError, ShapeError
from .inits import Fixed, Initializer, Random
from .node import Node
from .places import Place, here, place, user_frame
from .recording import new_leaf
from .shape import Shape
from .specs import as_jax, is_real, spec_of
from .structure import INPUT
from .tape import Graph, Tape
from .types import Type


def check_value(what: str, spec: Any, array: Any) -> None:
    """``ShapeError`` or ``ElementTypeError`` if ``array`` does not fit a leaf of ``spec``."""
    # The type first: None and strings become arrays of shape ().
    known = array.dtype == bool or jnp.issubdtype(array.dtype, jnp.integer)
    if not (known or (spec.type.is_float and is_real(array))):
        raise ElementTypeError(f"{what} holds {spec.type}, got a value of {array.dtype}")
    if tuple(array.shape) != spec.shape:
        raise ShapeError(f"{what} has shape {spec.shape}, got a value of {tuple(array.shape)}")
    if spec.type.is_index and array.dtype not in (bool, spec.type.dtype) and array.size:
        low, high, limits = array.min(), array.max(), np.iinfo(spec.type.dtype)
        if int(low) < limits.min or int(high) > limits.max:
            raise ElementTypeError(
                f"{what} holds {spec.type}, from {limits.min} to {limits.max}, "
                f"got a value from {low} to {high}"
            )


def as_indices(values: Sequence[int] | np.ndarray) -> np.ndarray:
    """A vector of uint32; ``ElementTypeError`` for negative numbers and fractions, ``ShapeError`` if
    ``values`` is not a vector."""
    array = as_array("indices", values)
    if array.ndim != 1:
        raise ShapeError(f"indices: expected a vector of indices, got {described(values)}{here()}")
    if array.size:
        check_value("a vector of indices", spec_of(array.shape, Type.uint32), array)
    return array.astype(np.uint32)


def check_initializer(init: Any) -> Random | Fixed:
    """``init`` if it is an initializer, else ``ArgumentError``."""
    if not isinstance(init, Random | Fixed):
        hint = "; inits.from_tensor(array) makes one of an array" if is_array(init) else ""
        raise ArgumentError(f"expected an initializer from mgraph.inits, got {described(init)}{hint}{here()}")
    return init


@contextmanager
def _initializing(what: str, where: Place | None = None) -> Iterator[None]:
    """Make an initializer's errors name the leaf ``what`` and where it was made, by default here."""
    try:
        yield
    except (ShapeError, ElementTypeError) as e:
        raise type(e)(f"{what}: {e}\n  at {place(where or user_frame())}") from None


class ConstantNode(Node):
    """A leaf that is not trained. Made by ``graph.constant`` and its relatives."""

    type = "const"
    color = "white"
    form = "diamond"

    array: np.ndarray | None = None
    """The value of a fixed constant; ``None`` for random ones and for inputs without a value."""

    def leaf_value(self) -> np.ndarray:
        if self.array is None:
            raise GraphError(
                f"input {self.name!r} has no value; call a graph.function with it, or give it one by "
                "set_value()"
            )
        return self.array

    def set_value(self, value: ArrayLike) -> None:
        """Give an input of ``graph.input`` a value of its shape, for ``forward()``.

        ``ElementTypeError`` for fractions where the input holds integers, and for integers that it cannot
        hold.
        """
        what = f"input {self.name!r}"
        array = as_array(what, value)
        check_value(what, self.spec, array)
        self.array = array.astype(self.value_type.dtype)

    def val(self) -> jax.Array:
        if self.array is not None:
            return as_jax(self.array)
        return super().val()

    @staticmethod
    def make(tape: Tape[Node], shape: Shape, type_: Type, init: Initializer) -> ConstantNode:
        """A constant at the end of ``tape``; a random one is drawn at each run."""
        spec = spec_of(shape, type_)
        init = check_initializer(init)
        with allocating("constant", shape, type_):
            if isinstance(init, Random):
                with _initializing("constant"):
                    init.check(shape)
                return new_leaf(ConstantNode, tape, spec, trainable=False, init=init)
            with _initializing("constant"):
                array = init.value(shape, type_)
        node: ConstantNode = new_leaf(ConstantNode, tape, spec, trainable=False)
        node.array = array
        return node


class ParamNode(Node):
    """A named leaf that training changes; it outlives ``graph.clear()``. Made by ``graph.param``."""

    type = "param"
    color = "orangered"
    form = "hexagon"

    if TYPE_CHECKING:
        _owner: weakref.ref[Graph]
        _init: Random | Fixed
        _value: jax.Array | None
        _seen: bool
        _seed: int

    @staticmethod
    def make(graph: Graph, name: str, shape: Shape, type_: Type, init: Initializer, fixed: bool) -> ParamNode:
        """A parameter of ``graph``, on its present tape."""
        checked = check_initializer(init)
        trainable = type_.is_float and not fixed
        node: ParamNode = new_leaf(ParamNode, graph.tape, spec_of(shape, type_), trainable)
        Node.set_name(node, name)  # a parameter's own refuses another name
        node._owner, node._seed = weakref.ref(graph), graph.seed
        node._init, node._value, node._seen = checked, None, True
        return node

    def set_name(self, name: str) -> Node:
        """``GraphError`` for another name: ``graph.params()``, functions and files use the name that the
        parameter was made with."""
        if text("the name of a node", name) != self.name:
            raise GraphError(
                f"parameter {self.name!r} cannot be called {name!r}: its name is that of graph.param{here()}"
            )
        return self

    @property
    def graph(self) -> Graph:
        graph = self._owner()
        if graph is None:
            raise GraphError(f"the graph of parameter {self.name!r} is gone; keep a reference to it")
        return graph

    def current(self) -> Node:
        tape = self.graph.tape
        if self._tape is not tape.ref:
            tape.append_leaf(self, (INPUT, self.spec, self.trainable))
            if self.debug_message is not None:
                tape.debugged.append(self)
        return self

    def tape(self) -> Tape[Node]:
        """The graph's present tape, which the parameter joins if the graph was cleared."""
        self.current()
        return super().tape()

    def val(self) -> jax.Array:
        """The present value; drawn from the initializer on first use."""
        if self._value is None:
            with allocating(f"parameter {self.name!r}", self.shape, self.value_type):
                self._value = self._on_device(self._initial())
        self._seen = True
        return self._value

    leaf_value = val

    def _initial(self) -> np.ndarray:
        with _initializing(f"parameter {self.name!r}", self.where):
            if isinstance(self._init, Fixed):
                return self._init.value(self.shape, self.value_type)
            self._init.check(self.shape)
        seed = (self._seed, zlib.crc32(self.name.encode("utf-8", "surrogateescape")))
        return self._init.host_value(seed, self.shape, self.value_type)

    def assigned(self, value: jax.Array) -> None:
        """Take over a value from ``mgraph.running.assignment`` that nothing else references."""
        self._value, self._seen = value, False

    @property
    def buffer_is_free(self) -> bool:
        """Whether nothing else can read the array that holds the value, so that it may be overwritten."""
        return not self._seen

    def set_value(self, value: ArrayLike) -> None:
        """Replace the value by an array of the same shape; the element type is kept.

        ``ElementTypeError`` for fractions where the parameter holds integers, and for integers that it
        cannot hold.
        """
        self._value, self._seen = self._fitting(f"parameter {self.name!r}", value), True

    def _fitting(self, what: str, value: ArrayLike) -> jax.Array:
        """The user's array ``what`` on the graph's device, in the element type of the parameter;
        ``ShapeError`` or ``ElementTypeError`` if it does not fit."""
        refuse_traced(what, value)
        array = value if isinstance(value, jax.Array) else as_array(what, value)
        check_value(what, self.spec, array)
        if array.dtype != self.value_type.dtype:
            array = np.asarray(array).astype(self.value_type.dtype)
        return self._on_device(array)

    def check_value(self, array: Any) -> None:
        """``ShapeError`` or ``ElementTypeError`` if the value does not fit."""
        what = f"parameter {self.name!r}"
        check_value(what, self.spec, array if isinstance(array, jax.Array) else as_array(what, array))

    def move(self) -> None:
        """Move the value, if there is one, to the graph's device."""
        if self._value is not None:
            self._value = self._on_device(self._value)

    def _on_device(self, value: Any) -> jax.Array:
        with jax.enable_x64(self.value_type.is_wide), jax.ensure_compile_time_eval():  # not traced
            graph = self._owner()  # a function may outlive it
            return jax.device_put(value, None if graph is None else graph.device)

    def grad(self) -> jax.Array:
        """The accumulated gradient; ``GraphError`` before the first ``backward()``."""
        if not self.trainable:
            raise GraphError(f"parameter {self.name!r} is not trainable and has no gradient")
        graph = self.graph
        gradient = graph.params().accumulated.get(self.name)
        if gradient is not None:
            return gradient
        if not graph.has_gradients:
            raise GraphError(
                f"the gradient of parameter {self.name!r} is not computed yet; call graph.backward() first"
            )
        with jax.enable_x64(self.value_type.is_wide):
            return jnp.zeros(self.shape, self.value_type.dtype)

    def set_grad(self, gradient: ArrayLike | None) -> None:
        """Replace the accumulated gradient; ``None`` stands for zero. ``ShapeError`` for another shape,
        ``ElementTypeError`` for anything but real numbers."""
        accumulated = self.graph.params().accumulated
        if gradient is None:
            accumulated.pop(self.name, None)
        else:
            accumulated[self.name] = self._fitting(f"the gradient of parameter {self.name!r}", gradient)


class Parameters(Mapping[str, ParamNode]):
    """The parameters of a graph by full name, in the order in which they were made."""

    def __init__(self) -> None:
        self._nodes: dict[str, ParamNode] = {}
        self.accumulated: dict[str, jax.Array] = {}
        """The gradients that are not zero, by name."""

    def __getitem__(self, name: str) -> ParamNode:
        try:
            return self._nodes[name]
        except (KeyError, TypeError):  # TypeError: what cannot be a key, such as a list
            raise ParameterError(f"there is no parameter {name!r}") from None

    def __repr__(self) -> str:
        numbers = sum(math.prod(node.shape) for node in self._nodes.values())
        return f"Parameters({len(self)} parameters, {numbers:,} numbers)"

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def items(self) -> ItemsView[str, ParamNode]:
        return self._nodes.items()

    def values(self) -> ValuesView[ParamNode]:
        return self._nodes.values()

    def add(self, node: ParamNode) -> None:
        """Add a parameter of the graph under its name; ``ArgumentError`` for anything else."""
        if not isinstance(node, ParamNode):
            raise ArgumentError(f"expected a parameter, from graph.param, got {described(node)}{here()}")
        if node.graph.params() is not self:
            raise ArgumentError(
                f"parameter {node.name!r} belongs to another graph; copy_params copies its value{here()}"
            )
        self._nodes[node.name] = node

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Remove the parameters made in the ``with`` block if an error ends it."""
        known = self._nodes.copy()
        try:
            yield
        except BaseException:
            self._nodes = known
            raise

    def trainable(self) -> dict[str, ParamNode]:
        """The parameters that training changes."""
        return {name: node for name, node in self._nodes.items() if node.trainable}

    def vals(self) -> dict[str, jax.Array]:
        """All values, as a flat dictionary for any JAX code."""
        return {name: node.val() for name, node in self._nodes.items()}

    def grads(self) -> dict[str, jax.Array]:
        """The gradients of the trainable parameters, zeros where there is none."""
        return {name: node.grad() for name, node in self.trainable().items()}

    def check_shape(self, name: str, shape: Shape) -> None:
        """``ShapeError`` if the parameter has another shape, ``ParameterError`` if there is none."""
        known = self[name].shape
        if known != shape:
            raise ShapeError(f"parameter {name!r} has shape {known}, asked for again with {shape}{here()}")
