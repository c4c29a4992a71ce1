"""The learner: updates of tiny models, compared with the engine's optimizers and with one another."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mgraph
from mgraph import Adam, ArgumentError, ExpressionGraph
from mgraph.files.items import read_npz, write_npz
from nmt.files import create_model
from nmt.models import Model
from nmt.settings import TRAIN
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import Batch, pad
from nmt.training.checkpoints.moments import Moments
from nmt.training.learning.learner import Learner
from nmt.training.learning.objective import LossOptions, Source, Target, cross_entropy_loss, training_loss
from nmt.training.learning.optimizers import optimizer_of
from nmt.training.learning.settings import PRECISIONS, frozen_of, loss_of, precision_of
from nmt.training.update import LearnerState

SIZES = {"dim_vocabs": (11,), "dim_emb": 4, "dim_rnn": 4}
TRANSFORMER = {"transformer_heads": 2, "transformer_dim_ffn": 6}
VALUES = TRAIN.from_python(
    {
        "train_sets": ("source", "target"),
        "optimizer_params": (0.9, 0.98, 1e-6, 0.01),
        "learn_rate": 0.01,
        "clip_norm": 1.0,
    }
)
SENTENCES = [
    ([3, 4, 0], [5, 6, 7, 0]),
    ([8, 0], [2, 0]),
    ([9, 3, 2, 4, 0], [10, 3, 0]),
    ([5, 0], [4, 4, 4, 0]),
]


SMOOTH = {"exponential_smoothing": 0.1, "label_smoothing": 0.1}
PLAIN = {"optimizer": "sgd", "clip_norm": 0.0}
FULL = {
    "exponential_smoothing": 0.1,
    "transformer_dropout": 0.2,
    "normalize_gradient_by_ratio": True,
    "quantize_bits": 6,
}
HALF = {"optimizer": "sgd", "normalize_gradient": True, "cost_scaling": ("64.f", "1", "4")}


LION: dict[str, Any] = {"optimizer": "optax.lion", "optimizer_params": ()}


def small(type_: str = "lm-transformer", **options: Any) -> Model:
    """A tiny model, by default one that compiles fast."""
    sizes = {} if type_.startswith("lm") else {"dim_vocabs": (11, 11)}
    return create_model(ModelOptions(**{**SIZES, **TRANSFORMER, **sizes, "type": type_, **options}), seed=3)


def batch_of(
    sentences: Sequence[tuple[list[int], ...]], rows: int = 4, lengths: tuple[int, ...] = (4,)
) -> Batch:
    """Sentences of the last streams, padded to a shape; the rows after them are filled as Batch says."""
    streams = len(lengths)
    ids = [np.zeros((rows, length), np.int32) for length in lengths]
    masks = [np.zeros((rows, length), np.float32) for length in lengths]
    for row in range(rows):
        for stream, words in enumerate(sentences[row if row < len(sentences) else 0][-streams:]):
            ids[stream][row, : len(words)] = words
            masks[stream][row, : len(words)] = stream < streams - 1 or row < len(sentences)
    return Batch(tuple(ids), tuple(masks), len(sentences))


ALL = batch_of(SENTENCES)
PAIRS = batch_of(SENTENCES, lengths=(5, 4))


def learner_of(model: Model, seed: int = 1, **values: Any) -> Learner:
    return Learner.from_options(model, replace(VALUES, **values), seed=seed)


def updated(learner: Learner, *batches: Batch, number: int = 1) -> dict[str, np.ndarray]:
    """The parameters after one update, with all sentences unless batches are given."""
    learner.update(batches or [ALL], learn_rate=0.01, number=number)
    return learner.state().params


def assert_close(found: dict[str, Any], expected: dict[str, Any], atol: float = 2e-6) -> None:
    chex.assert_trees_all_close(found, expected, rtol=1e-7, atol=atol)


def assert_same(found: dict[str, Any] | None, expected: dict[str, Any] | None) -> None:
    assert found is not None
    chex.assert_trees_all_equal(found, expected)


@pytest.fixture(scope="module")
def model() -> Model:
    return small()


def test_updates_are_those_of_the_engine(model: Model) -> None:
    learner = learner_of(model, **SMOOTH)
    optimizer = Adam(0.01, 0.9, 0.98, 1e-6, 0.01, clip_norm=1.0)
    graph = model.new_graph(inference=False)
    for number in (1, 2, 3):
        graph.clear()
        loss = cross_entropy_loss(graph, model, pad([[words for _, words in SENTENCES]], target=True), 0.1)
        graph.backprop()
        norm = optimizer.update(graph)
        found = learner.update([ALL], learn_rate=0.01, number=number)
        assert float(found.cost) == pytest.approx(loss.scalar(), rel=1e-5)
        assert (float(found.labels), found.words, found.sentences) == (13, 13, 4)
        assert float(found.gradient_norm) * 13 == pytest.approx(float(norm), rel=1e-5)
    # Adam's moves have no scale: where a gradient is only rounding, as for biases of keys, they differ.
    expected = {name: value for name, value in graph.params().vals().items() if not name.endswith("_bk")}
    assert_close({name: learner.state().params[name] for name in expected}, expected, atol=2e-5)


def test_padding_and_cutting_into_batches_change_nothing(model: Model) -> None:
    expected = updated(learner_of(model, **PLAIN), batch_of(SENTENCES, 6, (7,)))
    learner = learner_of(model, **PLAIN)
    batches = [batch_of(part, 2) for part in (SENTENCES[:1], SENTENCES[1:3], SENTENCES[3:])]
    found = learner.update(batches, learn_rate=0.01, number=1)
    assert (found.sentences, found.words, found.batches, float(found.labels)) == (4, 13, 3, 13)
    assert_close(learner.state().params, expected)


def test_nothing_is_compiled_for_another_rate_or_other_words(model: Model) -> None:
    learner = learner_of(model, **SMOOTH, mini_batch_words_ref=10)
    updated(learner)
    before = mgraph.compile_stats()
    learner.update([batch_of(SENTENCES[:3])], learn_rate=0.5, number=2)
    assert (mgraph.compile_stats() - before).misses == 0


def test_more_words_than_the_reference_raise_the_rate(model: Model) -> None:
    start = learner_of(model).state().params
    plain = updated(learner_of(model, **SMOOTH))
    raised = updated(learner_of(model, **SMOOTH, mini_batch_words_ref=10))
    assert_close(raised, {name: p + 1.3 * (plain[name] - p) for name, p in start.items()})
    assert_same(updated(learner_of(model, **SMOOTH, mini_batch_words_ref=20)), plain)


def test_random_draws_depend_on_seed_and_number_alone(model: Model) -> None:
    first = learner_of(model, **FULL).update([ALL], learn_rate=0.01, number=5)
    again = learner_of(model, **FULL).update([ALL], learn_rate=0.5, number=5)
    assert float(again.cost) == float(first.cost)
    for seed, number in ((1, 6), (2, 5)):
        other = learner_of(model, seed, **FULL).update([ALL], learn_rate=0.01, number=number)
        assert float(other.cost) != float(first.cost)


def test_a_restored_learner_goes_on_bit_by_bit(model: Model) -> None:
    learner, other = learner_of(model, **FULL), learner_of(model, **FULL)
    updated(learner)
    learner.update([batch_of(SENTENCES[:3])], learn_rate=0.01, number=2)
    state = learner.state()
    kept = jax.tree.map(np.copy, vars(state))
    after = updated(learner, number=3)
    # The update has overwritten the buffers that the state was read from.
    assert jax.tree.all(jax.tree.map(np.array_equal, vars(state), kept))
    file = Moments(replace(VALUES, **FULL))
    order = sorted(state.params)
    other.restore(file.state(file.items(state, order), model.params, "model.optimizer.npz", updates=2))
    assert_same(updated(other, number=3), after)
    found, expected = other.state(), learner.state()
    assert_same(found.average, expected.average)
    assert_same(found.errors, expected.errors)
    assert (found.steps, found.average_words) == (3, expected.average_words)


def test_a_restored_learner_goes_on_from_other_denominators(model: Model) -> None:
    learner, other = learner_of(model), learner_of(model)
    updated(learner)
    state = learner.state()
    expected, before = updated(learner, number=2), (0.1, 0.02)  # after one update with the options' betas
    other.restore(replace(state, steps=0, denominators=before))
    assert_close(updated(other, number=2), expected)
    assert (other.state().steps, other.state().denominators) == (1, before)
    other.restore(replace(state, steps=0))
    with pytest.raises(AssertionError):
        assert_close(updated(other, number=2), expected, atol=1e-3)
    other.restore(replace(state, steps=0, denominators=before))
    other.reset_optimizer()
    assert other.state().denominators == (0, 0)


OPTAX = {
    "adafactor": ("min_dim_size_to_factor=4", "momentum=0.9", "weight_decay_rate=0.001"),
    "adamw": ("weight_decay=0.1", "nesterov=true"),
    "lion": ("mu_dtype=bfloat16",),
    "noisy_sgd": ("key=1",),
    "contrib.muon": (),
    "lbfgs": ("linesearch=none",),
    "polyak_sgd": (),
    "rprop": (),
    "sm3": (),
}
"""Optimizers with states of all kinds."""


@pytest.mark.parametrize("name", OPTAX)
@pytest.mark.sampled("adafactor", "lion")
def test_the_state_of_optax_is_saved_to_the_last_bit(model: Model, name: str, tmp_path: Path) -> None:
    values = LION | {"optimizer": f"optax.{name}", "optax_params": OPTAX[name]}
    if name == "adamw":
        values |= {**FULL, "cost_scaling": ("64.f", "1", "4"), "check_gradient_nan": True}
    learner, other = learner_of(model, **values), learner_of(model, **values)
    for number in (1, 2):
        updated(learner, number=number)
    state, file = learner.state(), Moments(replace(VALUES, **values))
    write_npz(tmp_path / "optimizer.npz", file.items(state, sorted(state.params)))
    after = updated(learner, number=3)
    items = read_npz(tmp_path / "optimizer.npz")
    other.restore(file.state(items, model.params, "optimizer.npz", updates=2))
    assert_same(updated(other, number=3), after)
    found, expected = other.state(), learner.state()
    chex.assert_trees_all_equal(found.moments, expected.moments, strict=True)
    # Without its state, it moves differently.
    other.restore(replace(state, moments={}))
    stateless = name == "polyak_sgd"
    assert all(map(np.array_equal, updated(other, number=3).values(), after.values())) == stateless


def test_nothing_is_kept_on_the_device_beside_the_state() -> None:
    def live() -> int:
        gc.collect()
        return sum(array.nbytes for array in jax.live_arrays())

    before = live()
    learner = learner_of(small(), check_nan=True)
    assert live() - before == learner.held


def test_updates_are_those_of_optax(model: Model) -> None:
    """A loop that uses only optax, with gradients taken from plain descent at a rate of 1."""
    options: dict[str, Any] = {"optimizer": "optax.adamw", "optimizer_params": (), "clip_norm": 0.0}
    options["optax_params"] = ("b2=0.98", "eps=0.01")  # a large eps keeps rounding in zero gradients small
    learner, descent = learner_of(model, **options), learner_of(model, **PLAIN)
    alone = optax.inject_hyperparams(optax.adamw)(learning_rate=0.0, b2=0.98, eps=0.01)
    params = learner.state().params
    state = alone.init(params)
    for number, rate in ((1, 0.01), (2, 0.002), (3, 0.05)):
        descent.restore(LearnerState(params, {}))
        descent.update([ALL], learn_rate=1.0, number=number)
        gradients = jax.tree.map(np.subtract, params, descent.state().params)
        state.hyperparams["learning_rate"] = jnp.float32(rate)
        moves, state = alone.update(gradients, state, params)
        params = jax.tree.map(np.asarray, optax.apply_updates(params, moves))
        learner.update([ALL], learn_rate=rate, number=number)
        assert_close(learner.state().params, params)


def test_resets_and_smoothed_parameters(model: Model) -> None:
    learner = learner_of(model, **SMOOTH)
    before = learner.state().params
    updated(learner)
    raw, smoothed = learner.params(smoothed=False), learner.params(smoothed=True)
    # The first update's average has nine tenths of the new parameters.
    assert_close(smoothed, {name: 0.1 * before[name] + 0.9 * np.asarray(raw[name]) for name in raw})
    learner.reset_optimizer()
    state = learner.state()
    assert state.steps == 0 and not any(moment.any() for moment in state.moments["adam_mt"].values())
    learner.replace_with_smoothed()
    assert_same(learner.params(smoothed=False), smoothed)
    updated(learner, number=2)
    plain = learner_of(model)
    assert_same(plain.params(smoothed=True), plain.params(smoothed=False))


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
@pytest.mark.sampled("bfloat16")
def test_16_bits_compute_what_32_bits_do(model: Model, precision: str) -> None:
    expected = learner_of(model, **HALF).update([ALL], learn_rate=0.01, number=1)
    learner = learner_of(model, precision=(precision, "float32"), **HALF)
    found = learner.update([ALL], learn_rate=0.01, number=1)
    off = 0.002 if precision == "float16" else 0.02
    assert float(found.cost) == pytest.approx(float(expected.cost), rel=off)
    assert float(found.gradient_norm) == pytest.approx(float(expected.gradient_norm), rel=5 * off)
    state = learner.state()
    assert state.cost_scale == (256.0, 0) and {p.dtype.name for p in state.params.values()} == {"float32"}


def test_what_overflows_is_skipped(model: Model) -> None:
    learner = learner_of(model, precision=("float16", "float32"), **HALF)
    before = replace(learner.state(), cost_scale=(2.0**127, 0))
    learner.restore(before)
    found = learner.update([ALL], learn_rate=0.01, number=1)
    after = learner.state()
    assert float(found.gradient_norm) == 0 and np.isfinite(float(found.cost))
    assert after.steps == 0 and after.cost_scale == (2.0**125, 0)
    assert_same(after.params, before.params)


@pytest.mark.thorough
def test_fixed_embeddings_stay() -> None:
    model = small("s2s", tied_embeddings=True)
    fixed = {"embedding_fix_src": True, "embedding_fix_trg": True}
    learner = learner_of(model, **fixed, **SMOOTH)
    after = updated(learner, PAIRS)
    for name in ("encoder_Wemb", "decoder_Wemb"):
        np.testing.assert_array_equal(after[name], model.params[name])
        np.testing.assert_array_equal(learner.params(smoothed=True)[name], model.params[name])
    assert not np.array_equal(after["decoder_ff_state_W"], model.params["decoder_ff_state_W"])


def test_a_shared_table_is_the_targets() -> None:
    model = small("transformer", tied_embeddings_all=True)
    assert frozen_of(model, replace(VALUES, embedding_fix_src=True)) == frozenset()
    assert frozen_of(model, replace(VALUES, embedding_fix_trg=True)) == {"Wemb"}
    apart = small("s2s")
    assert frozen_of(apart, replace(VALUES, embedding_fix_src=True)) == {"encoder_Wemb"}


def assert_equal_updates(learners: Sequence[Learner], batch: Batch) -> None:
    """Assert that two learners' first updates have the same cost and the same gradient norm."""
    expected, found = (learner.update([batch], learn_rate=0.01, number=1) for learner in learners)
    assert float(found.cost) == pytest.approx(float(expected.cost), rel=1e-6)
    assert float(found.gradient_norm) == pytest.approx(float(expected.gradient_norm), rel=1e-5)


