"""Marian's metric models: a transformer encoder, a pooler of its states, and layers that score."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np

from layers import (
    Affine,
    Embedding,
    EncoderLayer,
    Layer,
    NormConfig,
    Parameter,
    PreProcess,
    UnsupportedOptionError,
    choose,
    log_mask,
)
from mgraph import (
    ExpressionGraph,
    Node,
    Type,
    cast,
    concatenate,
    cumsum,
    eq,
    inits,
    log,
    max,
    minimum,
    reshape,
    sigmoid,
    slice,
    softmax,
    sparsemax,
    sqrt,
    square,
    sum,
    tanh,
)
from mgraph import abs as absolute
from nmt.models.names import FileNames, NewNames, encoder_names, linear_names
from nmt.models.parts import NO_DROPOUT, Encoded, EncoderPart, Setup, Source
from nmt.models.pooled import PooledModel
from nmt.models.transformer import TransformerEncoder, encoder_config, positions
from nmt.settings.metric_options import METRICS, MetricOptions
from nmt.settings.model_options import ModelOptions, text_of

MIX_EPS = 1e-12
MOST_SIZES = 8
"""The most sizes that ``comet-pooler-ffn`` may have."""
BLEURT_NORM = NormConfig(eps=1e-12, rms_bias=True)
"""As in the original model."""
Shapes = Mapping[str, tuple[int, ...]]


class CometEncoder(Layer):
    """Sentences as vectors: the pooled states of a transformer encoder, or a mixture of all its layers.

    Without ``comet-mix`` the vector is ``pool(h)`` of the last states ``h (batch, time, dim)``. With it,
    ``sum_l p_l gamma pool(h_l)`` over the embeddings and all layers, ``p = softmax(weights)`` or
    ``sparsemax``. With ``comet-mix-norm`` the states of a sentence, all its words and features together, are
    first shifted to mean 0 and scaled to variance 1.

    Parameters: those of ``TransformerEncoder``, and ``encoder_weights (1, enc-depth + 1)``,
    ``encoder_gamma (1, 1)``. Differs: Marian's variance counts padding, so its scores depend on the batch.
    Source: Rei et al. 2020; Marian, ``CometEncoder`` in ``models/comet_qe.h``.
    """

    def __init__(self, setup: Setup, metric: MetricOptions) -> None:
        self.metric = metric
        self.encoder = TransformerEncoder(setup, "encoder", 0)
        self.dim = setup.options.dim_emb
        self.weights = self.gamma = None
        if metric.comet_mix:
            self.weights = self.param("encoder_weights", 1, setup.options.enc_depth + 1, inits.zeros())
            self.gamma = self.param("encoder_gamma", 1, 1, inits.ones())

    def __call__(self, source: Source) -> Node:
        """The vectors of sentences, ``(batch, dim)``."""
        encoder, mask = self.encoder, source.mask
        batch, length = mask.shape
        embedded = encoder.stack.positions(encoder.embedding(source.ids))
        states = encoder.states(embedded, log_mask(reshape(mask, (batch, 1, 1, length))))
        words = reshape(mask, (batch, length, 1))
        if self.weights is None or self.gamma is None:
            return self._pooled(states[-1], words)
        graph = words.graph
        weights = self.weights.on(graph)
        sparse = self.metric.comet_mix_transformation == "sparsemax"
        shares = reshape(sparsemax(weights) if sparse else softmax(weights), (1, len(states), 1))
        rows = [reshape(self._pooled(state, words), (batch, 1, self.dim)) for state in states]
        mixed = sum(concatenate(rows, 1) * shares, 1)
        return reshape(mixed, (batch, self.dim)) * self.gamma.on(graph)

    def _pooled(self, x: Node, words: Node) -> Node:
        """One vector of the states ``x (batch, time, dim)`` at the ``words (batch, time, 1)``."""
        x = _normalized(x, words) if self.metric.comet_mix_norm else x
        pool = self.metric.comet_pool
        if pool == "avg":
            found = sum(x * words, 1) / sum(words, 1)
        else:
            found = slice(x, 1, 0) if pool == "cls" else max(x + log(words), 1)
        return reshape(found, (x.shape[0], self.dim))


def _normalized(x: Node, words: Node) -> Node:
    """``x`` minus its mean, divided by its standard deviation, both over words and features; in float32."""
    inside, wide = cast(words, Type.float32), cast(x, Type.float32)
    numbers = sum(inside, 1) * float(x.shape[-1])
    mean = sum(sum(wide * inside, -1), 1) / numbers
    spread = sum(sum(square((wide - mean) * inside), -1), 1) / numbers
    return cast((wide - mean) / sqrt(spread + MIX_EPS), x.value_type)


class BleurtEncoder(EncoderPart):
    """The first state of a transformer encoder over joined texts, ``(batch, transformer-dim-model)``.

    Word, segment and position embeddings of size ``dim-emb`` are added, pre-processed
    (``transformer-postprocess-emb``) and mapped to ``transformer-dim-model`` features. A word's segment is
    the number of ``</s>`` before it.

    Parameters: ``encoder_Wtype (bert-type-vocab-size, dim-emb)``, ``encoder_proj_W``, ``encoder_proj_b``, and
    those of ``TransformerEncoder``. Source: Sellam et al. 2020; Marian, ``models/bleurt.h``.
    """

    def __init__(self, setup: Setup, separator: int) -> None:
        super().__init__(setup, "encoder", 0)
        options, self.separator = setup.options, separator
        self.dim = dim_model(options)
        config = replace(encoder_config(_with_dim(setup, self.dim)), norm=BLEURT_NORM)
        types, dim_emb = options.bert_type_vocab_size, options.dim_emb
        self.types = Embedding("encoder_Wtype", types, dim_emb)
        self.positions = positions(self)
        self.bottom = PreProcess(
            "encoder_emb", dim_emb, options.transformer_postprocess_emb, norm=BLEURT_NORM
        )
        self.projection = Affine("encoder_proj", dim_emb, self.dim)
        depths = range(1, options.enc_depth + 1)
        self.layers = [EncoderLayer(f"encoder_l{depth}", config, depth) for depth in depths]

    @property
    def dim_context(self) -> int:
        return self.dim

    def encode(self, source: Any) -> Encoded:
        batch, length = source.mask.shape
        mask = log_mask(reshape(source.mask, (batch, 1, 1, length)))
        ends = cast(eq(cast(source.ids), float(self.separator)), Type.float32)
        before = minimum(cumsum(ends, 1) - ends, float(self.types.table.shape[0] - 1))
        embedded = self.embedding(source.ids) + self.types(cast(before, Type.int32))
        x = self.projection(self.bottom(self.positions(embedded)))
        for layer in self.layers:
            x = layer(x, mask)
        return Encoded(x, source.mask)

    def __call__(self, source: Source) -> Node:
        """The vectors of sentences, ``(batch, dim)``."""
        return reshape(slice(self.encode(source).context, 1, 0), (source.mask.shape[0], self.dim))


def dim_model(options: ModelOptions) -> int:
    """The features of a transformer's layers: ``transformer-dim-model``, by default ``dim-emb``."""
    value = options.extra.get("transformer-dim-model")
    return value if isinstance(value, int) and value > 0 else options.dim_emb


