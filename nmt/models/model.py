"""Translation models: what they compute, recorded in graphs, and their parameters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import jax
import numpy as np

from layers import Layer
from mgraph import ArgumentError, ExpressionGraph, Node
from mgraph.tape import Graph
from nmt.models.functions import Encoder, PairScorer, Stepper
from nmt.models.parts import NO_DROPOUT, Decoded, Dropouts, Encoded, Nodes, Setup, Source, Step
from nmt.models.types import find_type
from nmt.settings.model_options import ModelOptions, text_of


class Network(Layer):
    """Encoders and a decoder.

    The methods record them in the graph of the nodes that they get. States are flat dictionaries of nodes. In
    an encoder state every node has the sentence as axis 0, in a decoder state the hypothesis:
    ``sentence * beam + place in the beam``. Padding, other sentences and other hypotheses change nothing in a
    row.

    options: what the model is. shapes: of its parameters, by name. dropouts: in force in training graphs.
    marian_exact: whether single steps repeat Marian's decoder also where it departs from the model that was
    trained: transformers with ``transformer-preprocess n`` or ``r``, whose keys and values it leaves
    unnormalized from the second step on.

    ``UnsupportedOptionError`` for a type that is unknown or not supported.
    """

    def __init__(
        self,
        options: ModelOptions,
        shapes: Mapping[str, tuple[int, ...]],
        dropouts: Dropouts,
        marian_exact: bool,
    ) -> None:
        self.options, self.dropouts, self.marian_exact = options, dropouts, marian_exact
        setup = Setup(options, dropouts, shapes, marian_exact)
        kind = find_type(options.type)
        self._encoders = [make(setup, prefix, i) for i, (make, prefix) in enumerate(kind.encoders)]
        contexts = [encoder.dim_context for encoder in self._encoders]
        self._decoder = kind.decoder(setup, "decoder", contexts)

    @property
    def type(self) -> str:
        """The value of Marian's option ``type``."""
        return self.options.type

    @property
    def sources(self) -> int:
        """The number of source streams; 0 for a language model."""
        return len(self._encoders)

    @property
    def attends(self) -> bool:
        """Whether attention can be asked for: not of language models, nor with ``transformer-pool``."""
        return self._decoder.attends

    @property
    def dim_vocabs(self) -> tuple[int, ...]:
        """The number of words of each source and of the target."""
        return self.options.dim_vocabs

    def encode(self, sources: Sequence[Source]) -> Nodes:
        """The encoder state of sentences, with all that the decoder needs once per sentence.

        ``sources`` has one element for each source stream; their lengths may differ. ``ArgumentError`` for
        another number of them.
        """
        if len(sources) != self.sources:
            raise ArgumentError(
                f"a model of type {self.type} reads {self.sources} sources, got {len(sources)}"
            )
        parts = zip(self._encoders, sources, strict=True)
        return self._decoder.prepare([encoder.encode(source) for encoder, source in parts])

    def context(self, source: Source, stream: int = 0) -> Encoded:
        """What the encoder of the source stream number ``stream``, from 0, makes of its sentences.

        ``ArgumentError`` if there is no such stream.
        """
        if not 0 <= stream < self.sources:
            raise ArgumentError(
                f"a model of type {self.type} reads {self.sources} sources, so none of number {stream}"
            )
        return self._encoders[stream].encode(source)

    def start(self, graph: Graph, encoder_state: Nodes, batch: int, beam: int, max_length: int) -> Nodes:
        """The decoder state in ``graph`` before the first of at most ``max_length`` steps, ``beam``
        hypotheses for each of ``batch`` sentences."""
        return self._decoder.start(graph, encoder_state, batch, beam, max_length)

    def step(
        self,
        encoder_state: Nodes,
        decoder_state: Nodes,
        words: Node,
        position: Node,
        beam: int,
        *,
        shortlist: Node | None = None,
        attention: bool = False,
    ) -> Step:
        """One step: logits ``(batch * beam, vocabulary)`` of the next word, and the next state.

        ``words (batch * beam,)`` are the integers of the words before; ``position ()`` is an integer from
        0. At position 0 ``words`` are ignored: the first input is the vector of zeros. With a
        ``shortlist (batch, candidates)`` of word ids the logits are only those of a sentence's candidates.
        """
        return self._decoder.step(
            encoder_state,
            decoder_state,
            words,
            position,
            beam,
            shortlist=shortlist,
            attention=attention,
        )

    def decode(self, encoder_state: Nodes, target_ids: Node, *, attention: bool = False) -> Decoded:
        """Logits of every target word, given the words before it.

        ``target_ids (batch, time)`` are integers, ``</s>`` included, with padding after it.
        """
        return self._decoder.decode(encoder_state, target_ids, attention=attention)

    def logits(self, encoder_state: Nodes, target_ids: Node) -> Node:
        """The logits ``(batch, time, vocabulary)`` of ``decode``."""
        return self.decode(encoder_state, target_ids).logits