def test_checkpointing_changes_no_gradient(model: Model) -> None:
    learners = [learner_of(model, **FULL, gradient_checkpointing=flag) for flag in (False, True)]
    assert_equal_updates(learners, ALL)


@pytest.mark.thorough
def test_recurrent_models_checkpoint_every_loop() -> None:
    """Then only one of six loops at a time keeps the values of its steps."""
    model = small("s2s", dim_rnn=32, enc_depth=2, dec_depth=2)
    sentences = [([*range(2, 10)] * 4 + [0], [*range(2, 10)] * 4 + [0])] * 4
    batch = batch_of(sentences, lengths=(33, 33))
    plain, less = (learner_of(model, gradient_checkpointing=flag) for flag in (False, True))
    assert less.memory(batch) - less.held < 0.75 * (plain.memory(batch) - plain.held)
    assert_equal_updates([plain, less], batch)


def test_memory_is_what_the_program_needs(model: Model) -> None:
    learner = learner_of(model, **SMOOTH)
    assert learner.memory(ALL) > learner.held
    assert learner.held >= 4 * sum(p.nbytes for p in model.params.values())
    before = mgraph.compile_stats()
    for number in (1, 2):
        learner.update([ALL], learn_rate=0.01, number=number)
    assert (mgraph.compile_stats() - before).misses == 0
    learner.memory(ALL, last_of_several=True)
    before = mgraph.compile_stats()
    learner.update([ALL] * 3, learn_rate=0.01, number=3)
    assert (mgraph.compile_stats() - before).misses == 0
    before = mgraph.compile_stats()
    learner.memory(ALL, keep=False)
    assert mgraph.compile_stats().programs == before.programs - 1


