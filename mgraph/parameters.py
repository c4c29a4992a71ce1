"""``GraphParameters``: the parameters of a graph by name, made, copied, written and read."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

from . import inits
from .arrays import described, flag, text
from .errors import ArgumentError, ParameterError
from .files.parameter_files import Source, load_parameters, save_parameters
from .inits import Initializer
from .leaves import Parameters, ParamNode
from .places import here
from .settings import GraphSettings
from .shape import Shape, Sizes, as_shape
from .types import Type, TypeName, as_type


class GraphParameters(GraphSettings):
    """What an ``ExpressionGraph`` does with its parameters."""

    def __init__(self, inference: bool, seed: int, derivatives: str) -> None:
        super().__init__(inference, seed, derivatives)
        self.reloaded = False
        self.model_yml: str | None = None
        """Text of ``special:model.yml`` in the loaded model file."""
        self._namespace = ""

    @abstractmethod
    def new_param(self, name: str, shape: Shape, type_: Type, init: Initializer, fixed: bool) -> ParamNode:
        """A new parameter with this full name on the present tape."""

    def switch_params(self, namespace: str) -> None:
        """Parameters requested from now on live in ``namespace``, stored as ``namespace::name``.
        ``ArgumentError`` for a namespace that is not a string."""
        self._namespace = text("a namespace", namespace)

    def param(
        self,
        name: str,
        shape: Sizes,
        init: Initializer | None = None,
        type: TypeName | None = None,
        fixed: bool | None = None,
    ) -> ParamNode:
        """The parameter ``name``; made with ``init`` (Glorot uniform by default) if it is new.

        ``fixed`` parameters are not trained; ``None`` leaves an existing parameter as it is, and trains a new
        one. ``ShapeError`` if it exists with another shape, ``ParameterError`` if it exists with another
        element type or is new in a graph whose parameters were loaded from a file; ``ArgumentError`` for a
        name that is not a string.
        """
        full = self._asked(name)
        fixed = None if fixed is None else flag("param", "fixed", fixed)
        shape = as_shape(shape)
        kind = None if type is None else as_type(type)
        if full in self._parameters:
            node = self._parameters[full]
            self._parameters.check_shape(full, shape)
            if kind is not None and kind is not node.value_type:
                raise ParameterError(
                    f"parameter {full!r} has element type {node.value_type}, asked for again with {kind}"
                    f"{here()}"
                )
            node.current()
            if fixed is not None and node.value_type.is_float and fixed == node.trainable:
                node.set_trainable(not fixed)
            return node
        if self.reloaded:
            raise ParameterError(
                f"parameter {full!r} of shape {shape} is not in the model that was loaded; it has "
                + ", ".join(sorted(self._parameters))
            )
        init = inits.glorot_uniform() if init is None else init
        node = self.new_param(full, shape, kind or self._element_type, init, bool(fixed))
        self._parameters.add(node)
        return node

    def get(self, name: str) -> ParamNode | None:
        """The parameter ``name`` of the current namespace, ``None`` if it does not exist. ``ArgumentError``
        for a name that is not a string."""
        return self._parameters.get(self._asked(name))

    def params(self) -> Parameters:
        """All parameters by name."""
        return self._parameters

    def copy_params(self, other: GraphParameters) -> None:
        """Copy the values of all parameters of another graph, creating missing parameters.

        Parameters keep their full names, inside the current namespace; those created from fixed ones are
        fixed. The graphs share the values until one of them is trained, so a model loaded once can serve
        several graphs. ``ShapeError`` or ``ElementTypeError`` if a value does not fit, before anything
        changes. Source: Marian, ``copyParams``, which does not overwrite existing parameters.
        """
        if not isinstance(other, GraphParameters):
            raise ArgumentError(f"copy_params expects an ExpressionGraph, got {other!r}")
        given = {self._full_name(name): node for name, node in other.params().items()}
        fixed = {full for full, node in given.items() if not node.trainable}
        self._take({full: node.val() for full, node in given.items()}, fixed)

    def _take(self, values: Mapping[str, Any], fixed: Collection[str] = ()) -> None:
        """Set parameters to these values by full name, creating missing ones, if all values fit."""
        for full in self._parameters.keys() & values.keys():
            self._parameters[full].check_value(values[full])
        for full, value in values.items():
            if full not in self._parameters:
                kind = as_type(value.dtype)
                made = self.new_param(full, value.shape, kind, inits.zeros(), full in fixed)
                self._parameters.add(made)
            self._parameters[full].set_value(value)

    def _asked(self, name: str) -> str:
        """The full name of a parameter that a user asks for; ``ArgumentError`` unless it is a string and not
        empty."""
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"a parameter needs a name, got {described(name)}{here()}")
        return self._full_name(name)

    def _full_name(self, name: str) -> str:
        return f"{self._namespace}::{name}" if self._namespace else name

    def save(self, path: str | os.PathLike[str], meta: str | None = None) -> None:
        """Write the parameters to ``path``, an ``.npz``, ``.bin`` or ``.safetensors``, as a Marian model,
        sorted by type and name, floating-point ones as float32.

        In a namespace only its parameters are written, under their plain names, so that the file is a
        complete model (Marian writes the other namespaces' parameters too, under their full names). If there
        are none, nothing is written, and the log has a warning. ``meta`` is the text of
        ``special:model.yml``; without it the text of the loaded model is kept. The file is written
        atomically. ``ModelFileError`` for another ending, and for a parameter that no model file can hold.
        """
        yml = self.model_yml if meta is None else text("the meta of a model", meta)
        prefix = f"{self._namespace}::" if self._namespace else ""
        values = {
            name.removeprefix(prefix): node.val()
            for name, node in self._parameters.items()
            if name.startswith(prefix)
        }
        save_parameters(path, values, yml)

    def load(self, source: Source, mark_reloaded: bool = True) -> None:
        """Read the parameters of a Marian model into this graph, in the current namespace.

        source: the path of a model file (``.npz``, ``.bin``, ``.safetensors``), the bytes of an ``.npz`` or a
        ``.bin``, or items: arrays by name, such as ``mgraph.files.parameter_files.read_items`` returns.
        Floating-point values are converted to the graph's element type. With ``mark_reloaded``, requesting a
        parameter that the model lacks is an error from then on. ``ModelFileError`` for a damaged model,
        ``ShapeError`` or ``ElementTypeError`` if the value of an existing parameter does not fit, before
        anything changes.
        """
        mark_reloaded = flag("load", "mark_reloaded", mark_reloaded)
        values, model_yml = load_parameters(source, self._element_type)
        self._take({self._full_name(name): value for name, value in values.items()})
        self.model_yml = model_yml
        self.reloaded = self.reloaded or mark_reloaded
