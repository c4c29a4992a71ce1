"""A model as pure functions of arrays, each recorded once for its shapes.

They take the parameters as a flat dictionary, work under every transformation of JAX, and keep no graph.
Differentiation by them is JAX's own; for the hand-written rules record the model in a graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mgraph import ExpressionGraph, Node, Type, cross_entropy, flatten, reshape

if TYPE_CHECKING:
    from nmt.models.model import Model

Arrays = dict[str, Any]


class _Named:
    """Nodes by name as a pure function of input leaves."""

    def __init__(self, graph: ExpressionGraph, outputs: Mapping[str, Node], inputs: Sequence[Node]) -> None:
        self.names = tuple(outputs)
        self.function = graph.function(list(outputs.values()), inputs, derivatives="jax")

    def __call__(self, params: Mapping[str, Any], *inputs: Any) -> Arrays:
        return dict(zip(self.names, self.function.pure(params, inputs), strict=True))


def _inputs(graph: ExpressionGraph, prefix: str, state: Mapping[str, Node]) -> dict[str, Node]:
    """Inputs that stand for a state recorded elsewhere."""
    return {name: graph.input(f"{prefix} {name}", n.shape, n.value_type) for name, n in state.items()}


def _sentences(graph: ExpressionGraph, side: str, batch: int, length: int) -> tuple[Node, Node]:
    ids = graph.input(f"{side}_ids", (batch, length), Type.int32)
    return ids, graph.input(f"{side}_mask", (batch, length), Type.float32)


class Encoder:
    """``encode(params, source_ids, source_mask) -> encoder_state``; see ``Model.encode``."""

    def __init__(self, model: Model, batch: int, length: int) -> None:
        graph = ExpressionGraph(inference=True)
        inputs = _sentences(graph, "source", batch, length)
        self._encode = _Named(graph, model.encode(graph, *inputs), inputs)

    def __call__(self, params: Mapping[str, Any], source_ids: Any, source_mask: Any) -> Arrays:
        """``source_ids`` int32 and ``source_mask`` float32, both ``(batch, length)``."""
        return self._encode(params, source_ids, source_mask)


class Stepper:
    """The decoder, step by step; see ``Model.start`` and ``Model.step``."""

    def __init__(self, model: Model, batch: int, beam: int, src_length: int, max_length: int) -> None:
        graph = ExpressionGraph(inference=True)
        encoded = model.encode(graph, *_sentences(graph, "source", batch, src_length))
        encoder_state = _inputs(graph, "encoder", encoded)
        start = model.start(graph, encoder_state, beam, max_length)
        self._start = _Named(graph, start, list(encoder_state.values()))
        decoder_state = _inputs(graph, "decoder", start)
        words = graph.input("words", (batch * beam,), Type.int32)
        position = graph.input("position", (), Type.int32)
        logits, after = model.step(graph, encoder_state, decoder_state, words, position, beam)
        inputs = [*encoder_state.values(), *decoder_state.values(), words, position]
        self._step = _Named(graph, {"logits": logits, **after}, inputs)
        self._encoder_names, self._decoder_names = tuple(encoder_state), tuple(decoder_state)

    def start(self, params: Mapping[str, Any], encoder_state: Mapping[str, Any]) -> Arrays:
        """The decoder state before the first step."""
        return self._start(params, *(encoder_state[name] for name in self._encoder_names))

    def step(
        self,
        params: Mapping[str, Any],
        encoder_state: Mapping[str, Any],
        decoder_state: Mapping[str, Any],
        words: Any,
        position: Any,
    ) -> tuple[Any, Arrays]:
        """Logits ``(batch * beam, vocabulary)`` and the next state; ``words (batch * beam,)`` and
        ``position ()`` are int32."""
        before = [encoder_state[name] for name in self._encoder_names]
        state = [decoder_state[name] for name in self._decoder_names]
        after = self._step(params, *before, *state, words, position)
        return after.pop("logits"), after


class PairScorer:
    """Log-probabilities of the words of target sentences given source sentences."""

    def __init__(self, model: Model, batch: int, src_length: int, trg_length: int) -> None:
        graph = ExpressionGraph(inference=True)
        source = _sentences(graph, "source", batch, src_length)
        ids, mask = target = _sentences(graph, "target", batch, trg_length)
        logits = model.logits(graph, model.encode(graph, *source), ids)
        costs = reshape(cross_entropy(logits, flatten(ids)), (batch, trg_length))
        self._score = _Named(graph, {"log_probs": -costs * mask}, [*source, *target])

    def __call__(
        self, params: Mapping[str, Any], source_ids: Any, source_mask: Any, target_ids: Any, target_mask: Any
    ) -> Any:
        """``(batch, trg_length)``, 0 at padding; ids are int32, masks float32."""
        return self._score(params, source_ids, source_mask, target_ids, target_mask)["log_probs"]
