"""Rules: how an operator's value and gradient enter a JAX program.

Operators run through a ``jax.custom_vjp``, one per node class and rule set, made on first use. Rule sets:
``"rules"`` are the hand-written ``backward_ops``; ``"jax"`` is JAX's own differentiation of ``forward_ops``;
``"marian"`` is the hand-written rules, with Marian's formulas where they differ (registered with
``derivative``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .arrays import described
from .errors import ArgumentError, GradientError, MGraphError
from .names import meant
from .node import Node
from .operators import keeping_nothing, signature_for, signature_of, takes
from .places import failed, here, rule_place
from .shape import Shape
from .specs import spec_like
from .varying import alike, zeros_like

RULE_SETS = ("rules", "jax", "marian")

Backward = Callable[..., Any]

_MARIAN: dict[type[Node], Backward] = {}
_VJPS: dict[tuple[type[Node], str], Any] = {}


def derivative(cls: type[Node], rule_set: str) -> Callable[[Backward], Backward]:
    """Decorator: the function is ``cls``'s backward rule in ``rule_set`` (``"marian"``)::

    @derivative(LayerNormalizationOp, "marian")
    def _(self, adj, val, x, gamma, beta): ...
    """
    if rule_set != "marian":
        raise ArgumentError(f'only the rule set "marian" takes other rules, got {rule_set!r}')

    def register(rule: Backward) -> Backward:
        _MARIAN[cls] = rule
        return rule

    return register


def check_rule_set(name: str) -> str:
    """``name`` if it is a rule set, else ``ArgumentError``."""
    if not isinstance(name, str) or name not in RULE_SETS:
        hint = meant(name, RULE_SETS, repr) if isinstance(name, str) else ""
        raise ArgumentError(f"expected one of the rule sets {RULE_SETS}, got {name!r}{hint}")
    return name


def evaluate(
    operator: Any, rule_set: str, trained: tuple[bool, ...], values: tuple[Any, ...], numbers: Any = None
) -> Any:
    """The operator's value; ``trained`` says for each child whether a gradient flows into it.

    ``numbers`` are those that a generic operator takes.
    """
    cls = type(operator)
    if cls.composite:
        return bound(operator, numbers).evaluate(rule_set, trained, values)
    if any(trained) and not cls.differentiable:
        return jax.lax.stop_gradient(value_of(operator, numbers, values))
    if rule_set == "jax" or not any(trained):
        return value_of(operator, numbers, values)
    return _vjp_of(cls, rule_set)(operator, trained, numbers, *alike(values))


def bound(operator: Any, numbers: Any) -> Any:
    """The operator, with its numbers in place if it is generic."""
    return operator if numbers is None else operator.bound(numbers)


def value_of(operator: Any, numbers: Any, values: tuple[Any, ...]) -> Any:
    """The value by ``forward_ops``; ``ArgumentError`` if it asks for numbers that JAX does not know."""
    try:
        return bound(operator, numbers).forward_ops(*values)
    except jax.errors.JAXTypeError as e:
        cls = type(operator)
        why = failed("forward_ops", e, cls.runtime_fields)
        raise ArgumentError(f"{cls.__name__}.{why}{_children(values)}{here()}") from e


def _vjp_of(cls: type[Node], rule_set: str) -> Any:
    key = cls, rule_set
    if key not in _VJPS:
        _VJPS[key] = _make_vjp(cls, rule_set)
    return _VJPS[key]


def backward_of(cls: type[Node], rule_set: str) -> Backward:
    """The backward rule of a class in a rule set; ``GradientError`` if there is none."""
    if rule_set == "marian" and cls in _MARIAN:
        return _MARIAN[cls]
    rule: Backward | None = getattr(cls, "backward_ops", None)
    if rule is None:
        raise GradientError(without_rule(cls))
    return rule


def without_rule(cls: type[Node]) -> str:
    """The message about a gradient that flows into a class without a rule."""
    return (
        f"{cls.__name__} ({cls.type}) declares no backward_ops, and a gradient flows through it: declare "
        "backward_ops(self, adj, val, *values), or differentiable = False if its gradient is zero"
    )


def _make_vjp(cls: type[Node], rule_set: str) -> Any:
    @partial(jax.custom_vjp, nondiff_argnums=(0, 1))
    def rule(operator: Any, trained: tuple[bool, ...], numbers: Any, *values: Any) -> Any:
        return value_of(operator, numbers, values)

    def forward(operator: Any, trained: tuple[bool, ...], numbers: Any, *values: Any) -> Any:
        value = value_of(operator, numbers, values)
        return value, (value, numbers, jax.tree.map(jnp.asarray, values))

    def reverse(operator: Any, trained: tuple[bool, ...], saved: Any, adj: Any) -> tuple[Any, ...]:
        value, numbers, values = saved
        backward = backward_of(cls, rule_set)

        def gradients(values: tuple[Any, ...], value: Any, adj: Any, numbers: Any) -> tuple[Any, ...]:
            return gradients_of(cls, backward, bound(operator, numbers), trained, adj, value, values)

        if on_explicit_mesh():
            return None, *divided(gradients, values, value, adj, numbers)
        return None, *gradients(values, value, adj, numbers)

    rule.defvjp(forward, reverse)
    return rule


def on_explicit_mesh() -> bool:
    """Whether the mesh has axes of type ``Explicit``, for which JAX must know each value's sharding."""
    return bool(jax.sharding.get_abstract_mesh().explicit_axes)


