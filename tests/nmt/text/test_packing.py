"""PackedWords sentences into bins, and encoders that read packed ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgraph import ArgumentError
from nmt.files import create_model
from nmt.models import PackedSource, Source
from nmt.models.transformer import TransformerDecoder, TransformerEncoder
from nmt.models.types import TYPES, ModelType
from nmt.search.encoding import EncodePlan
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import pad
from nmt.text.packing import (
    WIDTH,
    Bins,
    TextRows,
    rows_for,
    tiered_length,
    tiers,
    whole_rows,
    whole_width,
)


@given(
    lengths=st.lists(st.integers(1, 12), min_size=1, max_size=20),
    count=st.integers(1, 4),
    width=st.integers(12, 30),
)
def test_every_word_has_a_place_of_its_own(lengths: list[int], count: int, width: int) -> None:
    bins, sentences = Bins(count, width), []
    for number, length in enumerate(lengths):
        if bins.find(length) is None:
            assert all(free < length for free in bins._free)
            break
        bins.add(length)
        sentences.append([100 * number + word for word in range(length)])
    packed = bins.filled(sentences, (len(sentences) + 2, 12))
    assert packed.ids.shape == packed.positions.shape == packed.sentences.shape == (count, width)
    flat = packed.ids.reshape(-1)
    for number, sentence in enumerate(sentences):
        inside = packed.mask[number] == 1
        places = packed.places[number][inside]
        assert flat[places].tolist() == sentence
        assert packed.positions.reshape(-1)[places].tolist() == [*range(len(sentence))]
        assert np.flatnonzero(packed.sentences == number).tolist() == places.tolist()
        assert len(set(places // width)) == 1, "in one bin"
    np.testing.assert_array_equal(packed.mask[-1], packed.mask[0])


def test_a_bin_is_narrowed() -> None:
    bins = Bins(1, 10)
    bins.add(3)
    narrow = bins.narrowed(4)
    assert (narrow.find(1), narrow.find(2)) == (0, None)
    assert bins.find(7) == 0, "the wide one stays"
    wide, packed = bins.filled([[5, 6, 7]], (1, 10)), narrow.filled([[5, 6, 7]], (1, 10))
    assert packed.ids.tolist() == wide.ids[:, :4].tolist() == [[5, 6, 7, 0]]
    np.testing.assert_array_equal(packed.places, wide.places)
    with pytest.raises(AssertionError):
        bins.narrowed(2)


def test_a_sentence_in_a_narrow_bin_is_encoded_as_in_its_lane() -> None:
    options = ModelOptions(type="transformer", dim_vocabs=(11, 13), dim_emb=8, transformer_heads=2)
    model, sentence = create_model(options), [5, 7, 2]
    wide = Bins(1, 8)
    wide.add(len(sentence))
    whole, half = (
        EncodePlan((model,), 1, 1, 1, 8, (1, 8), (1, bins.width))(
            (model.params,), [PackedSource(*bins.filled([sentence], (1, 8)))]
        )[0]
        for bins in (wide, wide.narrowed(4))
    )
    arranged = model.packed_encoder(1, 1, (8,), 1, 8).arranged
    found, expected = (arranged(model.params, arrays, jnp.array([0])) for arrays in (half, whole))
    assert {name: a.shape for name, a in half.items()} == {name: a.shape for name, a in whole.items()}
    for name, array in expected.items():
        words = (slice(None), slice(None), slice(3)) if name.endswith((":keys", ":values")) else ...
        np.testing.assert_allclose(found[name][words], array[words], rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"transformer_pool": True},
        {
            "type": "transformer-new",
            "transformer_train_position_embeddings": True,
        },
        {"type": "multi-transformer", "dim_vocabs": (11, 12, 13)},
    ],
)
def test_packed_sentences_are_encoded_as_padded_ones(options: dict[str, object]) -> None:
    given = {"type": "transformer", "dim_vocabs": (11, 13), "dim_emb": 8, "transformer_heads": 2} | options
    model = create_model(ModelOptions(**given))  # type: ignore[arg-type]
    random = np.random.default_rng(0)
    streams = [
        [random.integers(2, size, n).tolist() for n in random.permutation([7, 3, 5, 1])]
        for size in model.dim_vocabs[:-1]
    ]
    packed = []
    for stream in streams:
        bins = Bins(2, 10)
        for sentence in stream:
            bins.add(len(sentence))
        packed.append(PackedSource(*bins.filled(stream, (5, 8))))
    lengths = (8,) * model.sources
    batch = pad(streams, (5, *lengths))
    expected = jax.jit(model.encoder(5, lengths))(model.params, list(map(Source, batch.ids, batch.masks)))
    encoder, chosen = model.packed_encoder(5, 3, lengths, 2, 10), jnp.array([3, 0, 2])
    projected = jax.jit(encoder)(model.params, packed)
    assert jax.tree.map(lambda a: (a.shape, a.dtype), projected) == jax.tree.map(
        lambda a: (a.shape, a.dtype), encoder.projected
    )
    found = jax.jit(encoder.arranged)(model.params, projected, chosen)
    assert found.keys() == expected.keys() and model.packs_bins
    for name, whole in expected.items():
        array = whole[chosen]
        inside = np.ones(array.shape[:1], bool)
        if name.endswith((":keys", ":values")):
            stream = int(name.split("_enc2")[0] != name)
            inside = np.broadcast_to(batch.masks[stream][chosen][:, None, :, None] == 1, array.shape)
        np.testing.assert_allclose(found[name][inside], array[inside], rtol=1e-4, atol=1e-5, err_msg=name)


def test_other_encoders_take_no_bins() -> None:
    model = create_model(ModelOptions(type="s2s", dim_vocabs=(7, 9), dim_emb=3, dim_rnn=4))
    assert not model.packs_bins
    with pytest.raises(ArgumentError, match="type s2s take no sentences in bins"):
        model.packed_encoder(1, 1, (4,), 1, 8)


def test_bins_are_for_classes_that_know_how_all_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a subclass overrides only one of two related methods, the inherited one must not be used for it."""

    class Doubled(TransformerEncoder):
        def encode(self, source: Any) -> Any:
            encoded = super().encode(source)
            return encoded._replace(context=2 * encoded.context)

    class DoubledInBins(Doubled):
        def encode_packed(self, source: Any) -> Any:
            encoded = super().encode_packed(source)
            return encoded._replace(context=2 * encoded.context)

    class Prepared(TransformerDecoder):
        def prepare(self, encoded: Any) -> Any:
            return super().prepare(encoded)

    def packs(encoder: Any, decoder: Any) -> bool:
        monkeypatch.setitem(TYPES, "own", ModelType(((encoder, "encoder"),), decoder))  # type: ignore[arg-type]
        return create_model(ModelOptions(type="own", dim_vocabs=(7, 9), dim_emb=8)).packs_bins

    assert packs(TransformerEncoder, TransformerDecoder)
    assert packs(DoubledInBins, TransformerDecoder)
    assert not packs(Doubled, TransformerDecoder)
    assert not packs(TransformerEncoder, Prepared)


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    groups=st.integers(1, 3),
    spare=st.integers(0, 2),
    whole=st.booleans(),
)
def test_words_in_rows_are_found_both_ways(lengths: list[int], groups: int, spare: int, whole: bool) -> None:
    lengths += [0] * (-len(lengths) % groups)
    own, table = len(lengths) // groups, np.array(lengths)
    ids = np.arange(len(lengths) * 12, dtype=np.int32).reshape(len(lengths), 12) + 1
    if whole:
        width = whole_width(12)
        room = spare + max(whole_rows(part.tolist(), width)[-1] for part in table.reshape(groups, own))
        found = TextRows.whole(ids, table, room, groups)
    else:
        room, width = spare + rows_for(int(table.reshape(groups, own).sum(1).max())), WIDTH
        found = TextRows.running(ids, table, room, groups)
    assert found.ids.shape == found.positions.shape == found.origins.shape == (groups * room, width)
    rows, words = found.ids.reshape(groups, -1), []
    for sentence, length in enumerate(lengths):
        group, within = divmod(sentence, own)
        places = found.places[sentence]
        assert (places[length:] == room * width).all()
        assert rows[group][places[:length]].tolist() == ids[sentence, :length].tolist()
        assert np.diff(places[:length]).tolist() == [1] * (max(length, 1) - 1)
        assert not whole or len({*places[:length] // width}) <= 1
        origins = found.origins.reshape(groups, -1)[group][places[:length]]
        assert origins.tolist() == [within * 12 + position for position in range(length)]
        assert found.positions.reshape(groups, -1)[group][places[:length]].tolist() == [*range(length)]
        words += ids[sentence, :length].tolist()
    assert sorted(found.ids[found.ids > 0].tolist()) == words
    assert (found.origins[found.ids == 0] == own * 12).all(), "padding comes from nowhere"
    np.testing.assert_array_equal(found.taken_up(ids), found.ids)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(0, 20))
def test_few_rows_hold_whole_sentences(lengths: list[int], more: int) -> None:
    width = max(lengths) + more
    rows, columns, count = whole_rows(lengths, width)
    used = np.zeros((count, width), int)
    for row, column, length in zip(rows, columns, lengths, strict=True):
        assert column + length <= width
        used[row, column : column + length] += 1
    assert used.max() == 1, "no place is used twice"
    assert used.any(1).all() and count <= len(lengths)
    # No two rows would fit into one, so fewer than twice the needed rows are used.
    emptiest = sorted(used.sum(1))[:2]
    assert count == 1 or sum(emptiest) > width


def test_rows_are_added_for_sentences_that_find_none() -> None:
    ids, lengths = np.ones((3, 8), np.int32), np.array([8, 8, 0])
    assert whole_rows([8, 8, 0], 16)[-1] == whole_rows([8, 8], 16)[-1] == 1 and whole_rows([0], 8)[-1] == 0
    assert whole_width(8) == 16 and whole_width(64) == 80 and whole_width(65) == 88
    assert TextRows.whole(ids, lengths, 3).ids.shape == (3, 16)
    assert TextRows.whole(ids, np.array([8, 8, 8]), 1).ids.shape == (2, 16)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=70), st.integers(0, 9))
def test_tiers_have_room_for_sorted_sentences(lengths: list[int], more: int) -> None:
    falling, length = sorted(lengths, reverse=True), tiered_length(lengths)
    enough, too_few = (
        [words for count, words in tiers(len(lengths), room) for _ in range(count)]
        for room in (length, length - 1)
    )
    assert len(enough) == len(falling) and all(map(int.__ge__, enough, falling))
    assert not all(map(int.__ge__, too_few, falling))
    # Sentences without words, which fill up a batch, need no more room.
    assert tiered_length([*lengths, *[0] * more]) <= tiered_length(lengths)


def test_tiers() -> None:
    assert tiers(64, 40) == ((8, 40), (24, 30), (32, 24))
    assert tiers(1, 7) == ((1, 7),) and tiers(2, 7) == ((1, 7), (1, 5))
    assert tiered_length([40, 30, 24]) == 40 and tiered_length([40] * 8) == 66 and tiered_length([]) == 0