# -- the loss


@pytest.fixture(scope="module")
def pair_model() -> Model:
    return small("transformer")


def parts(
    model: Model, options: LossOptions, weights: np.ndarray | None, alignment: np.ndarray | None
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Cost and labels of all sentences, and what numpy needs to compute them: the log-probabilities of all
    words and the attention."""
    batch = PAIRS
    graph = ExpressionGraph()

    def constant(array: Any, kind: str = "float32") -> Any:
        return None if array is None else graph.constant(array.shape, mgraph.inits.from_tensor(array), kind)

    for name, value in model.params.items():
        graph.param(name, value.shape, mgraph.inits.from_tensor(np.asarray(value)))
    source = Source(constant(batch.ids[0], "int32"), constant(batch.masks[0]))
    ids = constant(batch.ids[1], "int32")
    target = Target(ids, constant(batch.masks[1]), constant(weights), constant(alignment))
    loss = training_loss(model, [source], target, options)
    decoded = model.decode(model.encode([source]), ids, attention=True)
    log_probs = mgraph.logsoftmax(decoded.logits)
    graph.forward()
    assert decoded.attention is not None
    probs, attention = (np.asarray(node.val(), np.float64) for node in (log_probs, decoded.attention))
    return loss.cost.scalar(), loss.labels.scalar(), probs, attention


def gold(log_probs: np.ndarray) -> np.ndarray:
    return np.take_along_axis(log_probs, PAIRS.ids[1][..., None], -1)[..., 0]


WEIGHTS = np.random.default_rng(1).uniform(0, 2, (4, 4)).astype(np.float32)
MASK = PAIRS.masks[1]


def test_weights_multiply_costs_and_not_labels(pair_model: Model) -> None:
    cost, labels, log_probs, _ = parts(pair_model, LossOptions(label_smoothing=0.2), WEIGHTS, None)
    costs = -(0.8 * gold(log_probs) + 0.2 * log_probs.mean(-1))
    assert cost == pytest.approx((costs * WEIGHTS * MASK).sum(), rel=1e-5)
    assert labels == 13


def test_unlikelihood_of_sentences_with_an_error(pair_model: Model) -> None:
    chosen = np.ones((4, 4), np.float32)
    chosen[1, 1] = chosen[2, 0] = 0
    cost, _, log_probs, _ = parts(pair_model, LossOptions(unlikelihood=True), chosen, None)
    likely, unlikely = -gold(log_probs), -np.log1p(-np.exp(gold(log_probs)))
    expected = (likely * MASK)[[0, 3]].sum() + unlikely[1, 1] + unlikely[2, 0]
    assert cost == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["sum", "scaled", "mean"])
def test_guided_alignment(pair_model: Model, kind: str) -> None:
    counts, wanted = np.zeros((4, 4, 5), np.float32), np.zeros((4, 4, 5))
    counts[0, 0, 1], counts[0, 1, :2], counts[3, 2, 0], counts[3, 1, 2:4] = 1, 1, 1, [1, 3]
    wanted[0, 0, 1], wanted[0, 1, :2], wanted[3, 2, 0], wanted[3, 1, 2:4] = 1, 0.5, 1, [0.25, 0.75]
    counts[1, 3, 0] = 1  # after the end of the sentence, so it does not count
    cost, labels, log_probs, attention = parts(pair_model, LossOptions(0.0, False, 0.3, kind), None, counts)
    words = -(gold(log_probs) * MASK).sum()
    links = -(wanted * MASK[..., None] * np.log(attention + 1e-6)).sum()
    expected = {
        "sum": (words + 0.3 * links, 13 + 0.3 * 8),
        "scaled": (words + 0.3 * links * 13 / 8, 13),
        "mean": (words / 13 + 0.3 * links / 8, 1),
    }
    assert (cost, labels) == pytest.approx(expected[kind], rel=1e-5)


def test_guided_alignment_trains_the_attention() -> None:
    model = small("s2s")
    options = {"guided_alignment": "file", "optimizer": "sgd", "clip_norm": 0.0}
    alignment = np.zeros((4, 4, 5), np.float32)
    without = updated(learner_of(model, **options), replace(PAIRS, alignment=alignment))
    alignment[:, :, 0] = 1
    guided = updated(learner_of(model, **options), replace(PAIRS, alignment=alignment))
    assert np.abs(guided["decoder_U_att"] - without["decoder_U_att"]).max() > 1e-5
    np.testing.assert_allclose(guided["decoder_ff_logit_l2_b"], without["decoder_ff_logit_l2_b"], atol=1e-7)


# -- options


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"optimizer": "lion"}, "--optimizer must be one of sgd, adagrad, adam, optax.NAME; got 'lion'"),
        ({"guided_alignment": "f", "guided_alignment_cost": "mse"}, "guided-alignment-cost: 'mse'"),
        ({"unlikelihood_loss": True}, "--unlikelihood-loss needs --data-weighting"),
        ({"multi_loss_type": "max"}, "--multi-loss-type must be one of sum, scaled, mean; got 'max'"),
        ({"precision": ("float16", "float16")}, "precision: parameters are updated in 'float32'"),
        ({"precision": ("int8",)}, "precision: 'int8' is unknown"),
        ({"cost_scaling": ("8", "x")}, "--cost-scaling: expected a factor"),
        ({"cost_scaling": ("8", "10", "0.5")}, "--cost-scaling: expected a factor"),
        ({"cost_scaling": ("nan",)}, "--cost-scaling: expected a factor"),
        ({"dynamic_gradient_scaling": ("nan",)}, "--dynamic-gradient-scaling: expected a number"),
        ({"dynamic_gradient_scaling": ("2", "log", "-3")}, "--dynamic-gradient-scaling: expected a number"),
        ({"dynamic_gradient_scaling": ("two",)}, "--dynamic-gradient-scaling: expected a number"),
        (
            {"dynamic_gradient_scaling": ("2", "log", "9", "9")},
            "--dynamic-gradient-scaling: expected a number",
        ),
        ({"quantize_bits": 1}, "--quantize-bits: expected 0 or a number from 2 to 24"),
        ({"optimizer_params": (1.5,)}, "beta1 of at least 0 and less than 1, got 1.5$"),
        ({"dropout_src": 2.0}, "--dropout-src: expected less than 1, got 2"),
        (
            {"optimizer": "optax.lion"},
            r"--optimizer-params: those of optax.lion have names, expected --optax-params NAME=VALUE",
        ),
        ({"optax_params": ("b1=0.9",)}, "expected --optimizer optax.NAME, got --optimizer adam, whose"),
        (LION | {"optax_params": ("0.9",)}, "--optax-params: expected NAME=VALUE, each name once, got '0.9'"),
        (LION | {"optax_params": ("b1=1", "b1=0")}, "each name once, got 'b1=0' again"),
        (LION | {"optax_params": ("b1=[",)}, r"--optax-params: expected a value in YAML after b1=, got '\['"),
        (LION | {"optax_params": ("b3=1",)}, r"--optimizer: optax.lion has no argument 'b3' to set \(arg"),
        (LION | {"optax_params": ("clip_norm=1",)}, "--optimizer: optax.lion has no argument 'clip_norm'"),
        (LION | {"optimizer": "optax.lionn"}, r"--optimizer: .* did you mean lion\?"),
        (LION | {"optimizer": "optax.lbfgs"}, "--optimizer: optax.lbfgs does not work: .*value_fn"),
    ],
)
def test_values_that_cannot_be(model: Model, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learner_of(model, **values)


def test_alignments_need_attention_and_a_file(model: Model, pair_model: Model) -> None:
    with pytest.raises(ValueError, match="guided-alignment: a model of type lm-transformer has no attention"):
        learner_of(model, guided_alignment="file")
    with pytest.raises(ArgumentError, match="an alignment with each batch"):
        updated(learner_of(pair_model, guided_alignment="file"), PAIRS)


def test_options_as_parts() -> None:
    assert precision_of(()) is PRECISIONS["float32"] and precision_of(("bfloat16",)) is PRECISIONS["bfloat16"]
    optimizer = optimizer_of(replace(VALUES, optimizer="adagrad", optimizer_params=(1e-3, 9)))
    assert (optimizer.learn_rate, optimizer.clip_norm, vars(optimizer)["eps"]) == (0.01, 1.0, 1e-3)
    words = {"data_weighting": "file", "data_weighting_type": "word", "unlikelihood_loss": True}
    assert loss_of(replace(VALUES, **words, label_smoothing=0.1)) == LossOptions(0.1, True)
