"""Optimizers and learning-rate schedules of optax by name, as the installed version has them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import partial
from types import FunctionType
from typing import Any

import jax
import optax

from ..errors import ArgumentError, first_line
from ..names import meant

RATES = ("learning_rate", "max_learning_rate")
"""Names that optax's optimizers give the learning rate."""


def optimizers() -> dict[str, Callable[..., Any]]:
    """The functions of ``optax`` and ``optax.contrib`` that make an optimizer: those with a learning rate.

    Parts of optimizers, ``scale_by_...``, are left out.
    """
    found = {**_public(optax), **{f"contrib.{name}": made for name, made in _public(optax.contrib).items()}}
    return {
        name: function
        for name, function in found.items()
        if rate_of(function) and not name.rpartition(".")[2].startswith("scale_by_")
    }


def schedules() -> dict[str, Callable[..., Any]]:
    """The functions of ``optax`` that make a schedule: a function of the number of updates so far."""
    return {name: made for name, made in _public(optax.schedules).items() if not name.startswith("inject_")}


def rate_of(function: Callable[..., Any]) -> str:
    """The name of the argument that is the learning rate; empty without one."""
    arguments = inspect.signature(function).parameters
    return next((name for name in RATES if name in arguments), "")


def named(kind: str, name: str, functions: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The function of this name; if there is none, ``ArgumentError``, which lists the known names."""
    if name not in functions:
        hint = meant(name, functions)
        raise ArgumentError(f"optax has no {kind} {name!r}{hint} ({kind}s: {', '.join(functions)})")
    return functions[name]


def check_arguments(name: str, function: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """``ArgumentError`` for unknown arguments, for missing ones other than the learning rate, and for strings
    in place of numbers."""
    rate = rate_of(function)
    arguments = {k: v for k, v in inspect.signature(function).parameters.items() if k != rate}
    unknown = sorted(given.keys() - arguments.keys())
    if unknown:
        listed = ", ".join(arguments) or "none"
        raise ArgumentError(f"{name} has no argument {unknown[0]!r} to set (arguments: {listed})")
    missing = [k for k, v in arguments.items() if v.default is v.empty and k not in given]
    if missing:
        raise ArgumentError(f"{name} needs the arguments {', '.join(missing)}")
    for argument, value in given.items():
        expected = _instead_of_words(arguments[argument])
        if expected and isinstance(value, str):
            raise ArgumentError(f"{name}: {argument}: expected {expected}, got {value!r}")


def shapes_of(what: str, function: Callable[..., Any], *args: Any, hint: str = "") -> Any:
    """Shapes and types of ``function(*args)``, by tracing it; if that fails, ``ArgumentError`` with optax's
    message and a hint."""
    try:
        return jax.eval_shape(function, *args)
    except Exception as error:
        said = first_line(error)
        raise ArgumentError(f"{what} does not work: {said}{hint}") from None


def _instead_of_words(argument: inspect.Parameter) -> str:
    """What an argument that takes no strings expects, according to its default and annotation; empty if it
    takes strings, or may."""
    kinds = {type(argument.default), argument.annotation, *typing.get_args(argument.annotation)}
    if str in kinds:
        return ""
    if kinds & {int, float}:
        return "a number"
    return "true or false" if bool in kinds else ""


def _public(module: Any) -> dict[str, Callable[..., Any]]:
    """The module's public functions, and its partial functions, such as ``optax.nadam``."""
    found = inspect.getmembers(module, lambda x: isinstance(x, (FunctionType, partial)))
    return {name: function for name, function in found if name[0] != "_"}
