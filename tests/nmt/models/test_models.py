"""Translation models, compared with Marian's numbers and with themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, ParameterError, ShapeError, Type
from nmt.files import create_model, load_model
from nmt.models import Model, Source
from nmt.search import few_batches
from nmt.search.scoring import score
from nmt.settings.model_options import ModelOptions
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.places import DATA, SHIPPED
from tests.helpers.small_models import S2S, TRANSFORMER

VARIANTS = {
    "transformer": TRANSFORMER,
    "pre-norm": replace(
        TRANSFORMER,
        transformer_preprocess="n",
        transformer_postprocess="da",
        transformer_postprocess_top="n",
        transformer_decoder_dim_ffn=4,
    ),
    "tied": replace(
        TRANSFORMER,
        dim_vocabs=(12, 12),
        tied_embeddings_all=True,
        transformer_tied_layers=(1, 1),
        transformer_postprocess_top="a",
    ),
    "s2s": S2S,
    "deep s2s": replace(
        S2S,
        enc_depth=2,
        enc_cell_depth=2,
        dec_depth=3,
        dec_cell_base_depth=3,
        dec_cell_high_depth=2,
        skip=True,
        layer_normalization=True,
        enc_type="alternating",
    ),
}


@pytest.fixture(scope="module", params=VARIANTS)
def model(request: pytest.FixtureRequest) -> Model:
    """A small model with random parameters, large enough for its layers to matter."""
    created = create_model(VARIANTS[request.param], seed=4)
    rng = np.random.default_rng(0)
    changed = {n: p + 0.2 * rng.standard_normal(p.shape, np.float32) for n, p in created.params.items()}
    return Model(created.options, changed)


@pytest.fixture(scope="module", params=["transformer", "s2s"])
def plain_model(request: pytest.FixtureRequest) -> Model:
    """A small model with Marian's default options."""
    return create_model(VARIANTS[request.param], seed=4)


