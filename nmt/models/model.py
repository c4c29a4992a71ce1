"""``Model``: what every translation model offers, whatever is inside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import jax
import numpy as np

from layers import Embedding, Output
from mgraph import ExpressionGraph, Node, cast, gt
from nmt.model_options import ModelOptions
from nmt.models.functions import Encoder, PairScorer, Stepper

Nodes = dict[str, Node]
T = TypeVar("T")

_MOST_FUNCTIONS = 256


class Model(ABC):
    """An encoder and a decoder with the parameters of one model file.

    The methods that take a graph record the model there; parameters are asked for under Marian's names,
    so the graph should come from ``new_graph``, or be a graph to be trained. States are flat dictionaries
    of nodes. In an encoder state every node has the sentence as axis 0, in a decoder state the
    hypothesis: ``sentence * beam + place in the beam``. Padding, other sentences and other hypotheses
    change nothing in a row.

    ``encoder``, ``stepper`` and ``scorer`` give the same as pure functions of arrays, for fixed shapes.
    """

    type: ClassVar[str]
    """The value of Marian's option ``type``."""
    output_prefix: ClassVar[str]
    """The prefix of the output layer's parameters."""

    def __init__(self, options: ModelOptions, params: Mapping[str, Any]) -> None:
        self.options = options
        self.params: dict[str, jax.Array] = {name: jax.device_put(params[name]) for name in sorted(params)}
        """The parameters in the order of their names, on JAX's default device."""
        self._functions: dict[Hashable, Any] = {}

    @property
    def dim_vocabs(self) -> tuple[int, ...]:
        """The number of words of source and target."""
        return self.options.dim_vocabs

    @cached_property
    def key(self) -> Hashable:
        """Equal for models that compute the same function of their parameters."""
        options = tuple((name, self.options[name]) for name in self.options if name != "version")
        shapes = tuple((name, value.shape, str(value.dtype)) for name, value in self.params.items())
        return self.type, options, shapes

    # -- nodes

    @abstractmethod
    def encode(self, graph: ExpressionGraph, source_ids: Node, source_mask: Node) -> Nodes:
        """The encoder state of sentences, with all that the decoder needs once per sentence.

        ``source_ids (batch, length)`` are integers, ``source_mask (batch, length)`` is 1 at words,
        ``</s>`` included, and 0 at padding after them.
        """

    @abstractmethod
    def start(self, graph: ExpressionGraph, encoder_state: Nodes, beam: int, max_length: int) -> Nodes:
        """The decoder state before the first of at most ``max_length`` steps, ``beam`` hypotheses for
        each sentence."""

    @abstractmethod
    def step(
        self,
        graph: ExpressionGraph,
        encoder_state: Nodes,
        decoder_state: Nodes,
        words: Node,
        position: Node,
        beam: int,
    ) -> tuple[Node, Nodes]:
        """One step: logits ``(batch * beam, vocabulary)`` of the next word, and the next state.

        ``words (batch * beam,)`` are the integers of the words before; ``position ()`` is an integer from
        0. At position 0 ``words`` are ignored: the first input is the vector of zeros.
        """

    @abstractmethod
    def logits(self, graph: ExpressionGraph, encoder_state: Nodes, target_ids: Node) -> Node:
        """Logits ``(batch, length, vocabulary)`` of every target word, given the words before it.

        ``target_ids (batch, length)`` are integers, ``</s>`` included, with padding after it.
        """

    def new_graph(self, inference: bool = True, *, seed: int = 1) -> ExpressionGraph:
        """A graph that holds this model's parameters and no others."""
        graph = ExpressionGraph(inference, seed=seed)
        for name, value in self.params.items():
            graph.param(name, value.shape).set_value(value)
        graph.reloaded = True
        graph.model_yml = self.options.text
        return graph

    # -- pure functions

    def encoder(self, batch: int, length: int) -> Encoder:
        """``encode`` for sentences padded to ``length``."""
        return self._recorded(("encoder", batch, length), lambda: Encoder(self, batch, length))

    def stepper(self, batch: int, beam: int, src_length: int, max_length: int) -> Stepper:
        """``start`` and ``step`` for sentences padded to ``src_length`` and up to ``max_length`` steps."""
        key = ("stepper", batch, beam, src_length, max_length)
        return self._recorded(key, lambda: Stepper(self, batch, beam, src_length, max_length))

    def scorer(self, batch: int, src_length: int, trg_length: int) -> PairScorer:
        """Log-probabilities of target words, for pairs padded to these lengths."""
        key = ("scorer", batch, src_length, trg_length)
        return self._recorded(key, lambda: PairScorer(self, batch, src_length, trg_length))

    def _recorded(self, key: Hashable, record: Callable[[], T]) -> T:
        if key not in self._functions:
            if len(self._functions) >= _MOST_FUNCTIONS:
                del self._functions[next(iter(self._functions))]
            self._functions[key] = record()
        found: T = self._functions[key]
        return found

    # -- parts that all models have

    def embedding(self, graph: ExpressionGraph, side: int, *, time_axis: int = 1) -> Embedding:
        """Word embeddings of the encoder (``side`` 0) or the decoder (1)."""
        options = self.options
        shared = options.tied_embeddings_src or options.tied_embeddings_all
        name = "Wemb" if shared else ("encoder_Wemb", "decoder_Wemb")[side]
        return Embedding(graph, name, options.dim_vocabs[side], options.dim_emb, time_axis=time_axis)

    def previous(self, graph: ExpressionGraph, words: Node, position: Node) -> Node:
        """What a step of the decoder sees of the words before: their embeddings, zeros at position 0."""
        embedded = self.embedding(graph, 1)(words)
        return embedded * cast(gt(cast(position), 0), embedded.value_type)

    def output(self, graph: ExpressionGraph) -> Output:
        """The output layer, tied to the decoder's embeddings if the options say so."""
        options = self.options
        tied = options.tied_embeddings or options.tied_embeddings_all
        return Output(
            graph,
            self.output_prefix,
            options.dim_vocabs[1],
            tied=self.embedding(graph, 1).table if tied else None,
            omit_bias=options.output_omit_bias,
            transposed=f"{self.output_prefix}_W" not in self.params,
        )

    def __repr__(self) -> str:
        size = sum(int(np.prod(value.shape)) for value in self.params.values())
        return f"{type(self).__name__}({len(self.params)} parameters, {size:,} numbers)"
