"""Recording: what happens when an operation is applied to nodes.

The path that every node takes is kept short: causes of errors are looked for only after a failure.
``mgraph.node`` imports this module, which therefore uses nodes only through their attributes.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .arrays import described, is_array
from .errors import ArgumentError, ElementTypeError, GraphError, MGraphError, ShapeError, first_line
from .operators import keeping_nothing, signature_for, signature_of, takes
from .places import asks_for_numbers, failed, here, place, raised_at, user_frame
from .specs import Specs, has_float, is_wide
from .structure import INPUT
from .tape import N, Tape

_MAX_SHAPES = 4096

new: Any = object.__new__


def record(cls: Any, operator: Any, children: tuple[Any, ...]) -> Any:
    """The node of ``operator`` over ``children``: new, or an equal one recorded before."""
    try:
        ref = children[0]._tape
        for child in children:
            if child._tape is not ref:
                children, ref = _one_tape(cls, children)
                break
        tape = ref()
        if tape is None or tape.closed:
            children, ref = _one_tape(cls, children)
            tape = ref()
        row = (operator, *[c.id for c in children])
        node = tape.seen.get(row)
    except (AttributeError, IndexError):
        raise _no_children(cls, children) from None
    if node is not None:
        return node
    specs = tuple([c.spec for c in children])
    if tape.strict and cls.broadcasts:
        _check_equal_shapes(cls, children)
    try:
        spec = operator._shapes[specs]
    except KeyError:
        spec = _infer(cls, operator, children, specs)
    node = new(cls)
    node.operator, node.children, node.spec = operator, children, spec
    trainable = False
    if cls.differentiable:
        for child in children:
            if child._trainable:
                trainable = True
                break
    node._trainable = trainable
    node.where = user_frame(3)
    node.id, node._tape = len(tape.nodes), ref
    if trainable and not cls.has_rule:
        _without_rule(tape, node)
    tape.nodes.append(node)
    tape.rows.append(row)
    tape.seen[row] = node
    return node


def _check_equal_shapes(cls: Any, children: Sequence[Any]) -> None:
    """``ShapeError`` for children that would broadcast."""
    if len({child.shape for child in children}) > 1:
        raise ShapeError(
            f"{cls.__name__} ({cls.type}): children differ in shape, and this graph does not broadcast; "
            f"mgraph.broadcast_to(x, shape) does\n  children: {describe(children)}{here()}"
        )


def _without_rule(tape: Tape[Any], node: Any) -> None:
    """Note a node of a class without a rule, which is an error if a gradient flows into it; freeze
    a node of integers."""
    if has_float(node.spec):
        tape.without_rule.append(node)
    else:
        node._trainable = tape.overrides[node.id] = False


def is_node(value: Any) -> bool:
    """Whether ``value`` is a recorded node."""
    return hasattr(type(value), "_tape")


def describe(children: Sequence[Any]) -> str:
    """Type, name, shape and element type of each child, for messages."""
    return ", ".join(f"{c.type}{f' {c.name!r}' if c.name != 'none' else ''} {c.spec!r}" for c in children)


def not_a_node(what: str, value: Any, expected: str = "a node") -> ElementTypeError:
    """The error of ``what``, a function or an operator, about a value in place of a node, with the user's
    line."""
    hint = ""
    if isinstance(value, numbers.Number):
        hint = "; numbers become nodes by graph.constant(shape, init)"
    elif callable(getattr(value, "on", None)):
        hint = "; that of a layer's parameter is parameter.on(x.graph)"
    elif isinstance(value, jax.core.Tracer):
        hint = "; on values that JAX traces call functions of jax.numpy and jax.nn"
    elif is_array(value):
        hint = "; graph.constant(shape, inits.from_tensor(array)) makes a node of an array"
    return ElementTypeError(f"{what}: expected {expected}, got {described(value)}{hint}{here()}")


def spec_over(operator: Any, specs: tuple[Any, ...]) -> Specs:
    """Spec of an operator's value over children of ``specs``."""
    known: Specs | None = operator._shapes.get(specs)
    if known is not None:
        return known
    wide = any(is_wide(s) for s in specs) or operator.makes_wide()
    with jax.enable_x64(wide), keeping_nothing(operator, "forward_ops"):
        spec: Specs = operator.new_spec(*specs)
    return spec