def sentences(
    seed: int, lengths: Sequence[int], vocabulary: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    ids, mask = np.zeros((len(lengths), width), np.int32), np.zeros((len(lengths), width), np.float32)
    for row, length in enumerate(lengths):
        ids[row, : length - 1] = np.random.default_rng((seed, row)).integers(2, vocabulary, length - 1)
        mask[row, :length] = 1
    return ids, mask


def pairs_of(
    model: Model, vocabs: Sequence[Path], texts: Sequence[Path]
) -> list[tuple[list[int], list[int]]]:
    encode = [load_vocab(path, dim).encode for path, dim in zip(vocabs, model.dim_vocabs, strict=True)]
    source, target = (path.read_bytes().split(b"\n")[:-1] for path in texts)
    return [(encode[0](s), encode[1](t)) for s, t in zip(source, target, strict=True)]


def assert_marians_scores(model: Model, pairs: list[tuple[list[int], list[int]]], reference: Path) -> None:
    """Word scores agree within two units of the fifth decimal, sums within the sixth significant digit."""
    lines = reference.read_text().splitlines()
    got = score(model, pairs)
    assert len(lines) == len(got)
    for line, (total, words, _) in zip(lines, got, strict=True):
        expected, expected_words = line.split(" ||| WordScores= ")
        np.testing.assert_allclose(words, [float(w) for w in expected_words.split()], rtol=0, atol=2.5e-5)
        assert total == pytest.approx(float(expected), rel=5e-6, abs=5e-5)


@pytest.mark.parametrize(
    "name, source, target",
    [
        ("prenorm", "source.yml", "target.yml"),
        ("highway", "joint.yml", "joint.yml"),
        ("tied-layers", "joint.yml", "joint.yml"),
        ("deep", "joint.yml", "joint.yml"),
        ("alternating", "source.yml", "target.yml"),
        ("bi-unidirectional", "source.yml", "target.yml"),
    ],
)
@pytest.mark.sampled(every=2)
def test_options_mean_what_they_mean_to_marian(name: str, source: str, target: str) -> None:
    folder = DATA / "options"
    model = load_model(folder / f"{name}.npz")
    texts = [folder / "source.txt", folder / "target.txt"]
    assert_marians_scores(
        model, pairs_of(model, [folder / source, folder / target], texts), folder / f"{name}.txt"
    )


@pytest.mark.parametrize(
    "file, folder", [(SHIPPED / "model.npz", "numbers"), (DATA / "s2s-numbers" / "model.npz", "s2s-numbers")]
)
def test_number_words_score_as_with_marian(file: Path, folder: str) -> None:
    model = load_model(file)
    vocab = SHIPPED / "vocab.spm"
    pairs = pairs_of(model, [vocab, vocab], [DATA / folder / "input.en", DATA / folder / "input.de"])
    assert_marians_scores(model, pairs, DATA / folder / "word-scores.txt")


@pytest.mark.parametrize("name", ["transformer-joint", "s2s-gru"])
def test_europarl_scores_as_with_marian(fixtures: Path, name: str) -> None:
    folder = fixtures / "marian" / name
    meta = json.loads((folder / "meta.json").read_text())
    model = load_model(folder / "model.npz")
    vocabs, texts = ([fixtures / "data" / n for n in meta[key]] for key in ("vocabs", "score"))
    assert_marians_scores(model, pairs_of(model, vocabs, texts), folder / "word-scores.txt")


def score_pairs(model: Model, source: Sequence[np.ndarray], target: Sequence[np.ndarray]) -> np.ndarray:
    batch, length = source[0].shape
    scorer = model.scorer(batch, (length,), target[0].shape[1])
    return np.asarray(jax.jit(scorer)(model.params, [Source(*source)], Source(*target)))


@pytest.mark.sampled("s2s")
def test_steps_are_the_teacher_forced_model(model: Model) -> None:
    beam, length = 2, 6
    source = sentences(1, [5, 3, 1], model.dim_vocabs[0], 5)
    targets = [sentences(2 + b, [length] * 3, model.dim_vocabs[1], length)[0] for b in range(beam)]
    words = np.stack(targets, 1).reshape(3 * beam, length)
    encoded = jax.jit(model.encoder(3, (5,)))(model.params, [Source(*source)])
    assert {a.shape[0] for a in encoded.values()} == {3}
    stepper = model.stepper(3, beam, (5,), (4, length * beam))
    state = stepper.start(model.params, encoded)
    assert {a.shape[0] for a in state.values()} <= {3, 6}, "of sentences or of hypotheses"
    chex.clear_trace_counter()
    step = jax.jit(chex.assert_max_traces(stepper.step, n=1))
    previous, steps = np.full(3 * beam, 9, np.int32), []
    for t in range(length):
        logits, after, *_ = step(model.params, encoded, state, previous, np.int32(t))
        chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
        previous, state = words[:, t], after
        steps.append(np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), previous[:, None], 1))
    got = np.concatenate(steps, 1).reshape(3, beam, length)
    for b, target in enumerate(targets):
        expected = score_pairs(model, source, (target, np.ones((3, length))))
        np.testing.assert_allclose(got[:, b], expected, atol=2e-5)


@pytest.mark.sampled("transformer", "s2s")
def test_padding_and_other_sentences_change_nothing(model: Model) -> None:
    source, source_mask = sentences(1, [5, 2, 4], model.dim_vocabs[0], 5)
    target, target_mask = sentences(2, [3, 6, 1], model.dim_vocabs[1], 6)
    expected = score_pairs(model, (source, source_mask), (target, target_mask))
    others = sentences(3, [7], model.dim_vocabs[0], 7), sentences(4, [9], model.dim_vocabs[1], 9)

    def among_others(array: np.ndarray, other: np.ndarray, fill: int) -> np.ndarray:
        width = other.shape[1] - array.shape[1]
        padded = np.pad(array, ((0, 0), (0, width)), constant_values=fill)
        return np.concatenate([other, padded[::-1]])

    wide = [
        among_others(source, others[0][0], 7),
        among_others(source_mask, others[0][1], 0),
        among_others(target, others[1][0], 8),
        among_others(target_mask, others[1][1], 0),
    ]
    got = np.asarray(score_pairs(model, wide[:2], wide[2:]))
    np.testing.assert_allclose(got[:0:-1, :6], expected, atol=1e-5)
    assert not np.any(got[1:, 6:]), "padding has the score 0"


