"""What the devices of a transformer's training exchange for an update, by arithmetic.

``docs/scale.md`` has the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from nmt.models.parameters import parameters
from nmt.settings.model_options import ModelOptions
from nmt.training.learning.division import divided_axes

FLOAT32 = 4
LOSSES = 6
"""How many numbers per position the loss and its gradient sum over the vocabulary."""


class Work(NamedTuple):
    """What an update of a transformer works on."""

    options: ModelOptions
    groups: int = 1
    """Groups of devices, each with other sentences."""
    parts: int = 1
    """Devices of a group (``--tensor-parallel``)."""
    shard_state: bool = False
    batches: int = 1
    """Batches of an update (``--optimizer-delay``)."""
    source: int = 0
    """Positions of the sources of a group's sentences in a batch, padding included."""
    target: int = 0
    itemsize: int = FLOAT32
    """Bytes of each number in computations."""

    @property
    def devices(self) -> int:
        return self.groups * self.parts

    @property
    def numbers(self) -> int:
        """The parameters that a device computes with."""
        axes = divided_axes(self.options, self.parts)
        sizes = {name: math.prod(p.shape) for name, p in parameters(self.options).items()}
        return sum(size // self.parts if name in axes else size for name, size in sizes.items())

    @property
    def operations(self) -> float:
        """Floating point operations of a group's gradients for an update: two for each product of a position
        and a parameter forwards, four backwards. Attention's own products are not counted."""
        encoder = decoder = 0
        for name, parameter in parameters(self.options).items():
            if name.startswith("encoder") and not name.endswith("Wemb"):
                encoder += math.prod(parameter.shape)
            elif name.startswith("decoder") and not name.endswith(("Wemb", "ff_logit_out_Wt")):
                decoder += math.prod(parameter.shape)
        output = self.options.dim_vocabs[-1] * self.options.dim_emb
        return 6.0 * self.batches * (encoder * self.source + (decoder + output) * self.target)


def sent_in_a_ring(kind: str, size: int, devices: int) -> float:
    """The bytes that each of these devices sends, which is what each link then carries, for results of
    ``size`` bytes."""
    others = (devices - 1) / devices
    factors = {"all-reduce": 2 * others, "reduce-scatter": devices - 1, "collective-permute": 1}
    return size * factors.get(kind, others)


class Exchange(NamedTuple):
    """One kind of exchange of an update."""

    what: str
    kind: str
    size: int
    """The bytes of all results on one device."""
    devices: int
    """How many devices exchange with each other."""

    @property
    def sent(self) -> float:
        """The bytes that each device sends, in a ring."""
        return sent_in_a_ring(self.kind, self.size, self.devices)


def exchanges(work: Work) -> Iterator[Exchange]:
    """What is exchanged for an update."""
    yield from between_groups(work)
    yield from within_a_group(work)


def between_groups(work: Work) -> Iterator[Exchange]:
    """Gradients once for an update; with ``--shard-state`` parameters and gradients for each batch."""
    if work.groups == 1:
        return
    size = FLOAT32 * work.numbers
    if not work.shard_state:
        yield Exchange("gradients", "all-reduce", size, work.groups)
        return
    size *= work.batches
    yield Exchange("parameters", "all-gather", size, work.groups)
    yield Exchange("gradients", "reduce-scatter", size // work.groups, work.groups)


def within_a_group(work: Work) -> Iterator[Exchange]:
    """Activations and their gradients, where products by rows or by words are added up.

    Counted as XLA compiles for CPUs: it adds up gradients by ``Wq``, ``Wk`` and ``Wv`` after their exchange.
    """
    if work.parts == 1:
        return
    options = work.options
    source, target = (n * options.dim_emb * work.itemsize for n in (work.source, work.target))
    encoder, decoder = options.enc_depth, options.dec_depth

    def sums(what: str, count: int, size: int) -> Exchange:
        return Exchange(what, "all-reduce", work.batches * count * size, work.parts)

    yield sums("embeddings", 1, source)
    yield sums("embeddings", 1, target)
    yield sums("encoder forwards: Wo, W2", 2 * encoder, source)
    yield sums("decoder forwards: Wo, Wo, W2", 3 * decoder, target)
    yield sums("encoder backwards: Wq, Wk, Wv, W1", 4 * encoder, source)
    yield sums("decoder backwards: Wq, Wk, Wv, Wq, W1", 5 * decoder, target)
    yield sums("decoder backwards, to the encoder: Wk, Wv", 2 * decoder, source)
    yield sums("output layer backwards", 1, target)
    yield sums("loss: sums over the vocabulary", LOSSES, work.target * FLOAT32)
