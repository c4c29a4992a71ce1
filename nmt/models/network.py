"""``Network``: the computation of every translation model, recorded in graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from layers import Columns, Layer
from mgraph import ArgumentError, ExpressionGraph, Node, cast
from mgraph.tape import Graph
from nmt.models.parts import Decoded, Dropouts, Encoded, Nodes, PackedSource, PackedText, Setup, Source, Step
from nmt.models.types import find_type
from nmt.settings.model_options import ModelOptions


class Network(Layer):
    """Encoders and a decoder.

    The methods record in the graph of their nodes. States are flat dictionaries of nodes. Axis 0 of an
    encoder state is the sentence. Axis 0 of a decoder state is the hypothesis,
    ``sentence * beam + place in the beam``; in nodes that the hypotheses of a sentence share, it is the
    sentence, and these nodes stay when hypotheses change places. Rows do not depend on padding, other
    sentences or other hypotheses.

    options: of the model. shapes: of its parameters, by name. dropouts: used in training graphs.
    marian_exact: whether single steps repeat Marian's decoder where it deviates from the trained model: with
    ``transformer-preprocess n`` or ``r`` it does not normalize keys and values from the second step on.

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
        self._decoder = kind.decoder(setup, "decoder", self.dim_contexts)

    @property
    def type(self) -> str:
        """The value of Marian's option ``type``."""
        return self.options.type

    @property
    def sources(self) -> int:
        """The number of source streams; 0 for a language model."""
        return len(self._encoders)

    @property
    def dim_contexts(self) -> tuple[int, ...]:
        """The features of a word's context, for each source stream."""
        return tuple(encoder.dim_context for encoder in self._encoders)

    @property
    def attends(self) -> bool:
        """Whether attention is available: not in language models, nor with ``transformer-pool``."""
        return self._decoder.attends

    @property
    def dim_vocabs(self) -> tuple[int, ...]:
        """The number of words of each source and of the target."""
        return self.options.dim_vocabs

    @property
    def ids(self) -> tuple[int, ...]:
        """How many ids each source and the target have: ``dim_vocabs``, or for a factored vocabulary, whose
        ``dim_vocabs`` counts lemmas and factors, the number of words."""
        factors = self.options.factors or (None,) * len(self.dim_vocabs)
        pairs = zip(self.dim_vocabs, factors, strict=True)
        return tuple(size if groups is None else groups.words for size, groups in pairs)

    def blank_graph(self, derivatives: str = "rules") -> ExpressionGraph:
        """A graph for inference, without parameters."""
        return ExpressionGraph(inference=True, derivatives=derivatives)

    def encode(self, sources: Sequence[Source | PackedSource | PackedText]) -> Nodes:
        """The encoder state of sentences: all that the decoder needs once per sentence.

        ``sources``: one for each source stream, of any lengths. ``ArgumentError`` for a wrong number, and for
        sentences in bins unless ``packs_bins``.
        """
        if len(sources) != self.sources:
            raise ArgumentError(
                f"a model of type {self.type} reads {self.sources} sources, got {len(sources)}"
            )
        return self._decoder.prepare([self.context(source, i) for i, source in enumerate(sources)])

    def project(self, sources: Sequence[PackedSource]) -> Nodes:
        """What the decoder needs of sentences in bins, by name: per sentence ``mask0`` and ``places0``, for
        further sources ``mask1`` ..., and per word, ``(bins, width)``, all else. ``ArgumentError`` unless
        ``packs_bins``."""
        return self._decoder.project([self.context(source, i) for i, source in enumerate(sources)])

    def arrange(self, projected: Nodes) -> Nodes:
        """The encoder state of sentences in bins: of those whose rows of ``mask0`` and ``places0`` are
        given."""
        return self._decoder.arrange(projected)

    @property
    def packs_bins(self) -> bool:
        """Whether sources may be packed in bins (``PackedSource``)."""
        return self._decoder.packs_bins and all(encoder.packs_bins for encoder in self._encoders)

    @property
    def recurrent(self) -> bool:
        """Whether sentences are read word by word, so that each packed source must be within a row."""
        return self._decoder.recurrent

    def context(self, source: Source | PackedSource | PackedText, stream: int = 0) -> Encoded:
        """Encode the sentences of source ``stream``, from 0; ``ArgumentError`` if it does not exist."""
        if not 0 <= stream < self.sources:
            raise ArgumentError(
                f"source {stream} does not exist: a model of type {self.type} has {self.sources}"
            )
        encoder = self._encoders[stream]
        source = source._replace(mask=cast(source.mask, source.mask.graph.default_element_type))
        return encoder.encode_packed(source) if isinstance(source, PackedSource) else encoder.encode(source)

    @property
    def starts_blank(self) -> bool:
        """Whether steps at position 0 ignore the decoder state before them."""
        return self._decoder.starts_blank

    def start(
        self, graph: Graph, encoder_state: Nodes, batch: int, beam: int, places: Sequence[int]
    ) -> Nodes:
        """The decoder state before the first step, for ``beam`` hypotheses of each of ``batch`` sentences.

        places: the sizes of the parts that hold the words of a sentence; in total, ``beam`` times the steps
        always suffice.
        """
        return self._decoder.start(graph, encoder_state, batch, beam, places)

    def step(
        self,
        encoder_state: Nodes,
        decoder_state: Nodes,
        words: Node,
        position: Node,
        beam: int,
        *,
        shortlist: Node | Columns | None = None,
        attention: bool = False,
    ) -> Step:
        """One step: logits ``(batch * beam, vocabulary)`` of the next word, and the next state.

        ``words (batch * beam,)`` are the ids of the previous words; ``position`` counts from 0, as one
        integer for all sentences, ``()``, or one for each, ``(batch,)``. At position 0 ``words`` are ignored:
        the first input is a zero vector. With a ``shortlist (batch, candidates)`` of ids, only the
        candidates' logits are computed; see ``layers.Output`` for ``Columns``.
        """
        return self._decoder.step(
            encoder_state, decoder_state, words, position, beam, shortlist=shortlist, attention=attention
        )

    def of_listed(self, ids: Node) -> Nodes:
        """What steps use in place of parameters if only the words ``ids (listed,)`` may be chosen."""
        return self._decoder.output.of_listed(ids)

    def decode(self, encoder_state: Nodes, target: Node | PackedText, *, attention: bool = False) -> Decoded:
        """Logits of every target word, given the words before it.

        ``target``: the ids ``(batch, time)``, integers with ``</s>``, then padding, or packed sentences.
        """
        return self._decoder.decode(encoder_state, target, attention=attention)

    def logits(self, encoder_state: Nodes, target: Node | PackedText) -> Node:
        """The logits ``(batch, time, vocabulary)`` of ``decode``."""
        return self.decode(encoder_state, target).logits
