"""Translation models: against Marian's numbers, against themselves, and against damaged files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from layers import UnsupportedOptionError
from mgraph import ArgumentError, ExpressionGraph, ModelFileError, ParameterError, Type
from mgraph.files.items import with_model_yml, write_npz
from nmt.files import create_model, load_model, save_model
from nmt.models import TYPES, Model, Source
from nmt.search import scorer
from nmt.search.scorer import score
from nmt.settings.model_options import ModelOptions
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.places import DATA, SHIPPED

TRANSFORMER = ModelOptions(
    type="transformer",
    dim_vocabs=(11, 13),
    dim_emb=8,
    enc_depth=1,
    dec_depth=2,
    transformer_heads=2,
    transformer_dim_ffn=6,
)
S2S = ModelOptions(type="s2s", dim_vocabs=(11, 13), dim_emb=5, dim_rnn=6)
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


# ---------------------------------------------------------------- Marian's numbers


def pairs_of(
    model: Model, vocabs: Sequence[Path], texts: Sequence[Path]
) -> list[tuple[list[int], list[int]]]:
    encode = [load_vocab(path, dim).encode for path, dim in zip(vocabs, model.dim_vocabs, strict=True)]
    source, target = (path.read_bytes().split(b"\n")[:-1] for path in texts)
    return [(encode[0](s), encode[1](t)) for s, t in zip(source, target, strict=True)]


def assert_marians_scores(model: Model, pairs: list[tuple[list[int], list[int]]], reference: Path) -> None:
    """Word scores within two units of the fifth decimal, sums within their sixth significant digit."""
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


# ---------------------------------------------------------------- two ways to the same numbers


def score_pairs(model: Model, source: Sequence[np.ndarray], target: Sequence[np.ndarray]) -> np.ndarray:
    batch, length = source[0].shape
    scorer = model.scorer(batch, (length,), target[0].shape[1])
    return np.asarray(jax.jit(scorer)(model.params, [Source(*source)], Source(*target)))


def test_steps_are_the_teacher_forced_model(model: Model) -> None:
    beam, length = 2, 6
    source = sentences(1, [5, 3, 1], model.dim_vocabs[0], 5)
    targets = [sentences(2 + b, [length] * 3, model.dim_vocabs[1], length)[0] for b in range(beam)]
    words = np.stack(targets, 1).reshape(3 * beam, length)
    encoded = jax.jit(model.encoder(3, (5,)))(model.params, [Source(*source)])
    assert {a.shape[0] for a in encoded.values()} == {3}
    stepper = model.stepper(3, beam, (5,), length + 2)
    state = stepper.start(model.params, encoded)
    assert {a.shape[0] for a in state.values()} == {6}
    step = jax.jit(stepper.step)
    previous, steps = np.full(3 * beam, 9, np.int32), []
    for t in range(length):
        logits, after, _ = step(model.params, encoded, state, previous, np.int32(t))
        assert {n: (a.shape, a.dtype) for n, a in after.items()} == {
            n: (a.shape, a.dtype) for n, a in state.items()
        }
        previous, state = words[:, t], after
        steps.append(np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), previous[:, None], 1))
    got = np.concatenate(steps, 1).reshape(3, beam, length)
    for b, target in enumerate(targets):
        expected = score_pairs(model, source, (target, np.ones((3, length))))
        np.testing.assert_allclose(got[:, b], expected, atol=2e-5)


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


def test_steps_run_in_a_compiled_loop_and_hypotheses_may_be_reordered(plain_model: Model) -> None:
    model = plain_model
    source = sentences(1, [4, 3], model.dim_vocabs[0], 4)
    encoded = jax.jit(model.encoder(2, (4,)))(model.params, [Source(*source)])
    stepper = model.stepper(2, 2, (4,), 5)
    order = np.array([1, 0, 3, 2])

    def advance(position, carry):
        words, state, _ = carry
        logits, state, _ = stepper.step(model.params, encoded, state, words, position)
        state = jax.tree.map(lambda a: a[order], state)
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


# ---------------------------------------------------------------- scoring


def test_scores_do_not_depend_on_the_batch_nor_on_how_it_is_cut(
    plain_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    pairs = [tuple([*rng.integers(2, 11, rng.integers(0, 8)), 0] for _ in range(2)) for _ in range(3)]
    whole = score(plain_model, pairs)
    monkeypatch.setattr(scorer, "MOST_LOGITS", 8 * 13)
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
    with pytest.raises(ValueError, match="sentence 1 has no ids in one stream"):
        score(plain_model, [([0], [0]), ([0], [])])


# ---------------------------------------------------------------- files


def save(path: Path, model: Model, yml: str, **changes: np.ndarray | None) -> Path:
    """A model file with some items changed, or left out where ``None`` is given."""
    items = {name: np.asarray(value) for name, value in model.params.items()}
    items |= {"special:model.yml": with_model_yml(yml), **changes}
    write_npz(path, {name: value for name, value in items.items() if value is not None})
    return path


YML = "type: s2s\ndim-vocabs: [11, 13]\ndim-emb: 5\ndim-rnn: 6\n"


def test_a_saved_model_loads_as_it_was(tmp_path: Path) -> None:
    model = create_model(S2S)
    graph = load_model(save(tmp_path / "a.npz", model, YML)).new_graph()
    graph.save(tmp_path / "b.npz")
    again = load_model(tmp_path / "b.npz")
    assert again.options.text == YML
    assert again.key == load_model(tmp_path / "a.npz").key
    for name, value in model.params.items():
        np.testing.assert_array_equal(again.params[name], value)


@pytest.mark.parametrize("kind", TYPES)
def test_a_new_model_of_every_type_is_saved_and_loaded(tmp_path: Path, kind: str) -> None:
    cell = "gru-nematus" if kind == "nematus" else "gru"
    streams = len(TYPES[kind].encoders) + 1
    sizes = {"dim_emb": 8, "dim_rnn": 6, "transformer_heads": 2, "transformer_dim_ffn": 5}
    model = create_model(
        ModelOptions(type=kind, dim_vocabs=(11,) * streams, enc_cell=cell, dec_cell=cell, **sizes)
    )
    save_model(model, tmp_path / "model.npz")
    save_model(model, tmp_path / "model.bin")
    model.new_graph().save(tmp_path / "graph.npz")
    for name in ("model.npz", "model.bin", "graph.npz"):
        again = load_model(tmp_path / name)
        assert again.key == model.key
        for parameter, value in model.params.items():
            np.testing.assert_array_equal(again.params[parameter], value, err_msg=parameter)
    with pytest.raises(ArgumentError, match=f"type {kind} reads {streams - 1} sources, got 7"):
        model.encode([Source(None, None)] * 7)


def test_every_parameter_that_does_not_fit_is_listed(tmp_path: Path) -> None:
    model = create_model(S2S)
    changes = {
        "encoder_bi_U": None,
        "encoder_bi_Ux": None,
        "decoder_b_att": np.zeros((1, 11), np.float32),
        "decoder_cell3_U": np.zeros((6, 12), np.float32),
    }
    path = save(tmp_path / "model.npz", model, YML, **changes)
    with pytest.raises(ParameterError) as error:
        load_model(path)
    assert str(error.value).splitlines() == [
        f"{path}: the parameters are not those of a s2s model with these options",
        "  2 missing:",
        "    encoder_bi_U (6, 12): needed with enc-cell gru",
        "    encoder_bi_Ux (6, 6): needed with enc-cell gru",
        "  1 not used:",
        "    decoder_cell3_U (6, 12): exists with dec-cell-base-depth of at least 3",
        "  1 of another shape:",
        "    decoder_b_att (1, 11), expected (1, 12): 1 x 2 * dim-rnn",
    ]


@pytest.mark.parametrize(
    "yml, problem",
    [
        ("type: char-s2s", "type: 'char-s2s' is not supported yet; there is 'amun', "),
        ("type: transformre", "type: 'transformre' is unknown"),
        (YML + "enc-cell: slow-lstm", "enc-cell: 'slow-lstm' is unknown"),
        (YML + "enc-type: backward", "enc-type: 'backward' is unknown"),
        (YML + "original-type: nematus", "original-type: 'nematus' is not supported yet"),
        (YML + "input-types: [class]", r"input-types: \['class'\] is not supported yet"),
        (YML + "dec-depth: 1000000000", "dec-depth: expected a number from 1 to 256, got 1000000000"),
        (YML + "enc-depth: 0", "enc-depth: expected a number from 1 to 256, got 0"),
        ("type: s2s\ndim-vocabs: [11]", r"dim-vocabs: expected the sizes of 2 vocabularies, got \[11\]"),
        (
            YML + "tied-embeddings-src: true",
            r"one embedding table for all sides needs equal sizes, got \[11, 13\]",
        ),
        (
            YML.replace("s2s", "transformer") + "transformer-heads: 2",
            "transformer-heads: expected a divisor of dim-emb, 5, got 2",
        ),
        (
            YML.replace("s2s", "transformer") + "transformer-heads: 0",
            "transformer-heads: expected a number from 1",
        ),
    ],
)
def test_options_that_cannot_be_followed_are_refused_by_name(tmp_path: Path, yml: str, problem: str) -> None:
    path = save(tmp_path / "model.npz", create_model(S2S), yml)
    with pytest.raises((UnsupportedOptionError, mgraph.ShapeError), match=problem) as error:
        load_model(path)
    assert str(error.value).startswith(f"{path}: ")


def test_files_that_are_no_models_are_errors_that_name_them(tmp_path: Path) -> None:
    model = create_model(S2S)
    integers = save(tmp_path / "a.npz", model, YML, encoder_bi_U=np.zeros((6, 12), np.int8))
    bare = tmp_path / "b.npz"
    write_npz(bare, {"w": np.zeros(3, np.float32)})
    for path, problem in (
        (integers, "encoder_bi_U int8"),
        (bare, "special:model.yml"),
        (tmp_path / "c.pt", ".npz"),
    ):
        with pytest.raises(ModelFileError, match=problem) as error:
            load_model(path)
        assert str(path) in str(error.value)
    with pytest.raises(FileNotFoundError):
        load_model(tmp_path / "none.npz")


def test_files_of_old_versions_may_have_the_output_matrix_untransposed(tmp_path: Path) -> None:
    model = create_model(S2S)
    name = "decoder_ff_logit_l2_Wt"
    old = {name: None, "decoder_ff_logit_l2_W": np.asarray(model.params[name]).T}
    path = save(tmp_path / "model.npz", model, YML, **old)
    pairs = [([3, 4, 0], [5, 6, 7, 0])]
    np.testing.assert_allclose(score(load_model(path), pairs)[0][1], score(model, pairs)[0][1], atol=1e-6)


def test_half_precision_files_are_read_as_float32(tmp_path: Path) -> None:
    model = create_model(S2S)
    half = {name: np.asarray(value).astype(np.float16) for name, value in model.params.items()}
    loaded = load_model(save(tmp_path / "model.npz", model, YML, **half))
    assert {value.dtype for value in loaded.params.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(loaded.params["encoder_Wemb"], half["encoder_Wemb"].astype(np.float32))


def test_functions_are_recorded_once(plain_model: Model) -> None:
    model = plain_model
    assert model.encoder(2, (8,)) is model.encoder(2, (8,))
    assert model.stepper(2, 2, (8,), 9) is model.stepper(2, 2, (8,), 9)
    assert model.scorer(2, (8,), 8) is not model.scorer(2, (8,), 16)


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
    start = plain_model.start(graph, encoded, 2, 2, 6)
    logits, state, _ = plain_model.step(encoded, start, words, position, 2)
    nodes = [logits, *state.values(), plain_model.logits(encoded, ids)]
    assert {node.value_type for node in nodes} == {kind}
