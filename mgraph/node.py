"""Nodes and operators: how an operation is declared, and what happens when one is recorded.

A node class such as ``SinNodeOp`` makes two kinds of object. Calling it, ``SinNodeOp(x)``, records a
*node* on the tape of its children. The node refers to an *operator*: a bare instance of the same class
that has the fields (an axis, a flag) but no children, exists once per class and field values, and is the
``self`` of ``forward_ops`` and ``backward_ops``. Programs hold operators only, so that a compiled program
never keeps a graph alive.
"""

from __future__ import annotations

import html
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, Union

import jax
import jax.numpy as jnp
import numpy as np

from .arrays import flag, text
from .cases import Case, Convention
from .errors import ArgumentError, ElementTypeError, GraphError, ShapeError
from .names import with_article
from .operators import OPEN, declare, find_operator, is_default, keeping_nothing
from .places import Place, here, place, rule_place
from .recording import new, not_a_node, record
from .scalars import weak_scalars
from .shape import NodeShape
from .specs import Spec, Specs, has_float, spec_like
from .tape import Graph, Tape
from .types import Type

Number: TypeAlias = float | np.floating[Any] | np.integer[Any]
Operand: TypeAlias = Union["Node", Number]
Position: TypeAlias = int | slice | EllipsisType


if TYPE_CHECKING:

    class Refused:
        """A node's truth value to type checkers: not a bool, so that ``if node`` is an error."""


INSTEAD = {
    "T": "mgraph.transpose(x)",
    "astype": "mgraph.cast(x, type)",
    "cpu": "x.val()",
    "data": "x.val()",
    "detach": "mgraph.stop_gradient(x)",
    "dim": "len(x.shape)",
    "dtype": "x.value_type",
    "item": "x.scalar()",
    "mT": "mgraph.swap_axes(x, -2, -1)",
    "ndim": "len(x.shape)",
    "numpy": "x.val()",
    "requires_grad": "x.trainable",
    "size": "x.shape, x.shape.elements()",
    "to": "mgraph.cast(x, type)",
    "tolist": "x.val().tolist()",
    "view": "mgraph.reshape(x, shape)",
}
"""What to use on a node in place of attributes of arrays and tensors."""


def _instead(name: str) -> str:
    """A hint for users who mistake a node for an array: what to use in place of an array's attribute."""
    if isinstance(vars(sys.modules[__package__]).get(name), FunctionType):
        return f"; operators are functions: mgraph.{name}(x)"
    return f"; see {INSTEAD[name]}" if name in INSTEAD else ""


