"""The training objective: the loss as graph nodes, and as a function to differentiate."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from layers import PackedWords, choose
from mgraph import (
    ArgumentError,
    ExpressionGraph,
    Node,
    Type,
    cast,
    eq,
    flatten,
    inits,
    log,
    maximum,
    register_tuple,
    reshape,
    sum,
    threefry,
    unlikelihood,
)
from mgraph.device import platform_of
from mgraph.draws import Key, RowsKey, run_key
from nmt.models import Decoded, Model, PackedText, Source
from nmt.settings.training import Costs, Learning
from nmt.text.batches import Batch
from nmt.text.layouts import PADDED, PackedLayout, PaddedLayout, RecurrentLayout
from nmt.text.packing import tiers
from nmt.training.learning.batch_arrays import SENTENCES, Arrays, packed_arrays, padded_arrays
from nmt.training.update import Tensors

NO_LABELS: Mapping[str, Any] = MappingProxyType({})
ALIGNMENT_EPS = 1e-6
"""Added to the attention before taking its logarithm."""


@dataclass(frozen=True)
class LossOptions:
    """Marian's options of the loss.

    label_smoothing: from 0 to 1. unlikelihood: ``unlikelihood-loss``. alignment_weight:
    ``guided-alignment-weight``; ``None`` without ``guided-alignment``. multi_loss_type: how word and
    alignment costs are combined, ``sum``, ``scaled`` or ``mean``.
    """

    label_smoothing: float = Learning.label_smoothing
    unlikelihood: bool = Costs.unlikelihood_loss
    alignment_weight: float | None = None
    multi_loss_type: str = Costs.multi_loss_type


class Labels(NamedTuple):
    """How many labels the costs of words and of links sum over: float32 nodes or arrays ``(1,)``. A part of a
    batch has the counts of the whole batch as arrays of these names."""

    words: Any
    links: Any


class Target(NamedTuple):
    """Target sentences, as nodes."""

    ids: Node
    """Integers, ``(batch, time)``, or ``(rows, width)`` of packed sentences."""
    mask: Node
    """float32, of the same shape: 1 at words, 0 at padding."""
    weights: Node | None = None
    """float32, of the same shape: word weights (``data-weighting``)."""
    alignment: Node | None = None
    """float32 ``(batch, time, length)``: how many links a target and a source word have
    (``guided-alignment``). The reference attention of a target word is divided among its links."""
    packed: PackedText | None = None
    """The sentences, if they are packed."""
    labels: Labels | None = None
    """The labels of the whole batch, if these sentences are only a part of it."""


class Loss(NamedTuple):
    """A cost and the number of labels it sums over, float32 nodes of shape ``(1,)``."""

    cost: Node
    labels: Node


def training_loss(
    model: Model,
    sources: Sequence[Source | PackedText],
    target: Target,
    options: LossOptions,
    *,
    parts: int = 1,
) -> Loss:
    """Marian's training loss, recorded with the model in the graph of the sentences.

    Word cost: ``sum(mask weights ce)`` with the label-smoothed cross entropy ``ce``; its labels are words.
    With ``unlikelihood``, sentences with a word whose weight is not 1 cost
    ``sum(mask (1 - weights) -log(1 - p))`` instead. Alignment cost:
    ``-w sum(alignment log(attention + 1e-6))``; its labels are ``w`` times links.

    ``multi_loss_type`` combines the costs: ``sum`` adds costs and labels; ``scaled`` multiplies the alignment
    cost by words / links and counts words; ``mean`` divides each cost by its labels and counts 1 label. With
    ``scaled`` and ``mean``, ``w`` does not scale labels, and the labels are those of the whole batch, if
    ``target`` has them: the losses of its parts then add up.

    parts: how many devices may divide the vocabulary.
    ``ArgumentError`` if weights or alignments are needed and missing, and for packed sentences with
    ``unlikelihood``.
    Source: Marian, ``layers/loss.h``, ``layers/guided_alignment.h``; Welleck et al. 2020 for unlikelihood.
    """
    combine = choose("multi-loss-type", options.multi_loss_type, COMBINATIONS)
    guided = options.alignment_weight is not None
    decoded = model.decode(model.encode(sources), target.packed or target.ids, attention=guided)
    words = Loss(_cost_of_words(decoded, target, options, parts), sum(flatten(target.mask)))
    if options.alignment_weight is None:
        return combine(words, None, 0.0, target.labels)
    if decoded.attention is None or target.alignment is None:
        raise ArgumentError("guided-alignment needs a model with attention, and an alignment with each batch")
    links = target.alignment
    if target.packed is None:
        links = links * reshape(target.mask, (*target.mask.shape, 1))
    wanted = links / maximum(sum(links, -1), 1)
    surprisal = log(cast(decoded.attention, Type.float32) + ALIGNMENT_EPS)
    guided_cost = Loss(-sum(flatten(wanted * surprisal)), sum(flatten(links)))
    return combine(words, guided_cost, options.alignment_weight, target.labels)


def _cost_of_words(decoded: Decoded, target: Target, options: LossOptions, parts: int) -> Node:
    shape = target.mask.shape
    labels = flatten(target.ids)
    found = decoded.cross_entropy(labels, options.label_smoothing, parts=parts)
    costs = reshape(found, shape) * target.mask
    if not options.unlikelihood:
        return sum(flatten(costs if target.weights is None else costs * target.weights))
    if target.weights is None:
        raise ArgumentError("unlikelihood-loss needs data-weighting with weights of words")
    if target.packed is not None:
        raise ArgumentError("unlikelihood-loss looks at whole sentences, which must not be packed")
    wrong = (1 - target.weights) * target.mask
    right = cast(eq(sum(wrong, 1), 0), Type.float32)
    unlikely = wrong * reshape(unlikelihood(decoded.logits, labels), shape)
    return sum(flatten(right * costs + (1 - right) * unlikely))


def _summed(words: Loss, links: Loss | None, weight: float, whole: Labels | None) -> Loss:
    if links is None:
        return words
    return Loss(words.cost + links.cost * weight, words.labels + links.labels * weight)


def _scaled(words: Loss, links: Loss | None, weight: float, whole: Labels | None) -> Loss:
    if links is None:
        return words
    count = whole or Labels(words.labels, links.labels)
    return Loss(words.cost + links.cost * weight * count.words / maximum(count.links, 1), words.labels)


def _averaged(words: Loss, links: Loss | None, weight: float, whole: Labels | None) -> Loss:
    count = whole or Labels(words.labels, words.labels if links is None else links.labels)
    mean = words.cost / count.words
    if links is not None:
        mean = mean + links.cost * weight / maximum(count.links, 1)
    return Loss(mean, words.labels / count.words)


COMBINATIONS = {"sum": _summed, "scaled": _scaled, "mean": _averaged}
"""How word and alignment costs are combined, by the value of ``multi-loss-type``."""


def cross_entropy_loss(
    graph: ExpressionGraph,
    model: Model,
    batch: Batch,
    label_smoothing: float = 0.0,
) -> Node:
    """The summed cross entropy of all target words, ``</s>`` included, in nats; shape (1,).

    The model is recorded in ``graph``, in the graph's element type. ``batch`` has the model's source streams
    and a target. Only words where the target's mask is 1 count; divide by ``batch.words`` for the mean per
    word.

    Source: Marian, ``--cost-type ce-sum`` and ``--label-smoothing``.
    """

    def constant(array: np.ndarray, kind: Type) -> Node:
        return graph.constant(array.shape, inits.from_tensor(array), kind)

    kind = graph.default_element_type
    streams = zip(batch.ids[:-1], batch.masks[:-1], strict=True)
    sources = [Source(constant(ids, Type.int32), constant(mask, kind)) for ids, mask in streams]
    wide = kind if kind is Type.float64 else Type.float32
    target = Target(constant(batch.ids[-1], Type.int32), constant(batch.masks[-1], wide))
    return training_loss(model, sources, target, LossOptions(label_smoothing)).cost


@register_tuple
class Differentiated(NamedTuple):
    """The loss of one or more batches and its gradient; float32."""

    gradients: Tensors
    cost: Any
    """Shape ()."""
    labels: Any
    """Shape ()."""


@dataclass(frozen=True)
class Objective:
    """The training loss of a model.

    precision: the compute type; parameters and gradients are float32. rule_set: the gradient rules.
    checkpointing: recompute inner values in the backward pass. frozen: names of parameters that are not
    trained. packs_recurrences: whether recurrent models train on packed sentences on CPUs. Encoders then take
    more steps over fewer rows, which would be slower on GPUs.
    """

    model: Model
    loss: LossOptions = field(default_factory=LossOptions)
    precision: Type = Type.float32
    rule_set: str = "rules"
    checkpointing: bool = False
    frozen: frozenset[str] = field(default=frozenset())
    packs_recurrences: bool = True

    @property
    def packs(self) -> bool:
        """Whether batches are packed, so that less padding is multiplied."""
        recurrent = self.packs_recurrences and platform_of(None) == "cpu"
        return (recurrent or not self.model.recurrent) and not self.loss.unlikelihood

    def layout(self, parts: int = 1) -> PaddedLayout:
        """The layout of batches that are each computed in ``parts``, on several devices or one by one."""
        if not self.packs:
            return PADDED
        return RecurrentLayout(parts) if self.model.recurrent else PackedLayout(parts)

    @property
    def key(self) -> Hashable:
        """Equal for objectives that compute the same function."""
        frozen = tuple(sorted(self.frozen))
        settings = (self.loss, self.precision, self.rule_set, self.checkpointing, frozen)
        return self.model.key, self.model.dropouts, *settings

    def without_values(self) -> Objective:
        """The same objective without the values of the model's parameters, which may be large."""
        return replace(self, model=self.model.without_values())

    def arrays(self, batch: Batch, groups: int = 1) -> Arrays:
        """A batch as the arguments of a program, by the names of the graph's inputs. groups: how many groups
        of devices compute the batch."""
        if not self.packs:
            return padded_arrays(batch)
        return packed_arrays(batch, groups, whole=self.model.recurrent)

    def differentiated(
        self, specs: dict[str, jax.ShapeDtypeStruct], parts: int = 1
    ) -> Callable[..., Differentiated]:
        """``f(params, batch, draws, scale, labels)`` for batches of these shapes, computed by ``parts``
        devices that divide the parameters.

        ``draws`` are four uint32 that determine the dropout: the seed, the number of the update and of the
        batch in it. ``scale`` multiplies the cost that is differentiated, not the one returned. For a part
        of a batch pass as ``labels`` the result of the method ``labels`` for the whole batch: the results for
        its parts then add up to the result for the batch.
        """
        function = self._recorded({name: spec for name, spec in specs.items() if name != SENTENCES}, parts)
        trained = [name for name in self.model.params if name not in self.frozen]

        def scaled_cost(some: Tensors, params: Tensors, batch: Arrays, key: Key, scale: Any) -> Any:
            every = {**params, **some}
            typed = {name: value.astype(self.precision.dtype) for name, value in every.items()}
            cost, labels = (value.reshape(()) for value in function.pure(typed, batch, key))
            return cost * scale, (cost, labels)

        def differentiated(
            params: Tensors, batch: Arrays, draws: Any, scale: Any, labels: Mapping[str, Any] = NO_LABELS
        ) -> Differentiated:
            given = {**batch, **labels}
            key = RowsKey(threefry.fold_in(run_key(draws), draws[3]), given.pop(SENTENCES))
            some = {name: params[name] for name in trained}
            gradients, said = jax.grad(scaled_cost, has_aux=True)(some, params, given, key, scale)
            zeros = {name: jnp.zeros_like(params[name]) for name in self.frozen}
            return Differentiated({**gradients, **zeros}, *said)

        return differentiated

    def labels(self, batch: Arrays) -> Arrays:
        """How many labels a whole batch has, to be given to its parts in addition to their arrays."""
        target = self.model.sources
        mask, links = batch[f"mask{target}"], batch.get("alignment", jnp.zeros((1, 1, 1)))
        if f"places{target}" not in batch:  # links of packed sentences have no padding
            links = links * mask[..., None]
        counts = (jnp.sum(counted).reshape(1) for counted in (mask, links))
        return Labels(*counts)._asdict()

    def _recorded(self, specs: dict[str, jax.ShapeDtypeStruct], parts: int) -> Any:
        graph = ExpressionGraph(derivatives=self.rule_set)
        graph.set_default_element_type(self.precision)
        graph.set_checkpointing(self.checkpointing)
        for name in self.frozen:
            graph.param(name, self.model.params[name].shape, fixed=True)
        inputs = {name: graph.input(name, spec.shape, str(spec.dtype)) for name, spec in specs.items()}
        return graph.function(list(self.recorded(inputs, parts)), inputs)

    def recorded(self, inputs: Mapping[str, Node], parts: int = 1) -> Loss:
        """The loss of a batch, or of a part with ``labels``, whose arrays are graph nodes by name."""
        model = self.model
        tiered = model.recurrent and model.sources > 0
        *sources, target = (
            _stream(inputs, number, tiered and number == 0) for number in range(model.sources + 1)
        )
        masked = [source._replace(mask=cast(source.mask, self.precision)) for source in sources]
        beside = inputs.get("weights"), inputs.get("alignment")
        packed = target if isinstance(target, PackedText) else None
        names = Labels._fields
        labels = Labels(*(inputs[name] for name in names)) if inputs.keys() >= {*names} else None
        wanted = Target(target.ids, target.mask, *beside, packed, labels)
        return training_loss(model, masked, wanted, self.loss, parts=parts)


def _stream(inputs: Mapping[str, Node], number: int, tiered: bool) -> Source | PackedText:
    """The sentences of a stream, from the inputs that ``padded_arrays`` or ``packed_arrays`` name."""
    ids, mask, places, origins, positions = (
        inputs.get(f"{part}{number}") for part in ("ids", "mask", "places", "origins", "positions")
    )
    if places is None:
        return Source(ids, mask)
    packing = PackedWords(places, origins, positions)
    if tiered:
        packing = packing._replace(tiers=tiers(*places.shape))
    return PackedText(ids, packing, mask)
