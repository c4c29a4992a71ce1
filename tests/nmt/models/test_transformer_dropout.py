"""Where transformers apply dropout in training, and what shares a mask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mgraph
from layers import FactorGroups
from mgraph import ExpressionGraph, Type
from nmt.files import create_model
from nmt.models import Dropouts, Model, Source
from nmt.settings.model_options import ModelOptions

OPTIONS = ModelOptions(
    type="transformer",
    dim_vocabs=(11, 13),
    dim_emb=6,
    enc_depth=1,
    dec_depth=1,
    transformer_heads=2,
    transformer_dim_ffn=5,
    transformer_dim_aan=7,
    dec_cell="ssru",
)
EVERYWHERE = Dropouts(0.5, 0.5, 0.5, 0.5, 0.5, 0.5)


class Masks(ExpressionGraph):
    """A graph that lists the masks that it is asked for: probability and shape."""

    def __init__(self, inference: bool = False) -> None:
        super().__init__(inference)
        self.masks: list[tuple[float, tuple[int, ...]]] = []

    def dropout_mask(self, p: float, shape: Any, type: Any = None) -> mgraph.ConstantNode:
        self.masks.append((p, tuple(shape)))
        return super().dropout_mask(p, shape, type)


def masks(
    options: ModelOptions, dropouts: Dropouts, inference: bool = False, attention: bool = False
) -> list[Any]:
    """The masks of a batch of 2 sentences, 4 source words and 3 target words."""
    graph = Masks(inference)
    model = Model(options, {}, dropouts)
    source, target = (graph.input(name, (2, n), Type.int32) for name, n in (("source", 4), ("target", 3)))
    encoded = model.encode([Source(source, graph.input("mask", (2, 4)))])
    _ = model.decode(encoded, target, attention=attention).logits
    return graph.masks


def test_dropout_masks_have_the_shapes_and_places_of_marians() -> None:
    options = OPTIONS
    src, trg, emb_src, emb_trg = (1, 4, 1), (1, 3, 1), (1, 4, 6), (1, 3, 6)
    assert masks(options, Dropouts(src=0.1)) == [(0.1, src)], "whole words, alike in all sentences"
    assert masks(options, Dropouts(trg=0.1)) == [(0.1, trg)]
    groups = FactorGroups((3, 2), ((), (1,), (1,)))
    factored = replace(options, factors=(groups, None), dim_vocabs=(groups.words, options.dim_vocabs[1]))
    assert masks(factored, Dropouts(src=0.1)) == [(0.1, (8, 1))] * 2, "lemmas and factors, each word's own"
    # Embeddings, then after each block: two in the encoder, three in the decoder; one mask for all sentences.
    assert masks(options, Dropouts(transformer=0.2)) == [(0.2, emb_src)] * 3 + [(0.2, emb_trg)] * 4
    assert masks(options, Dropouts(transformer_ffn=0.3)) == [(0.3, (1, 4, 5)), (0.3, (1, 3, 5))]
    # Attention drops every weight independently: heads, queries and keys.
    for attention in (False, True):
        assert masks(options, Dropouts(transformer_attention=0.4), attention=attention) == [
            (0.4, (2, 2, queries, keys)) for queries, keys in ((4, 4), (3, 3), (3, 4))
        ]
    assert masks(options, Dropouts(rnn=0.5)) == []
    rnn = replace(options, dec_depth=2, transformer_decoder_autoreg="rnn")
    tied = replace(rnn, transformer_tied_layers=(1, 1))
    for kind, count in ((rnn, 2), (tied, 1)):
        found = masks(kind, Dropouts(rnn=0.5))
        assert {shape for _, shape in found} == {(1, 6)}, "one mask for all steps and sentences"
        assert len(found) % count == 0 and len(found) == count * len(masks(tied, Dropouts(rnn=0.5)))
    assert masks(replace(rnn, type="transformer-new"), Dropouts(rnn=0.5)) == []
    aan = replace(options, transformer_decoder_autoreg="average-attention")
    assert masks(aan, Dropouts(transformer_ffn=0.3)) == [(0.3, (1, 4, 5)), (0.3, (1, 3, 7)), (0.3, (1, 3, 5))]
    for kind in (options, rnn, aan, replace(options, transformer_pool=True)):
        assert masks(kind, EVERYWHERE, inference=True) == []
        assert kind.transformer_pool or masks(kind, EVERYWHERE, inference=True, attention=True) == []


def test_dropout_changes_training_and_not_inference() -> None:
    options = replace(OPTIONS, transformer_decoder_autoreg="rnn")
    params = create_model(options, seed=3).params

    def logits(dropouts: Dropouts, inference: bool) -> np.ndarray:
        graph = Model(options, params).new_graph(inference)
        ids = graph.constant((2, 3), mgraph.inits.from_vector([3, 4, 0, 5, 0, 0]), Type.int32)
        model = Model(options, params, dropouts)
        mask = graph.constant((2, 3), mgraph.inits.from_vector([1, 1, 1, 1, 1, 0]))
        found = model.logits(model.encode([Source(ids, mask)]), ids)
        graph.forward()
        return np.asarray(found.val())

    plain = logits(Dropouts(), True)
    np.testing.assert_array_equal(logits(EVERYWHERE, True), plain)
    np.testing.assert_allclose(logits(Dropouts(), False), plain, atol=1e-5)
    assert np.abs(logits(EVERYWHERE, False) - plain).max() > 1e-2


@pytest.mark.parametrize("value", [7.0, 1.0, -0.1, "x", float("nan")])
def test_a_dropout_is_a_probability(value: object) -> None:
    with pytest.raises(mgraph.ArgumentError, match="dropout rnn expects a probability 0 <= p < 1"):
        Dropouts(rnn=value)