class NodeMeta(type):
    """Calling a node class records a node; see the module's docstring."""

    def __setattr__(cls, name: str, value: Any) -> None:
        if name == "__dataclass_fields__":
            raise ArgumentError(
                f"{cls.__name__}: an operation is no dataclass; without the decorator, too, its annotated "
                f"attributes are fields{here()}"
            )
        super().__setattr__(name, value)

    if TYPE_CHECKING:
        type: str
        fields: tuple[str, ...]
        defaults: dict[str, Any]
        differentiable: bool
        has_rule: bool
        _operators: weakref.WeakValueDictionary[Any, Any]
        _plain: Any
    else:  # type checkers take the class itself as the type that a call returns

        def __call__(cls, *children: Any, **fields: Any) -> Any:
            if cls.fields and children and not isinstance(children[-1], Node):
                children, fields = cls.sort_arguments(children, fields)
            operator = cls._plain
            if fields or operator is None:
                operator = find_operator(cls, fields)
            return record(cls, operator, children)

    def sort_arguments(
        cls, arguments: tuple[Any, ...], fields: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional arguments: first the children, then values of the fields in their order."""
        count = 0
        while count < len(arguments) and isinstance(arguments[count], Node):
            count += 1
        names = [name for name in cls.fields if name not in fields]
        values = arguments[count:]
        if values and not names:
            raise not_a_node(f"{cls.__name__} ({cls.type})", values[0], "nodes")
        if len(values) > len(names):
            raise ElementTypeError(
                f"{cls.__name__}: expected nodes and then {len(names)} fields {names}, got {arguments!r}"
            )
        return arguments[:count], {**fields, **dict(zip(names, values, strict=False))}


class Node(metaclass=NodeMeta):
    """A node of an expression graph. Source: Marian, ``graph/node.h``.

    To declare an operation, subclass ``NaryNodeOp`` or ``UnaryNodeOp``::

        class SinNodeOp(UnaryNodeOp):
            type = "sin"
            def forward_ops(self, x):
                return jnp.sin(x)
            def backward_ops(self, adj, val, x):
                return (adj * jnp.cos(x),)

    An annotated class attribute (``axis: int``) is a field: part of the operator's identity, given by
    keyword or after the children. Nothing needs registering.
    """

    __slots__ = (
        "__dict__", "__weakref__", "_tape", "_trainable", "children", "id", "operator", "spec", "where",
    )  # fmt: skip

    type: ClassVar[str] = "node"
    """Marian's friendly name of the operation."""
    color: ClassVar[str] = "orange"
    form: ClassVar[str] = "box"
    debug_message: str | None = None
    is_checkpoint: bool = False
    absorbed_by: str | None = None
    """The rewrite of ``graph.optimize`` that has absorbed this node or a use of it."""
    index_children: ClassVar[tuple[int, ...]] = ()
    """Positions of children that hold indices: they have an integer type, whatever the others' type."""
    mixed_types: ClassVar[bool] = False
    """Whether children may differ in element type."""
    broadcasts: ClassVar[bool] = False
    """Whether children broadcast to a common shape, which ``graph.set_strict_broadcasting`` refuses."""
    composite: ClassVar[bool] = False
    """Whether the operator runs a recorded body itself (``evaluate``) and needs no rule of its own."""
    computed_once: ClassVar[bool] = False
    """Whether a compiled program stores the value if several nodes read it. Otherwise XLA may fuse it into
    each reader, with everything it is computed from: along residual connections, all earlier layers."""
    stored_by_loops: ClassVar[bool] = False
    """Whether recomputing the value costs more than storing it, so that loops store it for every step."""
    differentiable: ClassVar[bool] = True
    """Whether gradients flow through the node. A class with ``False`` needs no rule, as no gradient passes
    it. A class with neither a rule nor ``False`` is an error where a gradient would flow."""
    has_rule: ClassVar[bool] = False
    """Whether the class has a backward rule; derived."""
    runtime_fields: ClassVar[tuple[str, ...]] = ()
    """Fields whose numbers are arguments of compiled programs, so that one program serves all numbers. In the
    methods such a field is a traced scalar of unknown value, weakly typed like a Python number; only the
    field's default, and values that are not floats, are known there (``operands.known``)."""
    gradient_is_derivative: ClassVar[bool] = True
    """Whether ``backward_ops`` is meant to be the derivative of ``forward_ops``, or of ``surrogate_ops``."""
    surrogate_ops: ClassVar[Any] = None
    """A smooth function of the same children whose derivative ``backward_ops`` is meant to be, for a forward
    that rounds (a straight-through gradient). Only gradient checks compute it."""
    cases: ClassVar[tuple[Case, ...]] = ()
    """Examples of children and fields on which ``mgraph.check_operators`` checks the class."""
    conventions: ClassVar[tuple[Convention, ...]] = ()
    """Gradients at kinks, ties and non-finite numbers, by which ``check_mutants`` judges rules."""
    equivalent_mutants: ClassVar[Mapping[str, str]] = {}
    """Mutants of the rule that ``check_mutants`` cannot tell from it, as ``before -> after``, and why."""
    accepted_budgets: ClassVar[Mapping[str, str]] = {}
    """Verdicts of ``check_budgets``, such as ``worse than JAX``, that are accepted for the rule, and why."""
    fields: ClassVar[tuple[str, ...]] = ()
    """Names of the fields; derived from the annotations."""
    defaults: ClassVar[dict[str, Any]] = {}

    generic: tuple[Any, tuple[float, ...]] | None = None
    """The operator with its runtime fields left open, and their numbers; ``None`` without such fields."""
    open_numbers: int = 0
    """How many numbers ``bound`` of such a generic operator takes."""
    _plain: ClassVar[Any] = None

    if TYPE_CHECKING:
        # Attributes of nodes; mgraph.expression attaches the operator methods.
        _tape: weakref.ref[Tape[Node]]
        children: tuple[Node, ...]
        id: int
        operator: Any
        spec: Any
        _trainable: bool
        where: Place | None
        forward_ops: Callable[..., jax.Array | tuple[jax.Array, ...]]
        backward_ops: Callable[..., Sequence[jax.Array | None]]

        def __add__(self, other: Operand, /) -> Node: ...
        def __radd__(self, other: Number, /) -> Node: ...
        def __sub__(self, other: Operand, /) -> Node: ...
        def __rsub__(self, other: Number, /) -> Node: ...
        def __mul__(self, other: Operand, /) -> Node: ...
        def __rmul__(self, other: Number, /) -> Node: ...
        def __truediv__(self, other: Operand, /) -> Node: ...
        def __rtruediv__(self, other: Number, /) -> Node: ...
        def __pow__(self, other: Operand, /) -> Node: ...
        def __rpow__(self, other: Number, /) -> Node: ...
        def __matmul__(self, other: Node, /) -> Node: ...
        def __rmatmul__(self, other: Node, /) -> Node: ...
        def __neg__(self) -> Node: ...
        def __abs__(self) -> Node: ...
        def __lt__(self, other: Operand, /) -> Node: ...
        def __le__(self, other: Operand, /) -> Node: ...
        def __gt__(self, other: Operand, /) -> Node: ...
        def __ge__(self, other: Operand, /) -> Node: ...
        def __getitem__(self, index: Position | tuple[Position, ...], /) -> Node: ...
        def __bool__(self) -> Refused: ...

        __iter__: None

    else:  # type checkers know the fields from their annotations, and report misspelt names

        def __getattr__(self, name: str) -> Any:
            # Called only for names that are not slots or methods: a node's fields are those of its operator.
            if name in type(self).fields and self.operator is not None:
                return getattr(self.operator, name)
            if name in ("children", "spec", "id", "trainable", "_tape") and "_shapes" in self.__dict__:
                raise GraphError(
                    f"{type(self).__name__}: a rule sees values only; its operator has no {name!r}, "
                    "because one operator serves every graph"
                )
            hint = "" if "_shapes" in self.__dict__ else _instead(name)
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}{hint}", name=name, obj=self
            )

    # -- operators, for the engine

    def check_types(self, *specs: Any) -> None:
        """Unless ``mixed_types``, check that children share an element type and ``index_children`` are
        integers."""
        if self.mixed_types:
            return
        seen: Type | None = None
        for i, spec in enumerate(specs):
            kind = (spec[0] if isinstance(spec, tuple) else spec).type
            if i in self.index_children:
                if not kind.is_index:
                    raise ElementTypeError(f"child {i} holds indices, expected integers, got {kind}")
            elif seen is None:
                seen = kind
            elif kind is not seen:
                to = kind if seen.is_index else seen  # not to integers, which have no gradient
                raise ElementTypeError(
                    f"children differ in element type, {seen} and {kind}; cast one: cast(x, {to})"
                    f"{self._or_declare(specs)}"
                )

    def _or_declare(self, specs: tuple[Any, ...]) -> str:
        """What a user's class declares where children are meant to be integers; nothing for mgraph's own."""
        kinds = [(spec[0] if isinstance(spec, tuple) else spec).type for spec in specs]
        indices = tuple(i for i, kind in enumerate(kinds) if kind.is_index)
        if not indices or len(indices) == len(kinds) or type(self).__module__.startswith(f"{__package__}."):
            return ""
        return f"; indices need no cast if {type(self).__name__} declares index_children = {indices}"

    def new_spec(self, *specs: Any) -> Specs:
        """Shape and type of the value; by default from abstract evaluation of ``forward_ops``."""
        structs = [tuple(s.struct for s in x) if isinstance(x, tuple) else x.struct for x in specs]
        if not hasattr(type(self), "forward_ops"):
            raise GraphError(f"{type(self).__name__} declares no forward_ops")
        value = jax.eval_shape(self._traced_forward, self._numbers_spec(), *structs)
        parts = value if isinstance(value, tuple) else (value,)
        if not parts or not all(hasattr(part, "dtype") for part in parts):
            raise self._no_arrays(value)
        return spec_like(value)

    def _no_arrays(self, value: Any) -> ElementTypeError:
        """The error about a value that is neither an array nor a tuple of arrays."""
        what = f"forward_ops must return an array or a tuple of them, got {value!r}"
        return ElementTypeError(f"{what}{rule_place(type(self).forward_ops)}")

    def _numbers_spec(self) -> Any:
        """What programs take for the operator's numbers; ``None`` without numbers."""
        return jax.ShapeDtypeStruct((len(self.generic[1]),), jnp.result_type(float)) if self.generic else None

    def _traced_forward(self, numbers: Any, *values: Any) -> Any:
        """``forward_ops`` as programs trace it."""
        own = self if self.generic is None else self.generic[0].bound(numbers)
        with keeping_nothing(own, "forward_ops"):
            value = own.forward_ops(*values)
        known = int | float | complex | Node  # JAX makes arrays of the numbers; a node raises its own error
        if not all(hasattr(leaf, "dtype") or isinstance(leaf, known) for leaf in jax.tree.leaves(value)):
            raise self._no_arrays(value)
        return value

    def makes_wide(self) -> bool:
        """Whether the value may be of a 64-bit type although no child is."""
        return any(isinstance(v, Type) and v.is_wide for v in self.__dict__.values())

    @classmethod
    def opened(cls, fields: dict[str, Any]) -> tuple[dict[str, Any], tuple[float, ...]]:
        """An operator's fields with ``OPEN`` for the numbers that programs take as arguments, and these
        numbers."""
        found = {
            name: float(fields[name])
            for name in cls.runtime_fields
            if isinstance(fields[name], float) and not is_default(cls, name, fields[name])
        }
        return {**fields, **dict.fromkeys(found, OPEN)}, tuple(found.values())

    def bound(self, numbers: Any) -> Any:
        """A generic operator with the numbers of a vector in its runtime fields. The numbers may be traced,
        so do not keep the result."""
        names = [name for name in self.runtime_fields if self.__dict__[name] is OPEN]
        operator = new(type(self))
        operator.__dict__.update(self.__dict__, **dict(zip(names, weak_scalars(numbers), strict=True)))
        return operator

    @property
    def users_backward(self) -> Callable[..., Any] | None:
        """The user's function that ``backward_ops`` calls, if it calls one: messages name its line."""
        return None

    # -- nodes, for users

    @property
    def shape(self) -> NodeShape:
        """Sizes of the axes (of the first output if there are several)."""
        return self._first_spec().shape

    @property
    def value_type(self) -> Type:
        """Element type of the value."""
        return self._first_spec().type

    @property
    def name(self) -> str:
        """The name given by the user or, for a parameter, its name in the model; ``"none"`` without one.
        Assigning to it calls ``set_name``."""
        found: str = self.__dict__.get("name", "none")
        return found

    @name.setter
    def name(self, name: str) -> None:
        self.set_name(name)

    @property
    def trainable(self) -> bool:
        """Whether gradients flow into this node. Assigning to it calls ``set_trainable``."""
        return self._trainable

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        self.set_trainable(trainable)

    @property
    def graph(self) -> Graph:
        """The ``ExpressionGraph`` that this node belongs to; ``GraphError`` if it is gone."""
        return self.tape().graph

    def _first_spec(self) -> Spec:
        return self.spec[0] if isinstance(self.spec, tuple) else self.spec

    def tape(self) -> Tape[Node]:
        """The tape this node was recorded on; ``GraphError`` if it was cleared or dropped."""
        tape = self._tape()
        if tape is None or tape.closed:
            raise GraphError(
                f"this {self.type} node, made at {place(self.where)}, is gone: its graph was "
                "cleared, the loop whose body it belongs to is complete, or nothing keeps a reference "
                "to its ExpressionGraph"
            )
        return tape

    def current(self) -> Node:
        """This node; overridden by parameters, which outlive ``graph.clear()``."""
        return self

    def leaf_value(self) -> Any:
        """The present value of an input leaf, passed to programs."""
        raise GraphError(f"this {self.type} node, made at {place(self.where)}, has no value of its own")

    def child(self, i: int) -> Node:
        """The i-th child; ``ArgumentError`` if there is none."""
        try:
            return self.children[i]
        except (IndexError, TypeError):
            raise ArgumentError(
                f"expected the number of a child, of which this {self.type} node has {len(self.children)}, "
                f"got {i!r}{here()}"
            ) from None

    def val(self) -> jax.Array:
        """The value, a tuple for a node with several outputs (which users see through its views).

        Available after ``graph.forward()`` for every node; ``GraphError`` before.
        """
        return self._outer_tape("read").graph.value_of(self.id)

    def grad(self) -> jax.Array:
        """The gradient of the top node with respect to this node, of this node's shape.

        Available after ``graph.backward()`` for every trainable node; ``GraphError`` before.
        """
        return self._outer_tape("read").graph.gradient_of(self.id)

    def _outer_tape(self, action: str) -> Tape[Node]:
        """The tape; ``GraphError`` inside a loop's body."""
        tape = self.tape()
        if tape.parent is not None:
            raise GraphError(f"{self.type}: a node in a loop's body has a value per step, none to {action}")
        return tape

    def scalar(self) -> float:
        """The first element of the value as a Python float; ``ShapeError`` if there is none."""
        value = self.val()
        if not value.size:
            raise ShapeError(f"{with_article(self.type)} node of {self.spec!r} has no first element")
        return float(np.asarray(value).reshape(-1)[0])

    def set_trainable(self, trainable: bool) -> None:
        """Set whether gradients flow into this node; nodes already built on it follow.

        ``ElementTypeError`` for a node of integers, which has no gradient.
        """
        trainable = flag("set_trainable", "trainable", trainable)
        if trainable and not has_float(self.spec):
            raise ElementTypeError(
                f"{with_article(self.type)} node of {self.spec!r} has no gradient to train it by"
            )
        tape = self.tape()
        tape.overrides[self.id] = trainable
        if self._trainable != trainable:
            self._trainable = trainable
            tape.spread_trainable(self)
        tape.graph.forget_gradients()

    def set_name(self, name: str) -> Node:
        """Give the node a name for pictures and messages; returns the node. ``ArgumentError`` if the name is
        not a string, ``GraphError`` if it would rename a parameter."""
        self.__dict__["name"] = text("the name of a node", name)
        return self

    def debug(self, message: str = "") -> Node:
        """Print value and gradient of this node in Marian's layout whenever ``graph.forward()``,
        ``backward()`` or ``backprop()`` computes them. A ``graph.function`` prints nothing.

        ``GraphError`` inside a loop's body, where a node has a value per step; ``ArgumentError`` if the
        message is not a string.
        """
        message = text("the message of debug", message)
        tape = self._outer_tape("print; return it from the body and debug the loop's result")
        if self.debug_message is None:
            tape.debugged.append(self)
        self.debug_message = message
        return self

    def mark_checkpoint(self) -> Node:
        """Keep this node's value when the graph checkpoints gradients; returns the node."""
        self.is_checkpoint = True
        return self

    def hash(self) -> int:
        """Equal for nodes that compute the same thing from the same children."""
        return hash((self.operator, *(c.id for c in self.children)))

    def equal(self, other: Node) -> bool:
        """Whether the two nodes have the same operator over the same children. ``ElementTypeError`` for
        anything but a node."""
        if not isinstance(other, Node):
            raise not_a_node("equal", other)
        same = self.operator is other.operator and self.children == other.children
        return self is other or (self.operator is not None and same)

    def label(self) -> str:
        """Text of this node in a drawn graph: type, name, id and trainability; escaped as in HTML."""
        name = f'<br/>"{html.escape(self.name, quote=False)}"' if self.name != "none" else ""
        return f"<{html.escape(self.type, quote=False)}{name} ({self.id}/{int(self.trainable)})>"

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        if "_shapes" in self.__dict__:
            return self  # An operator is unique: its copy is itself.
        return self.__reduce__()

    def __copy__(self) -> Node:
        return self.__deepcopy__({})

    def __reduce__(self) -> Any:
        # called by copy and pickle
        raise GraphError(
            f"{with_article(self.type)} node cannot be copied or pickled: it is a part of its graph; "
            f"record it again in another one{here()}"
        )

    def __repr__(self) -> str:
        if "_shapes" in self.__dict__:
            fields = ", ".join(f"{k}={self.__dict__[k]!r}" for k in self.fields)
            return f"{type(self).__name__}({fields})"
        name = f"{self.name!r}, " if self.name != "none" else ""
        return f"{type(self).__name__}({name}id={self.id}, {self.spec!r})"


class ArgumentNode(Node):
    """A leaf of a loop's body: a part of the state, a slice of a sequence, or a node from outside."""

    type = "argument"
    color = "white"
    form = "diamond"


class NaryNodeOp(Node):
    """Base of operations over any number of children.

    A subclass defines ``type``, ``forward_ops(self, *values) -> value`` and, where there is a gradient,
    ``backward_ops(self, adj, val, *values)``, which returns one gradient per child: the i-th for
    ``child(i)``, ``None`` for no gradient. A gradient may have the shape of the broadcast value; the engine
    sums it to the child's shape.
    """

    if TYPE_CHECKING:

        def __init__(self, *children: Any, **fields: Any) -> None: ...

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declare(cls)

    def evaluate(self, rule_set: str, trained: tuple[bool, ...], values: tuple[Any, ...]) -> Any:
        """The value of a ``composite`` operator under a rule set; by default the same under all of them."""
        return self.forward_ops(*values)


class UnaryNodeOp(NaryNodeOp):
    """Base of operations over one child."""

    color = "yellow"
