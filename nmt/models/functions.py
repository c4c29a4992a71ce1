"""A model as pure functions of arrays, each recorded once for its shapes.

They take the parameters as a flat dictionary, work under every JAX transformation, and keep no graph. Their
derivatives are the hand-written rules, or JAX's own with ``derivatives="jax"``.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax

from layers import Columns
from mgraph import ExpressionGraph, Node, Type, argmax, cast, flatten, reshape
from nmt.models.network import Network
from nmt.models.parts import PackedSource, Source, Step

Arrays = dict[str, Any]
Shape = tuple[int, ...]
LOGITS, ATTENTION, FULL, LOG_PROBS, BEST = ":logits", ":attention", ":full", ":log_probs", ":best"
"""Names of outputs, distinct from those of states."""


class _Named:
    """Nodes by name as a pure function of input leaves."""

    def __init__(self, graph: ExpressionGraph, outputs: Mapping[str, Node], inputs: Sequence[Node]) -> None:
        self.names = tuple(outputs)
        self.function = graph.function(list(outputs.values()), inputs)

    def __call__(self, params: Mapping[str, Any], *inputs: Any) -> Arrays:
        return dict(zip(self.names, self.function.pure(params, inputs), strict=True))


def state_inputs(graph: ExpressionGraph, prefix: str, state: Mapping[str, Node]) -> dict[str, Node]:
    """Inputs ``{prefix}.{name}`` for a state recorded elsewhere."""
    return {name: graph.input(f"{prefix}.{name}", n.shape, n.value_type) for name, n in state.items()}


def sentence_inputs(graph: ExpressionGraph, name: str, batch: int, length: int) -> Source:
    """Inputs ``{name}_ids`` and ``{name}_mask`` for one stream of sentences."""
    ids = graph.input(f"{name}_ids", (batch, length), Type.int32)
    return Source(ids, graph.input(f"{name}_mask", (batch, length), Type.float32))


def _sources(graph: ExpressionGraph, batch: int, lengths: Sequence[int]) -> list[Source]:
    return [sentence_inputs(graph, f"source{i}", batch, length) for i, length in enumerate(lengths)]


def _specs(nodes: Mapping[str, Node]) -> dict[str, jax.ShapeDtypeStruct]:
    return {name: jax.ShapeDtypeStruct(node.shape, node.value_type.dtype) for name, node in nodes.items()}


def _flat(sources: Sequence[Sequence[Any]]) -> list[Any]:
    return [part for source in sources for part in source]


class Encoder:
    """``encode(params, sources) -> encoder_state``; see ``Model.encode``."""

    def __init__(self, network: Network, batch: int, lengths: tuple[int, ...], derivatives: str) -> None:
        graph = network.blank_graph(derivatives)
        sources = _sources(graph, batch, lengths)
        encoded = network.encode(sources)
        self.state = _specs(encoded)
        """Shapes and element types of the encoder state."""
        self._encode = _Named(graph, encoded, _flat(sources)) if encoded else None

    def __call__(self, params: Mapping[str, Any], sources: Sequence[Source]) -> Arrays:
        """``sources``: for each stream ``ids`` int32 and ``mask`` float32, both ``(batch, length)``."""
        return {} if self._encode is None else self._encode(params, *_flat(sources))


class PackedEncoder:
    """Encodes up to ``batch`` sentences of ``lengths``, packed in ``bins`` of ``width`` words; see
    ``Network.project``. ``arranged`` gives the encoder state of ``some`` of the sentences."""

    def __init__(
        self,
        network: Network,
        batch: int,
        some: int,
        lengths: tuple[int, ...],
        bins: int,
        width: int,
        derivatives: str,
    ) -> None:
        graph = network.blank_graph(derivatives)
        sources = [_packed(graph, f"source{i}", (bins, width), (batch, n)) for i, n in enumerate(lengths)]
        projected = network.project(sources)
        self.projected = _specs(projected)
        """Shapes and element types of the projections."""
        self._project = _Named(graph, projected, _flat(sources))
        given: dict[str, Node] = {
            name: graph.input(
                f"some.{name}",
                (some, *node.shape[1:]) if by_sentence(name) else node.shape,
                node.value_type,
            )
            for name, node in projected.items()
        }
        self._arrange = _Named(graph, network.arrange(given), list(given.values()))

    def __call__(self, params: Mapping[str, Any], sources: Sequence[PackedSource]) -> Arrays:
        """``sources``: one for each stream; all int32 but the float32 masks."""
        return self._project(params, *_flat(sources))

    def arranged(self, params: Mapping[str, Any], projected: Mapping[str, Any], chosen: Any) -> Arrays:
        """The encoder state of the ``chosen`` sentences, int32 ``(some,)``."""

        def given(name: str) -> Any:
            array = projected[name]
            return array.at[chosen].get(mode="promise_in_bounds") if by_sentence(name) else array

        return self._arrange(params, *map(given, self.projected))


def by_sentence(name: str) -> bool:
    """Whether the array that ``Network.project`` gives under a name has rows of sentences, not of words."""
    return name.startswith(("mask", "places"))


def _packed(graph: ExpressionGraph, name: str, packed: Shape, laid_out: Shape) -> PackedSource:
    shapes = PackedSource(packed, packed, packed, laid_out, laid_out)
    ids, sentences, positions, places, mask = (
        graph.input(f"{name}_{part}", shape, Type.float32 if part == "mask" else Type.int32)
        for part, shape in shapes._asdict().items()
    )
    return PackedSource(ids, sentences, positions, places, mask)


class Listing:
    """``of_listed(params, ids) -> params``: further parameters for steps if ``listed`` words are listed."""

    def __init__(self, network: Network, listed: int, derivatives: str) -> None:
        graph = network.blank_graph(derivatives)
        ids = graph.input("listed", (listed,), Type.int32)
        self._chosen = _Named(graph, network.of_listed(ids), [ids])

    def __call__(self, params: Mapping[str, Any], ids: Any) -> Arrays:
        return self._chosen(params, ids)


class Stepper:
    """The decoder, step by step; see ``Model.start`` and ``Model.step``. Each is recorded when first used.

    by_sentence: whether every sentence has a position of its own. listed: if not 0, how many words are listed
    for all sentences, and shortlists are ``Columns`` among these.
    """

    def __init__(
        self,
        network: Network,
        batch: int,
        beam: int,
        lengths: tuple[int, ...],
        places: tuple[int, ...],
        attention: bool,
        candidates: int,
        by_sentence: bool,
        listed: int,
        derivatives: str,
    ) -> None:
        self._recording = threading.RLock()
        self._network, self._sizes = network, (batch, beam)
        self._attention, self._by_sentence = attention, by_sentence
        self._candidates, self._listed = candidates, listed
        self._graph = graph = network.blank_graph(derivatives)
        encoded = network.encode(_sources(graph, batch, lengths))
        self._encoder_state = state_inputs(graph, "encoder", encoded)
        self._first = network.start(graph, self._encoder_state, batch, beam, places)
        if attention:
            _ = self._step  # recorded now, to fail early if the model has no attention

    @property
    def encoder_state(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and element types of the encoder state."""
        return _specs(self._encoder_state)

    @property
    def decoder_state(self) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes and element types of the decoder state."""
        return _specs(self._first)

    @cached_property
    def _start(self) -> _Named:
        with self._recording:
            return _Named(self._graph, self._first, list(self._encoder_state.values()))

    @cached_property
    def _step(self) -> _Named:
        with self._recording:
            return self._recorded_step()

    def _recorded_step(self) -> _Named:
        (batch, beam), graph = self._sizes, self._graph
        state = state_inputs(graph, "decoder", self._first)
        words = graph.input("words", (batch * beam,), Type.int32)
        position = graph.input("position", (batch,) if self._by_sentence else (), Type.int32)
        listed = graph.input("shortlist", (batch, self._candidates), Type.int32) if self._candidates else None
        shortlist = Columns(listed, self._listed) if listed is not None and self._listed else listed
        step = self._network.step(
            self._encoder_state, state, words, position, beam, shortlist=shortlist, attention=self._attention
        )
        outputs = {LOGITS: step.logits, **step.state}
        if self._attention:
            outputs[ATTENTION] = cast(step.attention)
        if step.full is not None:
            outputs[FULL] = step.full
        inputs = [*self._encoder_state.values(), *state.values(), words, position]
        return _Named(graph, outputs, inputs if listed is None else [*inputs, listed])

    def start(self, params: Mapping[str, Any], encoder_state: Mapping[str, Any]) -> Arrays:
        """The decoder state before the first step."""
        return self._start(params, *(encoder_state[name] for name in self._encoder_state))

    def step(
        self,
        params: Mapping[str, Any],
        encoder_state: Mapping[str, Any],
        decoder_state: Mapping[str, Any],
        words: Any,
        position: Any,
        shortlist: Any = None,
    ) -> Step:
        """``words (batch * beam,)``, ``position ()``, or ``(batch,)`` by sentence, and
        ``shortlist (batch, candidates)``, of ids or of columns, are int32."""
        before = [encoder_state[name] for name in self._encoder_state]
        state = [decoder_state[name] for name in self._first]
        chosen = () if shortlist is None else (shortlist,)
        after = self._step(params, *before, *state, words, position, *chosen)
        return Step(after.pop(LOGITS), after, after.pop(ATTENTION, None), after.pop(FULL, None))


class PairScorer:
    """Log-probabilities of target words given source sentences."""

    def __init__(
        self,
        network: Network,
        batch: int,
        lengths: tuple[int, ...],
        trg_length: int,
        attention: bool,
        best: bool,
        derivatives: str,
    ) -> None:
        graph = network.blank_graph(derivatives)
        sources = _sources(graph, batch, lengths)
        ids, mask = target = sentence_inputs(graph, "target", batch, trg_length)
        decoded = network.decode(network.encode(sources), ids, attention=attention)
        costs = reshape(decoded.cross_entropy(flatten(ids)), (batch, trg_length))
        outputs = {LOG_PROBS: -costs * cast(mask, costs.value_type)}
        if decoded.attention is not None:
            outputs[ATTENTION] = cast(decoded.attention)
        if best:
            outputs[BEST] = reshape(argmax(decoded.logits, -1)[1], (batch, trg_length))
        self._score = _Named(graph, outputs, _flat([*sources, target]))

    def __call__(self, params: Mapping[str, Any], sources: Sequence[Source], target: Source) -> Any:
        """``(batch, trg_length)``, 0 at padding; ids are int32, masks float32.

        With attention or the best words, a tuple of this and, as requested, the attention
        ``(batch, trg_length, length)`` and the most probable word at each position ``(batch, trg_length)``.
        """
        found = tuple(self._score(params, *_flat([*sources, target])).values())
        return found if len(found) > 1 else found[0]