T = TypeVar("T")

_MOST_FUNCTIONS = 256


class Model(Network):
    """Encoders and a decoder with the parameters of one model file.

    The methods that take a graph record the model there, as those of ``Network`` do; the graph should come
    from ``new_graph``, or be a graph to be trained.

    ``encoder``, ``stepper`` and ``scorer`` give the same as pure functions of arrays, for fixed shapes. What
    differentiates them meets the hand-written rules; with ``derivatives="jax"`` it meets JAX's own, which
    forward mode (``jax.jvp``, ``jax.hessian``) needs.

    params: the parameters by name; the others are ``Network``'s.

    ``UnsupportedOptionError`` for a type that is unknown or not supported.
    """

    def __init__(
        self,
        options: ModelOptions,
        params: Mapping[str, Any],
        dropouts: Dropouts = NO_DROPOUT,
        *,
        marian_exact: bool = False,
    ) -> None:
        self.params: dict[str, jax.Array] = {name: jax.device_put(params[name]) for name in sorted(params)}
        """The parameters in the order of their names, on JAX's default device."""
        shapes = {name: value.shape for name, value in self.params.items()}
        super().__init__(options, shapes, dropouts, marian_exact)
        self._functions: dict[Hashable, Any] = {}
        self._recording = threading.RLock()

    @cached_property
    def key(self) -> Hashable:
        """Equal for models that compute the same function of their parameters."""
        options = tuple((name, self.options[name]) for name in self.options if name != "version")
        shapes = tuple((name, value.shape, str(value.dtype)) for name, value in self.params.items())
        return self.marian_exact, options, shapes

    def new_graph(self, inference: bool = True, *, seed: int = 1) -> ExpressionGraph:
        """A graph that holds this model's parameters and no others."""
        graph = ExpressionGraph(inference, seed=seed)
        for name, value in self.params.items():
            graph.param(name, value.shape).set_value(value)
        graph.reloaded = True
        graph.model_yml = text_of(self.options)
        return graph

    # -- pure functions

    def encoder(self, batch: int, lengths: tuple[int, ...], *, derivatives: str = "rules") -> Encoder:
        """``encode`` for sentences padded to ``lengths``, one for each source stream."""
        key = (batch, lengths, derivatives)
        return self._recorded(("encoder", *key), lambda: Encoder(self, *key))

    def stepper(
        self,
        batch: int,
        beam: int,
        lengths: tuple[int, ...],
        max_length: int,
        *,
        attention: bool = False,
        candidates: int = 0,
        derivatives: str = "rules",
    ) -> Stepper:
        """``start`` and ``step`` for sentences padded to ``lengths`` and up to ``max_length`` steps, with
        shortlists of so many ``candidates``, if any."""
        key = (batch, beam, lengths, max_length, attention, candidates, derivatives)
        return self._recorded(("stepper", *key), lambda: Stepper(self, *key))

    def scorer(
        self,
        batch: int,
        lengths: tuple[int, ...],
        trg_length: int,
        *,
        attention: bool = False,
        derivatives: str = "rules",
    ) -> PairScorer:
        """Log-probabilities of target words, for sentences padded to these lengths."""
        key = (batch, lengths, trg_length, attention, derivatives)
        return self._recorded(("scorer", *key), lambda: PairScorer(self, *key))

    def _recorded(self, key: Hashable, record: Callable[[], T]) -> T:
        with self._recording:
            if key not in self._functions:
                if len(self._functions) >= _MOST_FUNCTIONS:
                    del self._functions[next(iter(self._functions))]
                self._functions[key] = record()
            found: T = self._functions[key]
        return found

    def __repr__(self) -> str:
        size = sum(int(np.prod(value.shape)) for value in self.params.values())
        return f"Model({self.type}, {len(self.params)} parameters, {size:,} numbers)"