def _with_dim(setup: Setup, dim: int) -> Setup:
    return replace(setup, options=replace(setup.options, dim_emb=dim))


class Regressor(Layer):
    """``y = act(tanh(... tanh(x W1 + b1) ...) Wn + bn)``: a score of the features ``x (batch, dim_input)``.

    Parameters: ``pooler_W1 (dim_input, sizes[0])``, ``pooler_b1`` and so on; the last has one column.
    Source: Marian, ``CometMetricPooler`` and ``BleurtPooler``.
    """

    def __init__(self, dim_input: int, sizes: Sequence[int], final_sigmoid: bool) -> None:
        self.final_sigmoid = final_sigmoid
        pairs = pairwise([dim_input, *sizes, 1])
        self.layers = [Affine("pooler", *pair, str(i)) for i, pair in enumerate(pairs, 1)]

    def __call__(self, x: Node) -> Node:
        *inner, last = self.layers
        for layer in inner:
            x = tanh(layer(x))
        return sigmoid(last(x)) if self.final_sigmoid else last(x)


def _quality(source: Node, translation: Node) -> list[Node]:
    """COMET-QE: the features of a pair, in both orders."""
    same = [translation * source, absolute(translation - source)]
    return [concatenate([*both, *same], -1) for both in ((translation, source), (source, translation))]


def _comparison(source: Node, translation: Node, reference: Node) -> list[Node]:
    """COMET: the features of a translation."""
    with_reference = translation * reference, absolute(translation - reference)
    with_source = translation * source, absolute(translation - source)
    return [concatenate([translation, reference, *with_reference, *with_source], -1)]


def _itself(joined: Node) -> list[Node]:
    return [joined]


FEATURES: Mapping[str, tuple[Callable[..., list[Node]], int, int]] = {
    "comet-qe": (_quality, 2, 4),
    "comet": (_comparison, 3, 6),
    "comet-unified": (_itself, 1, 1),
    "bleurt": (_itself, 1, 1),
}
"""By type: the features to score, the number of sequences, and the number of vectors in the features."""


def _comet_names(options: ModelOptions) -> Iterator[tuple[str, str]]:
    yield from encoder_names("CometEncoder->encoder", "encoder", options)
    yield "CometEncoder->encoder->weights", "encoder_weights"
    yield "CometEncoder->encoder->gamma", "encoder_gamma"
    for i in range(MOST_SIZES + 1):
        yield from linear_names(_pooler_layer("CometQEPooler", i), "pooler", str(i + 1))


def _bleurt_names(options: ModelOptions) -> Iterator[tuple[str, str]]:
    yield from encoder_names("BleurtEncoder->encoder", "encoder", options)
    yield "BleurtEncoder->typeEmbedding->embeddings", "encoder_Wtype"
    yield from linear_names("BleurtEncoder->encoder->eProj", "encoder_proj", "")
    for i in range(2):
        yield from linear_names(_pooler_layer("BleurtPooler", i), "pooler", str(i + 1))


