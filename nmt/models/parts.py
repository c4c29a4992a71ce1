"""The parts of models: encoders and decoders, and the values that pass between them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from layers import Columns, Embedding, FactoredEmbedding, FactoredOutput, Layer, Output, PackedWords
from layers.dropping import probability
from mgraph import ArgumentError, Node, cast, gt, register_tuple, repeat, reshape
from mgraph.tape import Graph
from nmt.settings.model_options import ModelOptions
from nmt.settings.training import Dropping


@dataclass(frozen=True)
class Dropouts:
    """Dropout probabilities in training graphs; model files do not have them.

    ``rnn`` is Marian's ``dropout-rnn``, ``src`` and ``trg`` (whole words) ``dropout-src`` and
    ``dropout-trg``, ``transformer`` ``transformer-dropout``, ``transformer_attention``
    ``transformer-dropout-attention``, ``transformer_ffn`` ``transformer-dropout-ffn``. ``ArgumentError``
    unless ``0 <= p < 1`` for each.
    """

    rnn: float = 0.0
    src: float = 0.0
    trg: float = 0.0
    transformer: float = 0.0
    transformer_attention: float = 0.0
    transformer_ffn: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            probability(f"dropout {name}", value)

    @classmethod
    def from_options(cls, options: Dropping) -> Dropouts:
        """From the options of training."""
        return cls(
            options.dropout_rnn,
            options.dropout_src,
            options.dropout_trg,
            options.transformer_dropout,
            options.transformer_dropout_attention,
            options.transformer_dropout_ffn,
        )


NO_DROPOUT = Dropouts()
Nodes = dict[str, Node]

TRAINING: Mapping[str, Any] = {
    "transformer-depth-scaling": False,
    "transformer-train-positions": False,
    "max-length": 50,
}
"""Options that Marian reads but does not save in its models, with its defaults."""


@register_tuple
class Source(NamedTuple):
    """Sentences of one source stream, as nodes or arrays."""

    ids: Any
    """Integers, ``(batch, length)``: word ids, ``</s>`` included, padding after it."""
    mask: Any
    """``(batch, length)``: 1 at words, 0 at padding."""


@register_tuple
class PackedSource(NamedTuple):
    """Sentences of one source stream without padding between them, in bins of equal width, as nodes or
    arrays: encoders multiply no padding."""

    ids: Any
    """Integers, ``(bins, width)``: word ids of one sentence after the other."""
    sentences: Any
    """Integers, ``(bins, width)``: which sentence each word belongs to."""
    positions: Any
    """Integers, ``(bins, width)``: the position of each word in its sentence, from 0."""
    places: Any
    """Integers, ``(batch, length)``: the place ``bin * width + column`` of each word; anything at padding."""
    mask: Any
    """``(batch, length)``: 1 at words, 0 at padding."""


class PackedText(NamedTuple):
    """Sentences of one training stream, source or target, without padding between them, as nodes:
    products multiply no padding, and layers that need whole sentences lay them out."""

    ids: Any
    """Integers, ``(rows, width)``: word ids of one sentence after the other, across the ends of rows; for
    recurrent encoders each sentence is within a row."""
    packing: PackedWords
    """Where the words of ``(batch, length)`` sentences are."""
    mask: Any
    """Of a source ``(batch, length)``, of a target ``(rows, width)``: 1 at words, 0 at padding."""


class Encoded(NamedTuple):
    """The result of an encoder."""

    context: Node
    """``(batch, length, dim)``, or ``(rows, width, dim)`` of packed sentences."""
    mask: Node
    """``(batch, length)``, of the source."""
    packing: PackedWords | None = None
    """Where the words of packed sentences are."""


class Step(NamedTuple):
    """One step of a decoder, as nodes or arrays."""

    logits: Any
    """``(batch * beam, vocabulary)``, or ``(batch * beam, candidates)`` with a shortlist; not normalized."""
    state: Any
    """The decoder state after the step, by name."""
    attention: Any = None
    """Attention to the words of the first source, ``(batch * beam, length)``, if requested."""
    full: Any = None
    """``(batch,)``, 1 for sentences that had too few places for their words, else 0; None if words need no
    places."""


class Decoded(NamedTuple):
    """The result of a decoder over whole target sentences."""

    hidden: Node
    """The input of the output layer, ``(batch, time, dim)``, or of packed sentences
    ``(rows, width, dim)``."""
    output: Output
    attention: Node | None = None
    """Attention to the words of the first source, ``(batch, time, length)``, if requested."""

    @property
    def logits(self) -> Node:
        """``(batch, time, vocabulary)``, or of packed sentences ``(rows, width, vocabulary)``; not
        normalized."""
        return self.output(self.hidden)

    def cross_entropy(self, labels: Node, label_smoothing: float = 0.0, *, parts: int = 1) -> Node:
        """The cost of each word in ``labels``, in their order, ``(..., 1)``. parts: how many devices may
        divide the vocabulary."""
        return self.output.cross_entropy(self.hidden, labels, label_smoothing, parts=parts)


@dataclass(frozen=True)
class Setup:
    """What the parts of a model share.

    shapes: of the existing parameters by name, or empty if unknown: old files name some parameters
        differently, and some sizes are in no option.
    marian_exact: see ``Network``.
    """

    options: ModelOptions
    dropouts: Dropouts
    shapes: Mapping[str, tuple[int, ...]]
    marian_exact: bool = False


class ModelPart(Layer):
    """An encoder or a decoder of stream ``stream``, with parameters under ``prefix``."""

    def __init__(self, setup: Setup, prefix: str, stream: int) -> None:
        self.setup, self.prefix, self.stream = setup, prefix, stream
        self.options = options = setup.options
        shared = options.tied_embeddings_src or options.tied_embeddings_all
        name = "Wemb" if shared else f"{prefix}_Wemb"
        size = options.dim_vocabs[stream]
        self.groups = groups = options.factors[stream] if options.factors else None
        self.embedding: Embedding | FactoredEmbedding = (
            FactoredEmbedding(name, groups, options.dim_emb, dropout=self.word_dropout)
            if groups
            else Embedding(name, size, options.dim_emb, dropout=self.word_dropout)
        )
        """Word embeddings: the table ``Wemb`` if all sides share it (``tied-embeddings-src``,
        ``tied-embeddings-all``), else ``{prefix}_Wemb``."""

    @property
    @abstractmethod
    def word_dropout(self) -> float:
        """The probability of dropping a word."""


def _is_as_new(cls: type, name: str, other: str) -> bool:
    """Whether a class gets its method ``name`` from the class that defines its ``other``, or from a subclass
    of that: a method does not know of an ``other`` that a subclass overrides."""
    newest = next(base for base in cls.__mro__ if {name, other} & vars(base).keys())
    return name in vars(newest)


class EncoderPart(ModelPart):
    """Encodes the sentences of one source stream."""

    @property
    @abstractmethod
    def dim_context(self) -> int:
        """The number of features of a word's context."""

    @property
    def packs_bins(self) -> bool:
        """Whether the class that defines ``encode``, or a subclass of it, defines ``encode_packed``."""
        return _is_as_new(type(self), "encode_packed", "encode")

    @abstractmethod
    def encode(self, source: Source | PackedText) -> Encoded:
        """The context of each word; rows do not depend on padding or other sentences."""

    def encode_packed(self, source: PackedSource) -> Encoded:
        """Like ``encode``, for sentences in bins, if ``packs_bins``."""
        raise ArgumentError(f"encoders of type {self.options.type} take no sentences in bins")

    @property
    def word_dropout(self) -> float:
        return self.setup.dropouts.src