def test_a_later_word_changes_no_earlier_score(model: Model) -> None:
    source = sentences(1, [5, 5, 5], model.dim_vocabs[0], 5)
    target, mask = sentences(2, [6, 6, 6], model.dim_vocabs[1], 6)
    changed = target.copy()
    changed[:, 3] = 2 + (target[:, 3] + 1) % 9
    before = score_pairs(model, source, (target, mask))
    after = score_pairs(model, source, (changed, mask))
    np.testing.assert_allclose(after[:, :3], before[:, :3], atol=1e-6)
    assert np.abs(after[:, 3:] - before[:, 3:]).max() > 1e-3


@pytest.mark.sampled("transformer")
def test_steps_run_in_a_compiled_loop_and_hypotheses_may_be_reordered(plain_model: Model) -> None:
    model = plain_model
    source = sentences(1, [4, 3], model.dim_vocabs[0], 4)
    encoded = jax.jit(model.encoder(2, (4,)))(model.params, [Source(*source)])
    stepper = model.stepper(2, 2, (4,), (10,))
    order = np.array([1, 0, 3, 2])

    def advance(position, carry):
        words, state, _ = carry
        logits, state, *_ = stepper.step(model.params, encoded, state, words, position)
        state = jax.tree.map(lambda a: a[order] if len(a) == len(order) else a, state)
        return jnp.argmax(logits, -1).astype(jnp.int32)[order], state, logits[order]

    empty = jnp.zeros((4, model.dim_vocabs[1]))
    first = (jnp.array([1, 2, 3, 4], jnp.int32), stepper.start(model.params, encoded), empty)
    _, _, looped = jax.jit(lambda: jax.lax.fori_loop(0, 5, advance, first))()
    carry, once = first, jax.jit(advance)
    for position in range(5):
        carry = once(np.int32(position), carry)
    np.testing.assert_allclose(looped, carry[2], atol=1e-5)
    np.testing.assert_allclose(
        looped[0], looped[1], atol=1e-5, err_msg="the word before the first is ignored"
    )


@pytest.mark.parametrize("options", [replace(TRANSFORMER, dec_depth=1), S2S], ids=["transformer", "s2s"])
@pytest.mark.sampled("transformer")
def test_the_rules_give_a_whole_model_the_gradients_that_jax_gives(options: ModelOptions) -> None:
    model = create_model(options)
    graph = model.new_graph(inference=False)
    source, source_mask = sentences(1, [3, 2], 11, 3)
    target, target_mask = sentences(2, [2, 3], 13, 3)

    def constant(value: np.ndarray, kind: Type) -> mgraph.Node:
        return graph.constant(value.shape, mgraph.inits.from_tensor(value), kind)

    ids = constant(target, Type.int32)
    words = Source(constant(source, Type.int32), constant(source_mask, Type.float32))
    encoded = model.encode([words])
    costs = mgraph.cross_entropy(model.logits(encoded, ids), mgraph.flatten(ids), 0.1)
    loss = mgraph.sum(mgraph.flatten(costs * constant(target_mask[:, :, None], Type.float32)))

    def gradients(derivatives: str) -> dict[str, jax.Array]:
        function = graph.function(loss, derivatives=derivatives)
        return jax.jit(jax.grad(lambda params: function.pure(params)[0]))(model.params)

    by_rules, by_jax = gradients("rules"), gradients("jax")
    for name, expected in by_jax.items():
        scale = np.abs(expected).max()
        assert scale > 0 or name.endswith("_bk"), f"{name} has no gradient"
        np.testing.assert_allclose(by_rules[name], expected, atol=2e-5 * max(scale, 0.1), err_msg=name)


