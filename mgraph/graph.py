"""``ExpressionGraph``: records nodes, runs them, keeps the parameters."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from . import drawing, inits
from .errors import ArgumentError, GraphError, ParameterError, ShapeError
from .files import dumps
from .files.parameter_files import load_parameters, save_parameters
from .function import Function
from .inits import Initializer
from .leaves import ConstantNode, Parameters, ParamNode, as_indices
from .node import Node
from .places import here
from .printing import print_gradient, print_value
from .recording import new_leaf
from .rewriting import DEFAULT, Report, Rule, optimize
from .running.assignment import assign
from .running.fusion import FusionReport
from .running.memory import MemoryUse
from .running.planner import Planner
from .running.run import Run, accumulated, checked_bound
from .settings import GraphSettings
from .shape import as_shape
from .specs import spec_of
from .tape import Tape
from .types import Type, as_type


class ExpressionGraph(GraphSettings):
    """A graph of expressions, built by calling operators, run by ``forward`` and ``backward``.

    ``inference`` turns gradients off; ``seed`` drives initializers and dropout; ``derivatives`` is the rule
    set that ``backward`` uses: ``"rules"`` (hand-written), ``"jax"`` (JAX's own) or ``"marian"``
    (hand-written, with Marian's formulas where Marian's are wrong).

    Keep a reference to the graph: nodes refer to it weakly. Source: Marian, ``graph/expression_graph.h``.
    """

    def __init__(self, inference: bool = False, *, seed: int = 1, derivatives: str = "rules") -> None:
        super().__init__(inference, seed, derivatives)
        self.has_gradients = False
        self.reloaded = False
        self.model_yml: str | None = None
        """Text of ``special:model.yml`` of the model file that was loaded."""
        self._namespace = ""
        self._run: Run | None = None
        self._open_tape()

    # -- leaves

    def switch_params(self, namespace: str) -> None:
        """Parameters asked for from now on live in ``namespace``, stored as ``namespace::name``."""
        self._namespace = namespace

    def constant(
        self, shape: Any, init: Initializer | None = None, type: Any = None, *, name: str = "none"
    ) -> ConstantNode:
        """A constant of ``shape`` filled by an initializer (zeros without one).

        The value of a random initializer is drawn at each run; every other value is computed now.
        """
        kind = self._element_type if type is None else as_type(type)
        node = ConstantNode.make(self.tape, as_shape(shape), kind, inits.zeros() if init is None else init)
        if name != "none":
            node.name = name
        return node

    def input(self, name: str, shape: Any, type: Any = None) -> ConstantNode:
        """A named leaf without a value: a parameter of a ``graph.function`` in nGraph's sense."""
        kind = self._element_type if type is None else as_type(type)
        node: ConstantNode = new_leaf(ConstantNode, self.tape, spec_of(as_shape(shape), kind), False)
        node.name = name
        return node

    def ones(self, shape: Any, type: Any = None) -> ConstantNode:
        """A constant of ones."""
        return self.constant(shape, inits.ones(), type)

    def zeros(self, shape: Any, type: Any = None) -> ConstantNode:
        """A constant of zeros."""
        return self.constant(shape, inits.zeros(), type)

    def indices(
        self, values: Sequence[int], like: Node | None = None, axis: int | None = None
    ) -> ConstantNode:
        """A uint32 constant of indices: of shape ``(n,)``, or, with ``like`` and ``axis``, of as many
        axes as ``like`` with ``n`` at ``axis`` and 1 elsewhere (for ``gather``).

        ``ElementTypeError`` for negative numbers and fractions, ``ShapeError`` if ``like`` has no such axis.
        """
        shape = [1] * len(like.shape) if like is not None else [1]
        axis = -1 if axis is None else axis
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(f"indices: axis {axis} does not exist in a node with {len(shape)} axes")
        shape[axis] = len(values)
        return self.constant(tuple(shape), inits.from_vector(as_indices(values)), Type.uint32)

    def dropout_mask(self, p: float, shape: Any, type: Any = None) -> ConstantNode:
        """A fresh random mask: 0 with probability ``p``, else ``1 / (1 - p)``."""
        return self.constant(shape, inits.dropout(p), type)

    def param(
        self, name: str, shape: Any, init: Initializer | None = None, type: Any = None, fixed: bool = False
    ) -> ParamNode:
        """The parameter ``name``; made with ``init`` (Glorot uniform without one) if it is new.

        ``fixed`` parameters are not trained. ``ShapeError`` if it exists with another shape,
        ``ParameterError`` if it exists with another element type or is new in a graph whose parameters were
        loaded from a file; ``ArgumentError`` for a name that is not a text.
        """
        if not isinstance(name, str) or not name:
            raise ArgumentError(f"a parameter needs a name, got {name!r}")
        full = self._full_name(name)
        shape = as_shape(shape)
        kind = None if type is None else as_type(type)
        if full in self._parameters:
            node = self._parameters[full]
            self._parameters.check_shape(full, shape)
            if kind is not None and kind is not node.value_type:
                raise ParameterError(
                    f"parameter {full!r} has element type {node.value_type}, asked for again with {kind}"
                )
            node.current()
            return node
        if self.reloaded:
            raise ParameterError(
                f"parameter {full!r} of shape {shape} is not in the model that was loaded; it has "
                + ", ".join(sorted(self._parameters))
            )
        init = inits.glorot_uniform() if init is None else init
        node = ParamNode.make(self, full, shape, kind or self._element_type, init, fixed)
        self._parameters.add(node)
        return node

    def get(self, name: str) -> ParamNode | None:
        """The parameter ``name`` of the current namespace, ``None`` without one."""
        return self._parameters.get(self._full_name(name))

    def params(self) -> Parameters:
        """All parameters by name."""
        return self._parameters

    def copy_params(self, other: ExpressionGraph) -> None:
        """Copy the values of all parameters of another graph, creating those that are missing.

        They keep their full names, inside the current namespace, and stay fixed if they are. Values are
        shared until one of the graphs is trained, so that a model loaded once can serve several graphs.
        ``ShapeError`` or ``ElementTypeError`` if a value does not fit, before anything changes. Source:
        Marian, ``copyParams``, which does not overwrite existing parameters.
        """
        if not isinstance(other, ExpressionGraph):
            raise ArgumentError(f"copy_params expects an ExpressionGraph, got {other!r}")
        given = {self._full_name(name): node for name, node in other.params().items()}
        fixed = {full for full, node in given.items() if not node.trainable}
        self._take({full: node.val() for full, node in given.items()}, fixed)

    def _take(self, values: Mapping[str, Any], fixed: Collection[str] = ()) -> None:
        """Give parameters these values by full name, creating those that are missing, if all values fit."""
        for full in self._parameters.keys() & values.keys():
            self._parameters[full].check_value(values[full])
        for full, value in values.items():
            if full not in self._parameters:
                kind = as_type(value.dtype)
                made = ParamNode.make(self, full, value.shape, kind, inits.zeros(), full in fixed)
                self._parameters.add(made)
            self._parameters[full].set_value(value)

    def _full_name(self, name: str) -> str:
        return f"{self._namespace}::{name}" if self._namespace else name

    # -- running

    def forward(self) -> None:
        """Run the nodes that were recorded since the last run.

        More nodes may be added on top of computed ones and ``forward()`` called again. On an unchanged
        graph it does nothing, and draws no new random numbers.
        """
        run = self._present_run()
        start = run.covered
        run.forward()
        shown = [n for n in self.tape.debugged if n.id >= start]
        called = [(n, call) for n, call in self.tape.observers if n.id >= start]
        if shown or called or self.throw_nan:
            run.execute()
        for node in shown:
            print_value(node)
        for node, call in called:
            call(node.child(0))

    def backward(self, reset: bool = True, clip_value: float = 0.0) -> None:
        """Gradients of the one top node by every trainable node; the top's adjoint is 1 everywhere.

        ``reset=False`` adds to the parameters' present gradients. ``clip_value`` cuts every node's gradient
        elementwise to ``+-clip_value`` before it flows on; 0 is off. ``GraphError`` if there is more than one
        trainable top node, before ``forward()``, and in inference; ``ArgumentError`` for a negative
        ``clip_value``.
        """
        clip_value = checked_bound(clip_value)
        if self._inference:
            raise GraphError("an inference graph has no gradients; set_inference(False) first")
        gradients = self._present_run().backward(clip_value)
        nodes = self.tape.nodes
        by_name = {n.name: g for i, g in gradients.items() if isinstance(n := nodes[i], ParamNode)}
        if not reset or clip_value:
            before = {} if reset else self._parameters.accumulated
            by_name = accumulated(by_name, before, clip_value, self.device)
        self._parameters.accumulated = by_name if reset else {**self._parameters.accumulated, **by_name}
        self.has_gradients = True
        for node in self.tape.debugged:
            if node.trainable:
                print_gradient(node)

    def backprop(self, reset: bool = True, clip_value: float = 0.0) -> None:
        """``forward()`` and ``backward()`` as one program, over the whole graph, with the present values
        of the parameters and new random draws."""
        if self._run is not None and self._run.covered:
            self._run = self._run.restarted(next(self.runs))
        self.forward()
        self.backward(reset, clip_value)

    def fits(self) -> bool:
        """Whether ``backprop()`` of what is recorded fits into the memory of ``reserve_workspace_mb``.

        The step is compiled and not run; ``memory()`` says what it needs. ``GraphError`` if nothing was
        reserved. Source: Marian, ``fits``.
        """
        if self.workspace_mb is None:
            raise GraphError("fits() needs to know the memory there is; call reserve_workspace_mb(MiB) first")
        return self.memory().fits

    def memory(self) -> MemoryUse:
        """What ``backprop()`` of what is recorded needs, from XLA's analysis of the step, which is compiled
        and not run; prints as a sentence."""
        return self._present_run().memory()

    def fusion_report(self, backward: bool = False) -> FusionReport:
        """Which nodes of what is recorded XLA computes in one kernel, and whose values it writes to memory;
        for ``forward()``, or for ``backprop()``. The step is compiled and not run."""
        return self._present_run().fusion(backward)

    def optimize(self, rules: Sequence[Rule] = DEFAULT, keep: Iterable[Node] = ()) -> Report:
        """Rewrite what is recorded, before ``forward()``, by rules until none fits; says what changed. See
        ``mgraph.rewriting.optimize``."""
        return optimize(self, rules, keep)

    def clear(self) -> None:
        """Forget all nodes and their values, also those still referenced; keep parameters and their
        gradients. ``GraphError`` while the body of a loop is recorded."""
        if len(self.recording) > 1:
            raise GraphError("clear() was called while the body of a loop is recorded")
        self.tape.close()
        if self._run is not None:
            self._run.close()
            self._run = None
        self._open_tape()

    def _open_tape(self) -> None:
        self.tape: Tape[Node] = Tape(self)
        self.recording = [self.tape]
        """The tape and, while a loop's body is recorded, the tapes of the bodies that are open."""

    def assign(self, target: ParamNode | Mapping[ParamNode, Node], expression: Node | None = None) -> None:
        """Replace the value of a parameter by that of ``expression``, computed from the present values.

        ``assign({a: x, b: y})`` replaces several at once. It is one program, which overwrites the old value's
        buffer unless that may still be read, by an array from ``val()`` or by a ``forward()`` that has
        captured it; a loop of assignments allocates nothing. Random nodes draw again. ``ShapeError`` or
        ``ElementTypeError`` if the value does not fit, ``ArgumentError`` if the target is not a parameter of
        this graph. Source: Alea TK, ``Context.Assign``.
        """
        if isinstance(target, Mapping) and expression is None:
            assign(self.tape, self, target)
        elif not isinstance(target, Mapping) and expression is not None:
            assign(self.tape, self, {target: expression})
        else:
            raise ArgumentError("expected assign(parameter, node) or assign({parameter: node, ...})")

    @property
    def covered(self) -> int:
        """How many of the recorded nodes ``forward()`` has covered."""
        return 0 if self._run is None else self._run.covered

    def value_of(self, row: int) -> Any:
        """The value of recorded node number ``row``; see ``Node.val``."""
        return self._present_run().value(row)

    def gradient_of(self, row: int) -> jax.Array:
        """The gradient by recorded node number ``row``; see ``Node.grad``."""
        return self._present_run().gradient(row)

    def forget_gradients(self) -> None:
        """Discard gradients computed ahead of ``backward()``: what is trainable has changed."""
        if self._run is not None:
            self._run.forget_gradients()

    def _present_run(self) -> Run:
        """The computation of what is recorded."""
        if self._run is None:
            self._run = Run(Planner(self.tape, self), next(self.runs))
        return self._run

    def function(
        self,
        outputs: Node | Sequence[Node],
        inputs: Sequence[Node] | Mapping[str, Node] = (),
        *,
        derivatives: str | None = None,
    ) -> Function:
        """The graph below ``outputs`` as a compiled function of ``inputs``; see ``Function``."""
        return Function(self.tape, self, outputs, inputs, derivatives or self.derivatives)

    # -- pictures and files

    def values(self) -> dict[str, np.ndarray]:
        """The values of all named nodes (parameters, inputs, those with ``set_name``) in the order of
        recording, after ``forward()``."""
        return dumps.values(self)

    def draw(self, path: str | os.PathLike[str] | None = None, *, depth: int | None = None) -> str:
        """The graph as SVG, also written to ``path`` if one is given; groups deeper than ``depth`` are
        folded. See ``mgraph.drawing.draw``."""
        return drawing.draw(self, path, depth=depth)

    def html(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        clusters: Mapping[int, str] | None = None,
        statistics: bool = True,
        title: str = "Expression graph",
    ) -> str:
        """The graph as one page to explore in a browser, also written to ``path`` if one is given;
        ``clusters=graph.fusion_report().clusters`` shows the kernels. See ``mgraph.drawing.html``."""
        return drawing.html(self, path, clusters=clusters, statistics=statistics, title=title)

    def _repr_svg_(self) -> str:
        return drawing.draw(self)

    def _repr_html_(self) -> str:
        return drawing.repr_html(self)

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write ``values()`` to ``path``, an ``.npz`` or a ``.bin``; ``mgraph diff`` compares two of them."""
        dumps.dump(self, path)

    def graphviz(self, path: str | os.PathLike[str] | None = None) -> str:
        """The graph in the dot language, as Marian draws it; also written to ``path`` if one is given."""
        return drawing.graphviz(self, path)

    def save(self, path: str | os.PathLike[str], meta: str | None = None) -> None:
        """Write the parameters to ``path``, an ``.npz`` or a ``.bin``, as a Marian model, sorted by type and
        name, as float32.

        In a namespace only its parameters are written, under their plain names, so that the file is a
        complete model (Marian writes the other namespaces' parameters too, under their full names). ``meta``
        is the text of ``special:model.yml``; without it that of the loaded model is kept. The file is written
        atomically.
        """
        text = self.model_yml if meta is None else meta
        prefix = f"{self._namespace}::" if self._namespace else ""
        values = {
            name.removeprefix(prefix): node.val()
            for name, node in self._parameters.items()
            if name.startswith(prefix)
        }
        save_parameters(path, values, text)

    def load(self, path: str | os.PathLike[str], mark_reloaded: bool = True) -> None:
        """Read the parameters of a Marian model, ``.npz`` or ``.bin``, into this graph, in the current
        namespace.

        Floating point values become the graph's element type. With ``mark_reloaded``, requesting a parameter
        that the file lacks is an error from then on. ``ModelFileError`` for a damaged file, ``ShapeError`` or
        ``ElementTypeError`` if the value of an existing parameter does not fit, before anything changes.
        """
        values, model_yml = load_parameters(path, self._element_type)
        self._take({self._full_name(name): value for name, value in values.items()})
        self.model_yml = model_yml
        self.reloaded = self.reloaded or mark_reloaded

    def __reduce__(self) -> Any:
        # called by copy and pickle
        raise GraphError(
            "a graph cannot be copied or pickled; graph.save() and load() keep its parameters, copy_params() "
            f"takes those of another graph{here()}"
        )

    def __repr__(self) -> str:
        return f"ExpressionGraph({len(self.tape.nodes)} nodes, {len(self._parameters)} parameters)"
