"""Training on packed sentences: costs and gradients are those of padded ones, dropout included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from mgraph.ops.output_loss import LOGITS
from nmt.files import create_model
from nmt.models import Dropouts, Model
from nmt.settings.model_options import ModelOptions
from nmt.settings.training import TrainOptions
from nmt.text.batches import Batch, pad
from nmt.text.layouts import PADDED
from nmt.text.packing import whole_rows
from nmt.training.learning.batch_arrays import packed_arrays, padded_arrays, part_of_group, specs_of
from nmt.training.learning.objective import LossOptions, Objective
from nmt.training.learning.settings import objective_of

SIZES = {"dim_emb": 8, "dim_rnn": 8, "transformer_heads": 2, "transformer_dim_ffn": 6}
DEPTHS = {"enc_depth": 1, "dec_depth": 1}
PAIR = {"type": "transformer", "dim_vocabs": (11, 13)}
MODELS: dict[str, dict[str, Any]] = {
    "transformer": PAIR | {"transformer_preprocess": "nd", "transformer_postprocess": "hdn"},
    "trained positions": PAIR | {"type": "transformer-new", "transformer_train_position_embeddings": True},
    "average attention": PAIR | {"transformer_decoder_autoreg": "average-attention"},
    "recurrence": PAIR | {"transformer_decoder_autoreg": "rnn", "dec_cell": "ssru"},
    "pooling": PAIR | {"transformer_pool": True},
    "two sources": PAIR | {"type": "multi-transformer", "dim_vocabs": (11, 12, 13)},
    "language model": {"type": "lm-transformer", "dim_vocabs": (13,)},
}
RECURRENT: dict[str, dict[str, Any]] = {
    "s2s": PAIR | {"type": "s2s"},
    "alternating": PAIR
    | {"type": "s2s", "enc_type": "alternating", "enc_depth": 2, "enc_cell": "lstm", "enc_cell_depth": 2}
    | {"skip": True},
    "forward above": PAIR | {"type": "s2s", "enc_type": "bi-unidirectional", "enc_depth": 3},
    "nematus": PAIR
    | {"type": "nematus", "enc_cell": "gru-nematus", "dec_cell": "gru-nematus", "layer_normalization": True},
    "two recurrent sources": {"type": "multi-s2s", "dim_vocabs": (11, 12, 13), "enc_cell": "ssru"},
    "recurrent language model": {"type": "lm", "dim_vocabs": (13,)},
}
DROPOUTS = Dropouts(0.2, 0.3, 0.3, 0.2, 0.2, 0.2)
LENGTHS = ((7, 1, 4, 9, 3, 6, 2), (5, 3, 8, 1, 9, 2, 4), (2, 9, 3, 5, 1, 8, 6))


def model_of(name: str) -> Model:
    return create_model(ModelOptions(**(SIZES | DEPTHS | (MODELS | RECURRENT)[name])), seed=3)


def batch_of(model: Model, rows: int = 8, length: int = 10) -> Batch:
    """Seven sentences of up to ``length`` words, in ``rows`` rows."""
    dice = np.random.default_rng(0)
    streams = [
        [dice.integers(2, size, length).tolist() for length in lengths]
        for size, lengths in zip(model.dim_vocabs, LENGTHS, strict=False)
    ]
    return pad(streams, (rows, *[length] * len(streams)), target=True)


def gradient(objective: Objective, given: dict[str, Any], groups: int = 1) -> tuple[Any, float, float]:
    parts = [part_of_group(given, group, groups) for group in range(groups)]
    labels = objective.labels(given)
    function = jax.jit(objective.differentiated(specs_of(parts[0] | labels)))
    draws = np.array([0, 7, 3, 0], np.uint32)
    each = [function(objective.model.params, part, draws, 1.0, labels) for part in parts]
    found = jax.tree.map(lambda *of_parts: sum(of_parts), *each)
    return found.gradients, float(found.cost), float(found.labels)


@pytest.mark.parametrize(("name", "groups"), [("transformer", 1), *((name, 2) for name in MODELS)])
@pytest.mark.sampled("transformer-1")
def test_costs_and_gradients_are_those_of_padded_sentences(name: str, groups: int) -> None:
    model = model_of(name)
    trained = Model(model.options, model.params, DROPOUTS)
    objective = Objective(trained, LossOptions(0.1))
    weights = np.random.default_rng(1).uniform(0, 2, (12, 16)).astype(np.float32)
    batch = replace(batch_of(model), weights=weights[:8, :10])
    assert objective.packs
    expected, cost, labels = gradient(objective, padded_arrays(batch))
    # another shape, as another number of devices would choose: no dropout mask may depend on it
    larger = replace(batch_of(model, 12, 16), weights=weights)
    found, own_cost, own_labels = gradient(objective, packed_arrays(larger, groups), groups)
    assert own_cost == pytest.approx(cost, rel=1e-6) and own_labels == labels
    assert_same(found, expected)


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Assert that the gradients of all parameters agree."""
    largest = max(float(np.abs(value).max()) for value in expected.values())
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-4, atol=2e-6 * largest, err_msg=key)