class DecoderPart(ModelPart):
    """Predicts target words, over whole sentences or step by step; ``Network`` explains the arguments.

    contexts: features of each source's context. output: prefix of the output layer, which the options may tie
        to the decoder's embeddings.
    """

    def __init__(self, setup: Setup, prefix: str, contexts: Sequence[int], output: str) -> None:
        super().__init__(setup, prefix, len(contexts))
        options = self.options
        tied = options.tied_embeddings or options.tied_embeddings_all
        rest: dict[str, Any] = {
            "tied": self.embedding.table if tied else None,
            "omit_bias": options.output_omit_bias,
            "transposed": f"{output}_W" not in setup.shapes,
        }
        self.output = (
            FactoredOutput(output, options.dim_emb, self.groups, **rest)
            if self.groups
            else Output(output, options.dim_emb, options.dim_vocabs[self.stream], **rest)
        )

    @property
    def attends(self) -> bool:
        """Whether attention to a source is available."""
        return self.stream > 0

    @property
    def starts_blank(self) -> bool:
        """Whether steps at position 0 ignore the decoder state before them."""
        return False

    def project(self, encoded: Sequence[Encoded]) -> Nodes:
        """What the decoder needs once per word of sentences in bins, if ``packs_bins``."""
        raise ArgumentError(f"decoders of type {self.options.type} take no sentences in bins")

    def arrange(self, projected: Nodes) -> Nodes:
        """The encoder state of sentences in bins, or of some of them, if ``packs_bins``."""
        raise ArgumentError(f"decoders of type {self.options.type} take no sentences in bins")

    @property
    def recurrent(self) -> bool:
        """Whether sentences are read word by word, so that a packed source must be within a row."""
        return False

    @property
    def packs_bins(self) -> bool:
        """Whether the class that defines ``prepare``, or a subclass of it, defines ``project`` and
        ``arrange``."""
        return all(_is_as_new(type(self), name, "prepare") for name in ("project", "arrange"))

    @abstractmethod
    def prepare(self, encoded: Sequence[Encoded]) -> Nodes:
        """The encoder state: all that the decoder needs once per sentence."""

    @abstractmethod
    def start(
        self, graph: Graph, encoder_state: Nodes, batch: int, beam: int, places: Sequence[int]
    ) -> Nodes:
        """The decoder state before the first step."""

    @abstractmethod
    def step(
        self,
        encoder_state: Nodes,
        decoder_state: Nodes,
        words: Node,
        position: Node,
        beam: int,
        *,
        shortlist: Node | Columns | None,
        attention: bool,
    ) -> Step:
        """One step."""

    @abstractmethod
    def decode(self, encoder_state: Nodes, target: Node | PackedText, *, attention: bool) -> Decoded:
        """All steps for given target sentences, their ids or packed."""

    @property
    def word_dropout(self) -> float:
        return self.setup.dropouts.trg

    def previous(self, words: Node, position: Node) -> Node:
        """The embeddings of the previous words; zeros at position 0."""
        embedded = self.embedding(words)
        known = cast(gt(position, 0), embedded.value_type)
        if position.shape:
            batch, hypotheses = *position.shape, *words.shape
            known = repeat(reshape(known, (batch, 1)), hypotheses // batch, 1)
            known = reshape(known, (hypotheses, 1))
        return embedded * known