def test_scores_do_not_depend_on_the_batch_nor_on_how_it_is_cut(
    plain_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    pairs = [tuple([*rng.integers(2, 11, rng.integers(0, 8)), 0] for _ in range(2)) for _ in range(3)]
    whole = score(plain_model, pairs)
    monkeypatch.setattr(few_batches, "MOST_NUMBERS", 8 * 13)
    cut = score(plain_model, pairs)
    before = mgraph.compile_stats()
    alone = [score(plain_model, [pair])[0] for pair in pairs]
    assert (mgraph.compile_stats() - before).misses == 0, "cut to single pairs"
    for scores in (cut, alone):
        for one, other, (_, target) in zip(whole, scores, pairs, strict=True):
            words, total = one.word_scores, one.log_prob
            assert words.shape == (len(target),) and words.dtype == np.float32
            np.testing.assert_allclose(words, other.word_scores, atol=1e-5)
            assert total == pytest.approx(other.log_prob, abs=1e-4)
            assert total == pytest.approx(words.sum(), abs=1e-4)


def test_equal_models_share_their_programs(plain_model: Model) -> None:
    pairs = [([3, 4, 0], [5, 6, 7, 0]), ([3, 0], [5, 0])]
    first = score(plain_model, pairs)
    before = mgraph.compile_stats()
    other = type(plain_model)(plain_model.options, {n: 2 * p for n, p in plain_model.params.items()})
    assert score(other, pairs)[0][0] != first[0][0]
    assert (mgraph.compile_stats() - before).misses == 0


def test_an_empty_side_is_an_error_and_no_pairs_are_no_scores(plain_model: Model) -> None:
    assert score(plain_model, []) == []
    with pytest.raises(ValueError, match="sentence 1 has no ids in its target"):
        score(plain_model, [([0], [0]), ([0], [])])


def test_ids_that_the_vocabularies_lack_are_named(plain_model: Model) -> None:
    assert np.isfinite(score(plain_model, [([10, 0], [12, 0])])[0].log_prob)
    with pytest.raises(ArgumentError, match="sentence 1 has id 11 in its source, of which .* 11 ids"):
        score(plain_model, [([0], [0]), ([11, 0], [0])])
    with pytest.raises(ArgumentError, match="sentence 0 has id -1 in its target, of which .* 13 ids"):
        score(plain_model, [([0], np.array([12, -1, 0]))])


def test_functions_are_recorded_once(plain_model: Model) -> None:
    model = plain_model
    assert model.encoder(2, (8,)) is model.encoder(2, 8) is model.encoder(2, [np.int32(8)])
    assert model.stepper(2, 2, (8,), (9,)) is model.stepper(2, 2, (8,), (9,))
    assert model.scorer(2, (8,), 8) is model.scorer(2, 8, 8) is not model.scorer(2, (8,), 16)
    with pytest.raises(ShapeError, match="got '8'"):
        model.scorer(2, "8", 8)  # type: ignore[arg-type]


def test_a_model_keeps_few_functions(monkeypatch: pytest.MonkeyPatch, plain_model: Model) -> None:
    monkeypatch.setattr("nmt.models.model._MOST_FUNCTIONS", 2)
    model = plain_model.without_values()
    first, second, third = (model.listing(listed) for listed in (1, 2, 3))
    assert model.listing(3) is third and model.listing(2) is second and model.listing(1) is not first


def test_a_graph_of_a_model_takes_no_other_parameters(plain_model: Model) -> None:
    model = plain_model
    graph = model.new_graph()
    assert isinstance(graph, ExpressionGraph) and set(graph.params()) == set(model.params)
    with pytest.raises(ParameterError, match="'other'"):
        graph.param("other", (2, 2))


@pytest.mark.parametrize("kind", [Type.float16, Type.bfloat16, Type.float64])
def test_models_are_recorded_in_the_element_type_of_the_graph(plain_model: Model, kind: Type) -> None:
    graph = ExpressionGraph(inference=True)
    graph.set_default_element_type(kind)
    ids = graph.input("ids", (2, 4), Type.int32)
    encoded = plain_model.encode([Source(ids, graph.input("mask", (2, 4)))])
    words, position = graph.input("words", (4,), Type.int32), graph.input("position", (), Type.int32)
    start = plain_model.start(graph, encoded, 2, 2, [6])
    logits, state, *_ = plain_model.step(encoded, start, words, position, 2)
    state.pop("ancestors", None)  # counts places, and 16 bits are too few for that
    nodes = [logits, *state.values(), plain_model.logits(encoded, ids)]
    assert {node.value_type for node in nodes} == {kind}


@pytest.mark.sampled("transformer")
def test_a_scorer_of_a_model_in_float64(plain_model: Model) -> None:
    params = {name: np.asarray(value, np.float64) for name, value in plain_model.params.items()}
    ids = np.array([[3, 4, 0], [5, 6, 7]], np.int32)
    source = Source(ids, np.ones(ids.shape, np.float32))
    with jax.enable_x64(True):
        found = Model(plain_model.options, params).scorer(2, 3, 3)(params, [source], source)
    assert found.dtype == np.float64
    expected = plain_model.scorer(2, 3, 3)(plain_model.params, [source], source)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