def divided(rule: Callable[..., tuple[Any, ...]], values: tuple[Any, ...], *given: Any) -> tuple[Any, ...]:
    """The gradients ``rule(values, *given)`` on a mesh with axes of type ``Explicit``, each sharded like its
    child. Within the rule the axes are ``Auto``: the compiler chooses the sharding."""
    children, form = jax.tree.flatten(values)
    real = [jnp.issubdtype(child.dtype, jnp.inexact) for child in children]

    def of_real(values: tuple[Any, ...], *given: Any) -> list[Any]:
        found = rule(values, *given)
        full = [jax.tree.map(_no_gradient, v) if g is None else g for g, v in zip(found, values, strict=True)]
        return list(compress(jax.tree.leaves(full), real))

    places = [jax.typeof(child).sharding.spec for child in compress(children, real)]
    found = iter(jax.sharding.auto_axes(of_real, out_sharding=places)(values, *given))
    full = [next(found) if is_real else _no_gradient(c) for c, is_real in zip(children, real, strict=True)]
    return tuple(jax.tree.unflatten(form, full))


def gradients_of(
    cls: type[Node],
    backward: Backward,
    operator: Any,
    trained: tuple[bool, ...],
    adj: Any,
    value: Any,
    values: tuple[Any, ...],
) -> tuple[Any, ...]:
    """What the rule ``backward`` returns, checked; ``GradientError`` also if it raises."""
    try:
        with keeping_nothing(operator, "backward_ops"):
            gradients = backward(operator, adj, value, *values)
        return checked(cls, gradients, trained, adj, values)
    except MGraphError as e:
        raise type(e)(f"{e}{_about(operator, backward, values)}") from None
    except Exception as e:
        if isinstance(e, TypeError) and not takes(backward, 3 + len(values)):
            wanted = signature_for("backward_ops(self, adj, val", len(values))
            why = f"backward_ops: expected {wanted}, got {signature_of('backward_ops', backward)}"
        else:
            why = failed("backward_ops", e, cls.runtime_fields)
        raise GradientError(f"{cls.__name__}.{why}{_about(operator, backward, values)}") from e


def _about(operator: Any, backward: Backward, values: tuple[Any, ...]) -> str:
    """The end of a message about a rule: its children, and its place if it is written in Python."""
    return _children(values) + rule_place(operator.users_backward or backward)


def _children(values: tuple[Any, ...]) -> str:
    """The line of a message that describes the children."""
    children = ("several outputs" if isinstance(v, tuple) else repr(spec_like(v)) for v in values)
    return f"\n  children: {', '.join(children)}"


def row_gradients(
    operator: Any,
    rule_set: str,
    trained: tuple[bool, ...],
    adj: Any,
    value: Any,
    values: tuple[Any, ...],
    numbers: Any = None,
) -> tuple[Any, ...]:
    """One gradient per child, ``None`` where none flows."""
    if operator.composite or rule_set == "jax":
        _, pull = jax.vjp(lambda *v: evaluate(operator, rule_set, trained, v, numbers), *values)
        full = jax.tree.map(_or_float0, adj, value, is_leaf=lambda a: a is None)
        gradients = tuple(g if t else None for g, t in zip(pull(full), trained, strict=True))
    else:
        cls = type(operator)
        own = bound(operator, numbers)
        gradients = gradients_of(cls, backward_of(cls, rule_set), own, trained, adj, value, values)
    return without_float0(gradients)