def _pooler_layer(pooler: str, number: int) -> str:
    """The C++ expression: after each affine layer come an activation and dropout."""
    return f"{pooler}->layers->at({3 * number})->as<marian::nn::Linear>()"


def metric_names(kind: str) -> FileNames:
    """The names of the parameters of a type of metric in files."""
    return NewNames(_bleurt_names if kind == "bleurt" else _comet_names)


class MetricModel(PooledModel, Layer):
    """A metric with the parameters of a model file: scores of lines, ``(batch, scores)``.

    COMET-QE has two scores, of source and translation in either order; the others have one.

    options: of the encoder. metric: of the metric. params: by name. separator: the id of ``</s>``.
    embedding: the sentence vectors of a COMET encoder instead of scores, for one text.
    ``UnsupportedOptionError`` for a type that is unknown, and for options that are not supported.
    """

    def __init__(
        self,
        options: ModelOptions,
        metric: MetricOptions,
        params: Mapping[str, Any],
        *,
        separator: int,
        embedding: bool = False,
    ) -> None:
        choose("type", options.type, METRICS)
        self.type = options.type
        self.metric, self.separator, self.embedding = metric, separator, embedding
        self.params = {name: jax.device_put(params[name]) for name in sorted(params)}
        shapes = {name: tuple(value.shape) for name, value in self.params.items()}
        self.config = text_of(options)
        """The options in the model file, as YAML."""
        self.options = options = _as_encoder(options, shapes)
        setup = Setup(options, NO_DROPOUT, shapes)
        self.longest = shapes.get("encoder_Wpos", (0,))[0]
        self._features, self.streams, vectors = FEATURES[self.type]
        self.encoder: CometEncoder | BleurtEncoder
        if len(metric.comet_pooler_ffn) > MOST_SIZES:
            raise UnsupportedOptionError(
                f"comet-pooler-ffn: expected at most {MOST_SIZES} sizes, got {len(metric.comet_pooler_ffn)}"
            )
        if self.type == "bleurt":
            self.encoder = BleurtEncoder(setup, separator)
            self.regressor = Regressor(self.encoder.dim, [self.encoder.dim], False)
        else:
            self.encoder = CometEncoder(setup, metric)
            dim = vectors * self.encoder.dim
            self.regressor = Regressor(dim, metric.comet_pooler_ffn, metric.comet_final_sigmoid)
        if embedding:
            if self.type == "bleurt":
                raise UnsupportedOptionError("type: bleurt has no sentence vectors, as in Marian")
            self.streams = 1
        self.numbers = self.encoder.dim if embedding else 2 if self.type == "comet-qe" else 1

    @property
    def key(self) -> Hashable:
        shapes = tuple((name, value.shape, str(value.dtype)) for name, value in self.params.items())
        options = tuple((name, self.options[name]) for name in self.options if name != "version")
        return type(self), self.type, options, self.metric, self.separator, self.embedding, shapes

    def blank_graph(self) -> ExpressionGraph:
        graph = ExpressionGraph(inference=True, derivatives="jax")
        kinds = {value.dtype for value in self.params.values()}
        graph.set_default_element_type(Type.float32 if len(kinds) != 1 else kinds.pop())
        return graph

    def pooled(self, sources: Sequence[Source]) -> Node:
        kind = sources[0].mask.graph.default_element_type
        vectors = [self.encoder(Source(ids, cast(mask, kind))) for ids, mask in sources]
        if self.embedding:
            return cast(vectors[0], Type.float32)
        scores = [self.regressor(features) for features in self._features(*vectors)]
        found = cast(concatenate(scores, -1) if len(scores) > 1 else scores[0], Type.float32)
        return minimum(found, 1.0) if self.type == "comet-unified" else found

    def declared(self) -> dict[str, Parameter]:
        """The parameters that the model needs, by name."""
        return {parameter.name: parameter for parameter in self.parameters()}

    def __repr__(self) -> str:
        size = np.sum([value.size for value in self.params.values()])
        return f"MetricModel({self.type}, {len(self.params)} parameters, {size:,} numbers)"


def words_in_table(options: ModelOptions, shapes: Shapes) -> int:
    """How many words the embedding table has, from the shapes of parameters, whose names are the same in
    files."""
    tied = options.tied_embeddings_src or options.tied_embeddings_all
    rows, *_ = shapes.get("Wemb" if tied else "encoder_Wemb") or (options.dim_vocabs[-1],)
    return rows


def _as_encoder(options: ModelOptions, shapes: Shapes) -> ModelOptions:
    """The options of the encoder, which is that of ``transformer-new``; its vocabulary has the size of the
    table."""
    return replace(
        options,
        type="transformer-new",
        dim_vocabs=(words_in_table(options, shapes),),
        transformer_decoder_autoreg="self-attention",
        transformer_tied_layers=(),
    )