@pytest.mark.parametrize(("name", "groups"), [("s2s", 1), *((name, 2) for name in RECURRENT)])
@pytest.mark.thorough
def test_recurrent_models_read_several_sentences_in_a_row(name: str, groups: int) -> None:
    model = model_of(name)
    objective = Objective(Model(model.options, model.params, DROPOUTS), LossOptions(0.1))
    batch = batch_of(model)
    width = 16
    rows = [
        max(whole_rows(lengths[group::groups], width)[-1] for group in range(groups))
        for lengths in map(list, LENGTHS[: model.sources])
    ]
    assert all(groups * count < batch.sentences for count in rows)
    arrays = objective.arrays(replace(batch, packed=(*rows, 1)), groups)
    if rows:
        assert arrays["ids0"].shape == (groups * rows[0], width)
    expected, cost, labels = gradient(objective, padded_arrays(batch))
    found, own_cost, own_labels = gradient(objective, arrays, groups)
    assert own_cost == pytest.approx(cost, rel=1e-6) and own_labels == labels
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("name", "key", "kind"),
    [
        ("transformer", "decoder_l1_context_Wq", "scaled"),
        ("transformer", "decoder_l1_context_Wq", "sum"),
        ("s2s", "decoder_Wc_att", "mean"),
    ],
)
@pytest.mark.sampled("transformer-decoder_l1_context_Wq-scaled")
def test_guided_alignment_is_laid_out(name: str, key: str, kind: str) -> None:
    """Costs that are divided by all labels of a batch are still the sums of its parts' costs."""
    model = model_of(name)
    objective = Objective(model, LossOptions(alignment_weight=0.3, multi_loss_type=kind))
    wanted = (np.random.default_rng(2).random((8, 10, 10)) < 0.1).astype(np.float32)
    weights = np.random.default_rng(1).uniform(0, 2, (8, 10)).astype(np.float32)
    batch = replace(batch_of(model), alignment=wanted, weights=weights)
    expected, cost, labels = gradient(objective, padded_arrays(batch))
    found, own_cost, own_labels = gradient(objective, objective.arrays(batch, 2), 2)
    assert (own_cost, own_labels) == pytest.approx((cost, labels), rel=1e-6)
    np.testing.assert_allclose(found[key], expected[key], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.sampled("2")
def test_sources_of_one_length_get_room_for_their_tiers(groups: int) -> None:
    model = model_of("s2s")
    objective = Objective(Model(model.options, model.params, DROPOUTS), LossOptions(alignment_weight=0.3))
    dice = np.random.default_rng(4)
    streams = [[dice.integers(2, size, 10).tolist() for _ in range(7)] for size in model.dim_vocabs]
    links = (dice.random((8, 10, 10)) < 0.1).astype(np.float32)
    batch = replace(pad(streams, (8, 10, 10), target=True), alignment=links)
    arrays = objective.arrays(batch, groups)
    assert arrays["mask0"].shape == (8, 16) and arrays["alignment"].shape == (8, 10, 16)
    expected, cost, labels = gradient(objective, padded_arrays(batch))
    found, own_cost, own_labels = gradient(objective, arrays, groups)
    assert (own_cost, own_labels) == pytest.approx((cost, labels), rel=1e-6)
    assert_same(found, expected)


def test_what_looks_at_whole_targets_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("transformer")
    assert not Objective(model, LossOptions(unlikelihood=True)).packs
    recurrent, batch = Objective(model_of("s2s")), batch_of(model)
    assert recurrent.packs and recurrent.arrays(batch).keys() > padded_arrays(batch).keys()
    monkeypatch.setattr("nmt.training.learning.objective.platform_of", lambda device: "cuda")
    assert recurrent.arrays(batch).keys() == padded_arrays(batch).keys(), "GPUs take few steps"
    assert recurrent.layout() is PADDED
    assert Objective(model).packs


def test_batches_that_fill_the_memory_have_padded_sources_for_recurrences() -> None:
    """Rows for equally long sentences would have no room for a second one, and need half as much again."""
    fit, usual = (TrainOptions(mini_batch_fit=fills) for fills in (True, False))
    recurrent, transformer = model_of("s2s"), model_of("transformer")
    assert objective_of(recurrent, usual).packs and objective_of(transformer, fit).packs
    assert not objective_of(recurrent, fit).packs


def test_words_have_room() -> None:
    batch = batch_of(model_of("transformer"))
    assert packed_arrays(batch)["ids0"].shape == (3, 32)  # room for eight sentences of ten words
    tight = packed_arrays(replace(batch, packed=(1, 2)))
    assert tight["ids0"].shape == (1, 32) and tight["ids1"].shape == (2, 32)
    assert tight["mask1"].sum() == sum(LENGTHS[1])


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.sampled("True")
def test_many_logits_are_never_held(tied: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = SIZES | DEPTHS | PAIR | {"dim_vocabs": (13, 13), "tied_embeddings_all": tied}
    objective = Objective(create_model(ModelOptions(**sizes), seed=3), LossOptions(0.1))
    batch = packed_arrays(batch_of(objective.model))
    expected, cost, _ = gradient(objective, batch)
    monkeypatch.setattr("layers.output.MANY_LOGITS", 100)
    monkeypatch.setitem(LOGITS, "cpu", 1)
    monkeypatch.setattr("mgraph.ops.output_loss.LEAST_CHUNK", 5)
    found, own_cost, _ = gradient(objective, batch)
    assert own_cost == pytest.approx(cost, rel=1e-6)
    assert_same(found, expected)