def _infer(cls: Any, operator: Any, children: tuple[Any, ...], specs: tuple[Any, ...]) -> Specs:
    """Spec of an operator's value, by abstract evaluation; cached in the operator."""

    def where() -> str:
        return f"\n  children: {describe(children)}{here()}"

    try:
        operator.check_types(*specs)
        spec = spec_over(operator, specs)
    except MGraphError as e:
        raise type(e)(f"{cls.__name__} ({cls.type}): {e}{where()}") from None
    except Exception as e:
        if isinstance(e, TypeError) and (other := _other_children(operator, len(specs))):
            raise ArgumentError(f"{cls.__name__} ({cls.type}): {other}{where()}") from None
        kind = ElementTypeError if isinstance(e, TypeError) and "dtype" in str(e) else ShapeError
        raise kind(f"{cls.__name__} ({cls.type}): {_reason(cls, e, specs)}{where()}") from e
    if len(operator._shapes) >= _MAX_SHAPES:
        operator._shapes.clear()
    operator._shapes[specs] = spec
    return spec


def _other_children(operator: Any, count: int) -> str:
    """What is wrong if ``forward_ops`` does not take ``count`` children; empty if it does."""
    if takes(operator.forward_ops, count):
        return ""
    wanted = signature_for("forward_ops(self", count)
    given = signature_of("forward_ops", type(operator).forward_ops)
    return f"expected {wanted}, with one array per child, got {given}"


def _reason(cls: Any, e: Exception, specs: Sequence[Specs]) -> str:
    if any(isinstance(spec, tuple) for spec in specs) and not isinstance(e, IndexError):
        return "a child has several outputs; take one of them by mgraph.get(node, i)"
    misfit = isinstance(e, TypeError | ValueError | IndexError | ZeroDivisionError)
    if misfit and not asks_for_numbers(e):
        line = raised_at(e)
        problem = _not_broadcasting(specs) if cls.broadcasts else ""
        return f"children do not fit: {problem or first_line(e)}" + (f" ({line})" if line else "")
    return failed("forward_ops", e, cls.runtime_fields)


def _not_broadcasting(specs: Sequence[Any]) -> str:
    """What is wrong if the shapes of children do not broadcast; empty if they do."""
    shapes = [tuple(spec.shape) for spec in specs]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        return f"the shapes {' and '.join(map(str, shapes))} do not broadcast to one"
    return ""


def _one_tape(cls: Any, children: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
    """The children on one tape: parameters kept over ``clear()`` join the new tape, and nodes from
    outside a loop's body are captured by the innermost body."""
    if not all(is_node(c) for c in children):
        raise AttributeError
    children = tuple(c.current() for c in children)
    tapes = [c.tape() for c in children]
    deepest = max(tapes, key=lambda t: len(t.ancestry()))
    line = deepest.ancestry()
    for child, tape in zip(children, tapes, strict=True):
        if tape not in line:
            if tape.graph is not deepest.graph:
                problem = "children belong to two different graphs"
            elif tape.parent is None:
                problem = "a node of the graph is used in a partial function; make it one of its arguments"
            else:
                problem = "a node of a loop's body is used outside that body; return it from the body instead"
            raise GraphError(
                f"{cls.__name__} ({cls.type}): {problem}\n  children: {describe(children)}"
                f"\n  {child.type} was made at {place(child.where)}{here()}"
            )
    moved = tuple(c if t is deepest else capture(deepest, c) for c, t in zip(children, tapes, strict=True))
    return moved, deepest.ref


def capture(tape: Tape[N], outer: N) -> N:
    """The leaf that stands for ``outer``, a node recorded outside, in the body on ``tape``."""
    entry = tape.captured.get(id(outer))
    if entry is None:
        entry = outer, new_leaf(tape.argument, tape, outer.spec, trainable=outer.trainable)
        tape.captured[id(outer)] = entry
    return entry[1]


def new_leaf(cls: type[N], tape: Tape[N], spec: Specs, trainable: bool, init: Any = None) -> Any:
    """A leaf at the end of ``tape``; ``init`` is the initializer of a random leaf."""
    node = new(cls)
    node.operator, node.children, node.spec, node._trainable = None, (), spec, trainable
    node.where = user_frame(3)
    tape.append_leaf(node, (init, spec) if init is not None else (INPUT, spec, trainable))
    return node


def _no_children(cls: Any, children: tuple[Any, ...]) -> Exception:
    if not children:
        return ElementTypeError(f"{cls.__name__} ({cls.type}): expected at least one node{here()}")
    for child in children:
        if not is_node(child):
            return not_a_node(f"{cls.__name__} ({cls.type})", child, "nodes")
    for child in children:
        try:
            child.tape()
        except GraphError as e:
            return GraphError(f"{cls.__name__} ({cls.type}): {e}{here()}")
    return GraphError(f"{cls.__name__} ({cls.type}): these children cannot be recorded{here()}")