def without_float0(gradients: Any) -> Any:
    """Gradients with ``None`` in place of float0, JAX's type for gradients of integers."""
    return jax.tree.map(lambda g: None if g.dtype == jax.dtypes.float0 else g, gradients)


def _or_float0(adj: Any, value: Any) -> Any:
    return np.zeros(value.shape, jax.dtypes.float0) if adj is None else adj


def checked(
    cls: type[Node], gradients: Any, trained: tuple[bool, ...], adj: Any, values: tuple[Any, ...]
) -> tuple[Any, ...]:
    """One gradient per child, with the child's shape and type, ``None`` where none flows.

    Broadcasting is undone here, once for all operators. ``GradientError`` if there are too few or too many
    gradients, or if a gradient's shape or element type does not fit its child. The value, which has the shape
    of ``adj``, and the other children limit how far a child can have been stretched.
    """
    name = f"{cls.__name__}.backward_ops"
    if not isinstance(gradients, tuple | list):
        raise GradientError(
            f"{name}: expected a tuple of gradients, one per child, got {described(gradients)}"
        )
    if len(gradients) != len(values):
        raise GradientError(f"{name}: expected one gradient per child, {len(values)}, got {len(gradients)}")
    shapes = [jnp.shape(a) for a in jax.tree.leaves((adj, values))]
    return tuple(
        _fit(f"{name}: the gradient of child {i}", gradient, value, shapes)
        if train and gradient is not None
        else None
        for i, (gradient, train, value) in enumerate(zip(gradients, trained, values, strict=True))
    )


def _fit(what: str, gradient: Any, value: Any, shapes: Sequence[Shape]) -> Any:
    if isinstance(value, tuple | list):
        if not isinstance(gradient, tuple | list) or len(gradient) != len(value):
            raise GradientError(f"{what}: expected a tuple of {len(value)} arrays")
        return tuple(
            _fit(f"{what}[{i}]", g, v, shapes) if g is not None else _no_gradient(v)
            for i, (g, v) in enumerate(zip(gradient, value, strict=True))
        )
    if not hasattr(gradient, "dtype"):
        raise GradientError(f"{what}: expected an array, got {gradient!r}")
    if gradient.dtype != value.dtype:
        raise GradientError(f"{what}: expected element type {value.dtype}, got {gradient.dtype}")
    shape = jnp.shape(value)
    if gradient.shape != shape and not _is_stretched(gradient.shape, shapes):
        raise GradientError(
            f"{what}: expected shape {shape}, or that to which the value and the other children stretch it, "
            f"got {gradient.shape}"
        )
    return unbroadcast(gradient, shape, what)


def _is_stretched(shape: Shape, shapes: Sequence[Shape]) -> bool:
    """Whether an operator whose value and children have ``shapes`` may have stretched a child to ``shape``:
    it has no more axes than the longest of ``shapes``, and no axis longer than the longest axis in them."""
    longest = max((length for other in shapes for length in other), default=0)
    return len(shape) <= max(map(len, shapes)) and max(shape, default=0) <= longest


def _no_gradient(value: Any) -> Any:
    if jnp.issubdtype(value.dtype, jnp.inexact):
        return zeros_like(value)
    return np.zeros(value.shape, jax.dtypes.float0)


def unbroadcast(gradient: jax.Array, shape: Shape, what: str = "a gradient") -> jax.Array:
    """``gradient`` summed over the axes along which a child of ``shape`` was stretched."""
    if gradient.shape == shape:
        return gradient
    try:
        stretched = np.broadcast_shapes(gradient.shape, shape) == gradient.shape
    except ValueError:
        stretched = False
    if not stretched:
        raise GradientError(
            f"{what}: expected shape {shape} or one that {shape} broadcasts to, got {gradient.shape}"
        )
    lead = gradient.ndim - len(shape)
    axes = (*range(lead), *(lead + i for i, n in enumerate(shape) if n == 1 != gradient.shape[lead + i]))
    return jnp.sum(gradient, axes).reshape(shape)
