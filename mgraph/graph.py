"""``ExpressionGraph``: records nodes, runs them, keeps the parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, overload

import jax
import numpy as np

from . import drawing, inits
from .arrays import described, flag, text, whole
from .errors import ArgumentError, GraphError, ShapeError
from .files import dumps
from .function import Function
from .inits import Initializer
from .leaves import ConstantNode, ParamNode, as_indices
from .node import Node
from .ops.operands import node as operand
from .parameters import GraphParameters
from .partial import PartialFunction, PartialShape
from .places import here
from .printing import print_gradient, print_value
from .recording import new_leaf
from .rewriting import DEFAULT, Report, Rule, optimize
from .running.assignment import assign
from .running.fusion import FusionReport
from .running.memory import MemoryUse
from .running.planner import Planner
from .running.profile import Profile
from .running.run import Run, accumulated, checked_bound
from .shape import Shape, Sizes, as_shape
from .specs import has_float, spec_of
from .tape import Tape
from .types import Type, TypeName, as_type


class ExpressionGraph(GraphParameters):
    """A graph of expressions, built by calling operators, run by ``forward`` and ``backward``.

    ``inference`` turns gradients off; ``seed`` drives initializers and dropout; ``derivatives`` is the rule
    set that ``backward`` uses: ``"rules"`` (hand-written), ``"jax"`` (JAX's own) or ``"marian"``
    (hand-written, with Marian's formulas where Marian's are wrong).

    Keep a reference to the graph: nodes refer to it weakly. Source: Marian, ``graph/expression_graph.h``.
    """

    def __init__(self, inference: bool = False, *, seed: int = 1, derivatives: str = "rules") -> None:
        super().__init__(inference, seed, derivatives)
        self.has_gradients = False
        self._run: Run | None = None
        self._open_tape()

    # -- leaves

    def new_param(self, name: str, shape: Shape, type_: Type, init: Initializer, fixed: bool) -> ParamNode:
        """A new parameter with this full name on the present tape, for ``param`` and ``load``."""
        return ParamNode.make(self, name, shape, type_, init, fixed)

    def constant(
        self,
        shape: Sizes,
        init: Initializer | None = None,
        type: TypeName | None = None,
        *,
        name: str = "none",
    ) -> ConstantNode:
        """A constant of ``shape`` filled by an initializer (zeros without one).

        The value of a random initializer is drawn at each run; every other value is computed now.
        ``ArgumentError`` for a name that is not a string.
        """
        name = text("the name of a constant", name)
        kind = self._element_type if type is None else as_type(type)
        node = ConstantNode.make(self.tape, as_shape(shape), kind, inits.zeros() if init is None else init)
        if name != "none":
            node.name = name
        return node

    def input(self, name: str, shape: Sizes, type: TypeName | None = None) -> ConstantNode:
        """A named leaf without a value: a parameter of a ``graph.function`` in nGraph's sense.
        ``ArgumentError`` for a name that is not a string."""
        name = text("the name of an input", name)
        kind = self._element_type if type is None else as_type(type)
        node: ConstantNode = new_leaf(ConstantNode, self.tape, spec_of(as_shape(shape), kind), False)
        node.name = name
        return node

    def ones(self, shape: Sizes, type: TypeName | None = None) -> ConstantNode:
        """A constant of ones."""
        return self.constant(shape, inits.ones(), type)

    def zeros(self, shape: Sizes, type: TypeName | None = None) -> ConstantNode:
        """A constant of zeros."""
        return self.constant(shape, inits.zeros(), type)

    def indices(
        self, values: Sequence[int] | np.ndarray, like: Node | None = None, axis: int | None = None
    ) -> ConstantNode:
        """A uint32 constant of indices. Its shape is ``(n,)``; with ``like`` and ``axis`` it has as many axes
        as ``like``, with size ``n`` at ``axis`` and 1 elsewhere (for ``gather``).

        ``ElementTypeError`` for negative numbers and fractions, ``ShapeError`` if ``like`` has no such axis,
        ``ArgumentError`` if ``axis`` is not a whole number.
        """
        shape = [1] if like is None else [1] * len(operand("indices", like).shape)
        axis = -1 if axis is None else whole("indices", "axis", axis)
        if not -len(shape) <= axis < len(shape):
            raise ShapeError(f"indices: axis {axis} does not exist in a node with {len(shape)} axes{here()}")
        found = as_indices(values)
        shape[axis] = len(found)
        return self.constant(tuple(shape), inits.from_vector(found), Type.uint32)

    def dropout_mask(self, p: float, shape: Sizes, type: TypeName | None = None) -> ConstantNode:
        """A fresh random mask: 0 with probability ``p``, else ``1 / (1 - p)``. ``ArgumentError`` unless
        ``0 <= p < 1``."""
        return self.constant(shape, inits.dropout(p), type)

    def set_strict_broadcasting(self, strict: bool = True) -> None:
        """Refuse implicit broadcasting: elementwise operators (arithmetic, comparisons, logic, ``select``,
        ``map``) then expect nodes of equal shape; the ``ShapeError`` points to ``mgraph.broadcast_to``.

        Numbers remain valid operands, and operators such as ``affine`` and ``layer_norm`` keep the shapes
        that they document. An operator class opts in with ``broadcasts = True``. Source: nGraph, which has no
        implicit broadcasting.
        """
        self.strict_broadcasting = strict = flag("set_strict_broadcasting", "strict", strict)
        for tape in self.recording:
            tape.strict = strict

    # -- running

    def forward(self) -> None:
        """Run the nodes that were recorded since the last run.

        You may add nodes on top of computed ones and call ``forward()`` again. On an unchanged graph it does
        nothing, and draws no new random numbers; if a parameter or an input has a new value, it runs all
        nodes again, with new random draws.
        """
        run = self._present_run()
        if run.is_outdated():
            run = self._run = run.restarted(next(self.runs))
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
        """Gradients of the top node with respect to every trainable node; the top's adjoint is 1 everywhere.

        ``reset=False`` adds to the parameters' present gradients. ``clip_value`` clips every node's gradient
        elementwise to ``+-clip_value`` before it flows on; 0 is off. ``GraphError`` unless there is exactly
        one trainable top node, before ``forward()``, if ``backward()`` has already run on these nodes, and in
        inference; ``GradientError`` if a node's rule is missing or returns no gradients of its children;
        ``ArgumentError`` for a negative ``clip_value`` and for a ``reset`` that is neither true nor false.
        """
        reset, clip_value = flag("backward", "reset", reset), checked_bound(clip_value)
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
            if node.trainable and has_float(node.spec):
                print_gradient(node)

    def backprop(self, reset: bool = True, clip_value: float = 0.0) -> None:
        """``forward()`` and ``backward()`` as one program, over the whole graph, with the present values
        of the parameters and new random draws."""
        if self._run is not None and self._run.covered:
            self._run = self._run.restarted(next(self.runs))
        self.forward()
        self.backward(reset, clip_value)

    def fits(self) -> bool:
        """Whether ``backprop()`` of the recorded nodes fits into the memory set by ``reserve_workspace_mb``.

        The step is compiled but not run; ``memory()`` says what it needs. ``GraphError`` if nothing was
        reserved. Source: Marian, ``fits``.
        """
        if self.workspace_mb is None:
            raise GraphError(
                "fits() needs to know how much memory is available; call reserve_workspace_mb(MiB) first"
            )
        return self.memory().fits

    def memory(self) -> MemoryUse:
        """The memory that ``backprop()`` of the recorded nodes needs, from XLA's analysis of the step, which
        is compiled but not run; prints as a sentence."""
        return self._present_run().memory()

    def fusion_report(self, backward: bool = False) -> FusionReport:
        """Which recorded nodes XLA computes in one kernel, and which nodes' values it writes to memory, in
        ``forward()`` or in ``backprop()``. The step is compiled but not run."""
        return self._present_run().fusion(flag("fusion_report", "backward", backward))

    def profile(self, backward: bool = False, *, runs: int = 10) -> Profile:
        """The seconds that each kernel of ``forward()``, or of ``backprop()``, takes on the CPU according to
        XLA's profiler: means over ``runs`` runs of the recorded nodes. See ``mgraph.Profile``.

        ``ArgumentError`` for fewer runs than 1; ``GraphError`` while something else is profiled;
        ``DeviceError`` if the profiler reports no kernels, as on some platforms.
        """
        return self._present_run().profile(flag("profile", "backward", backward), runs)

    def optimize(self, rules: Sequence[Rule] = DEFAULT, keep: Iterable[Node] = ()) -> Report:
        """Rewrite the recorded nodes, before ``forward()``, until none of the rules applies; returns what
        changed. See ``mgraph.rewriting.optimize``."""
        return optimize(self, rules, keep)

    def clear(self) -> None:
        """Forget all nodes and their values, even if they are still referenced; keep parameters and their
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

    def assign(self, target: Node | Mapping[Any, Node], expression: Node | None = None) -> None:
        """Replace the value of a parameter, or of part of a parameter, by that of ``expression``, computed
        from the present values: ``assign(w, w * 0.9)``, ``assign(w[1:3], x)``, ``assign(w[:, 0], x)``.

        ``assign({a: x, b[0]: y})`` replaces several values; parts that overlap are written in order. Each
        call runs one program, which overwrites the old value's buffer unless an array from ``val()``, or a
        ``forward()`` that has captured the value, may still read it; so a loop of assignments allocates
        nothing. Meanwhile no other thread may read these parameters or call a function of them. Random nodes
        draw again. ``ShapeError`` or ``ElementTypeError`` if the value does not fit, ``ArgumentError`` if the
        target is neither a parameter of this graph nor a slice, reshape, transposition or reversal of one.
        Source: Alea TK, ``Context.Assign``.
        """
        if isinstance(target, Mapping) and expression is None:
            assign(self.tape, self, target)
        elif isinstance(target, Hashable) and not isinstance(target, Mapping) and expression is not None:
            assign(self.tape, self, {target: expression})
        else:
            raise ArgumentError(
                "expected assign(parameter, node) or assign({parameter: node, ...}), got "
                f"{described(target)} and {described(expression)}{here()}"
            )

    @property
    def covered(self) -> int:
        """How many of the recorded nodes ``forward()`` has covered."""
        return 0 if self._run is None else self._run.covered

    def value_of(self, row: int) -> Any:
        """The value of recorded node number ``row``; see ``Node.val``."""
        return self._present_run().value(self._row("value_of", row))

    def gradient_of(self, row: int) -> jax.Array:
        """The gradient with respect to recorded node number ``row``; see ``Node.grad``."""
        return self._present_run().gradient(self._row("gradient_of", row))

    def _row(self, what: str, row: int) -> int:
        """The number of a recorded node; ``ArgumentError`` if there is none of this number."""
        count = len(self.tape.nodes)
        if not 0 <= (row := whole(what, "the number of a node", row)) < count:
            raise ArgumentError(f"{what}: expected the number of one of {count} nodes, got {row}{here()}")
        return row

    def forget_gradients(self) -> None:
        """Discard gradients computed ahead of ``backward()``, because a node's trainability has changed."""
        if self._run is not None:
            self._run.forget_gradients()

    def _present_run(self) -> Run:
        """The run of the recorded nodes, made on first use."""
        if self._run is None:
            self._run = Run(Planner(self.tape, self), next(self.runs))
        return self._run

    @overload
    def function(
        self,
        outputs: Node,
        inputs: Sequence[Node] | Mapping[str, Node] = (),
        *,
        derivatives: str | None = None,
    ) -> Function[jax.Array]: ...
    @overload
    def function(
        self,
        outputs: Sequence[Node],
        inputs: Sequence[Node] | Mapping[str, Node] = (),
        *,
        derivatives: str | None = None,
    ) -> Function[tuple[jax.Array, ...]]: ...
    def function(
        self,
        outputs: Node | Sequence[Node],
        inputs: Sequence[Node] | Mapping[str, Node] = (),
        *,
        derivatives: str | None = None,
    ) -> Function[Any]:
        """The graph below ``outputs`` as a compiled function of ``inputs``; see ``Function``."""
        return Function(
            self.tape, self, outputs, inputs, self.derivatives if derivatives is None else derivatives
        )

    def partial_function(
        self,
        build: Callable[..., Node | Sequence[Node]],
        inputs: Mapping[str, Any],
        *,
        derivatives: str | None = None,
    ) -> PartialFunction:
        """``build``, a function of nodes, as a function of arrays with unknown sizes, written as -1.

        inputs: the partial shape of each argument of ``build``, ``{"x": (-1, 3)}``, or a pair of shape and
        element type. ``build`` records its nodes again for each new combination of sizes, separately from
        the graph's nodes, of which it may use only the parameters. Each combination is compiled: if sizes
        vary a lot, pad to a few sizes. Source: nGraph, ``PartialShape``.
        """
        if not callable(build) or not isinstance(inputs, Mapping):
            raise ArgumentError(
                "expected partial_function(build, {argument: shape, ...}), got "
                f"{described(build)} and {described(inputs)}{here()}"
            )
        specs = {}
        for name, given in inputs.items():
            paired = (
                isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], tuple | list)
            )
            shape, kind = given if paired else (given, self._element_type)
            specs[name] = (PartialShape(shape), as_type(kind))
        return PartialFunction(self, build, specs, derivatives)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Record on a separate tape in the ``with`` block; afterwards the graph is as it was before."""
        if len(self.recording) > 1:
            raise GraphError("a function cannot be recorded aside while the body of a loop is recorded")
        kept, recording, run = self.tape, self.recording, self._run
        places = [(node, node._tape, node.id) for node in self._parameters.values()]
        self._open_tape()
        self._run = None
        try:
            yield
        finally:
            self.tape.close()
            self.tape, self.recording, self._run = kept, recording, run
            for node, tape, position in places:
                node._tape, node.id = tape, position

    # -- pictures and files

    def values(self) -> dict[str, np.ndarray]:
        """The values of all named nodes (parameters, inputs, nodes named by ``set_name``) in the order of
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
        profile: Profile | None = None,
        statistics: bool = True,
        title: str = "Expression graph",
    ) -> str:
        """The graph as one page to explore in a browser, also written to ``path`` if one is given;
        ``clusters=graph.fusion_report().clusters`` shows the kernels, ``profile=graph.profile()`` also their
        times. See ``mgraph.drawing.html``."""
        return drawing.html(
            self, path, clusters=clusters, profile=profile, statistics=statistics, title=title
        )

    def _repr_svg_(self) -> str:
        return drawing.draw(self)

    def _repr_html_(self) -> str:
        return drawing.repr_html(self)

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write ``values()`` to ``path``, an ``.npz``, ``.bin`` or ``.safetensors``; ``mgraph diff`` compares
        two files."""
        dumps.dump(self, path)

    def graphviz(self, path: str | os.PathLike[str] | None = None) -> str:
        """The graph in the dot language; also written to ``path`` if one is given."""
        return drawing.graphviz(self, path)

    def __reduce__(self) -> Any:
        # called by copy and pickle
        raise GraphError(
            "a graph cannot be copied or pickled; graph.save() and load() keep its parameters, copy_params() "
            f"takes those of another graph{here()}"
        )

    def __repr__(self) -> str:
        return f"ExpressionGraph({len(self.tape.nodes)} nodes, {len(self._parameters)} parameters)"
