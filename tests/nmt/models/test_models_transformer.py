"""Models of the transformer family, compared with Marian's numbers and with themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
import pytest

import layers
import mgraph
from layers import UnsupportedOptionError
from mgraph import ExpressionGraph, Type
from mgraph.files.items import with_model_yml, write_npz
from nmt import Translator, load_vocab
from nmt.files import create_model, load_model, save_model
from nmt.models import Dropouts, Model, Source
from nmt.models.parts import Setup
from nmt.models.transformer import TransformerEncoder
from nmt.settings.model_options import ModelOptions
from nmt.training.gradients import check_model_gradients
from tests.helpers import places

DATA = places.DATA / "models-transformer"
TEXT = DATA.parent / "options"
WORDS = DATA / "words.yml"
ROWS = sorted(path.stem for path in DATA.glob("*.npz"))
WITHOUT_ATTENTION = ("pool", "lm-aan")

SMALL = ModelOptions(
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
PRENORM: Mapping[str, Any] = {
    "transformer_preprocess": "n",
    "transformer_postprocess": "da",
    "transformer_postprocess_top": "n",
}
VARIANTS = {
    "average attention": replace(
        SMALL,
        dec_depth=2,
        transformer_decoder_autoreg="average-attention",
        transformer_guided_alignment_layer="1",
    ),
    "ssru": replace(
        SMALL,
        dec_depth=2,
        transformer_decoder_autoreg="rnn",
        transformer_rnn_projection=True,
        layer_normalization=True,
        transformer_tied_layers=(1, 1),
        **PRENORM,
    ),
    "two sources": replace(SMALL, type="multi-transformer", dim_vocabs=(11, 9, 13), **PRENORM),
    "pool": replace(SMALL, transformer_pool=True, transformer_disable_position_embeddings=True),
    "new": replace(SMALL, type="transformer-new", transformer_train_position_embeddings=True),
}


def stream(ids: Sequence[Sequence[int]]) -> Source:
    """Sentences padded to one length."""
    width = max(map(len, ids))
    padded = [[*row, *[0] * (width - len(row))] for row in ids]
    mask = [[1] * len(row) + [0] * (width - len(row)) for row in ids]
    return Source(np.array(padded, np.int32), np.array(mask, np.float32))


def drawn(seed: int, lengths: Sequence[int], vocabulary: int) -> Source:
    """Random sentences of these lengths, ``</s>`` included."""
    rng = np.random.default_rng(seed)
    return stream([[*rng.integers(2, vocabulary, length - 1), 0] for length in lengths])


def random_model(options: ModelOptions, **settings: Any) -> Model:
    """A model whose parameters are large enough for its layers to matter."""
    created = create_model(options, seed=4)
    rng = np.random.default_rng(0)
    changed = {n: p + 0.3 * rng.standard_normal(p.shape, np.float32) for n, p in created.params.items()}
    return Model(options, changed, **settings)


# ---------------------------------------------------------------- Marian's numbers


@cache
def texts(row: str) -> list[Path]:
    """The texts of a row's model, the target last."""
    source = [] if row.startswith("lm") else [TEXT / "source.txt"]
    second = [DATA / "second.txt"] if row == "multi" else []
    return [*source, *second, TEXT / "target.txt"]


def attention_of(field: str) -> np.ndarray:
    return np.array([[float(weight) for weight in word.split(",")] for word in field.split(" ")])


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.sampled("aan", "multi", "rms")
def test_word_scores_and_attention_are_marians(row: str) -> None:
    model = load_model(DATA / f"{row}.npz")
    encode = load_vocab(WORDS).encode
    *sources, target = (
        stream([encode(line) for line in path.read_text().splitlines()]) for path in texts(row)
    )
    lengths = tuple(source.ids.shape[1] for source in sources)
    wanted = row not in WITHOUT_ATTENTION
    scorer = model.scorer(len(target.ids), lengths, target.ids.shape[1], attention=wanted)
    found = jax.jit(scorer)(model.params, sources, target)
    scores, attention = found if wanted else (found, None)
    lines = (DATA / f"{row}.scores").read_text().splitlines()
    assert len(lines) == len(target.ids)
    for line, got, number in zip(lines, np.asarray(scores), range(len(lines)), strict=True):
        _, *fields, words = line.split(" ||| ")
        expected = [float(word) for word in words.removeprefix("WordScores= ").split()]
        np.testing.assert_allclose(got[: len(expected)], expected, rtol=0, atol=2e-5)
        assert not got[len(expected) :].any()
        if attention is not None:
            weights = attention_of(fields[0])
            ours = np.asarray(attention[number])[: weights.shape[0], : weights.shape[1]]
            np.testing.assert_allclose(ours, weights, rtol=0, atol=5e-6)


@pytest.mark.parametrize("row", ["prenorm", "aan-even", "student", "multi"])
@pytest.mark.sampled("student", "aan-even")
def test_single_steps_are_marians(row: str) -> None:
    best = (DATA / f"{row}.best").read_text()
    alignment = "soft" if row in ("prenorm", "multi") else ""
    translator = Translator(
        str(DATA / f"{row}.npz"),
        [str(WORDS)] * len(texts(row)),
        beam_size=2,
        mini_batch=8,
        max_length=50,
        word_scores=True,
        alignment=alignment,
        marian_exact=True,
    )
    got = translator.translate(*(path.read_text().splitlines() for path in texts(row)[:-1]))
    for line, expected in zip(got, best.splitlines(), strict=True):
        (text, *fields, words), (its_text, *its_fields, its_words) = (
            line.split(" ||| "),
            expected.split(" ||| "),
        )
        assert text == its_text
        for field, its_field in zip(fields, its_fields, strict=True):
            np.testing.assert_allclose(attention_of(field), attention_of(its_field), rtol=0, atol=5e-6)
        numbers, its_numbers = (
            [float(word) for word in part.removeprefix("WordScores= ").split()] for part in (words, its_words)
        )
        np.testing.assert_allclose(numbers, its_numbers, rtol=0, atol=2e-5)


# ---------------------------------------------------------------- two ways to the same numbers


def stepped(model: Model, sources: list[Source], words: np.ndarray, attention: bool) -> tuple[Any, Any, Any]:
    """Logits and attention of each step for the given words, ``(sentences * beam, time)``, and the shapes of
    the states before each step."""
    batch, beam = len(sources[0].ids), len(words) // len(sources[0].ids)
    lengths = tuple(source.ids.shape[1] for source in sources)
    encoded = jax.jit(model.encoder(batch, lengths))(model.params, sources)
    stepper = model.stepper(batch, beam, lengths, (3, beam * words.shape[1]), attention=attention)
    step = jax.jit(stepper.step)
    state = stepper.start(model.params, encoded)
    previous, logits, weights, shapes = np.full(len(words), 5, np.int32), [], [], []
    for time in range(words.shape[1]):
        shapes.append({name: value.shape for name, value in state.items()})
        now, state, attended, _ = step(model.params, encoded, state, previous, np.int32(time))
        logits.append(now)
        weights.append(attended)
        previous = words[:, time]
    return np.stack(logits, 1), np.stack(weights, 1) if attention else None, shapes


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.sampled("ssru", "pool")
def test_steps_are_the_teacher_forced_model_and_attend_alike(name: str) -> None:
    model = random_model(VARIANTS[name])
    attention = name != "pool"
    sources = [drawn(i, [4, 2], size) for i, size in enumerate(model.dim_vocabs[:-1])]
    words = drawn(7, [5] * 4, 13).ids
    logits, weights, shapes = stepped(model, sources, words, attention)
    assert all(now == shapes[0] for now in shapes), "the state does not grow"
    if "attention" in name or name == "ssru":
        assert set(shapes[0].values()) == {(4, 6)}, "one vector for each hypothesis"
    lengths = tuple(source.ids.shape[1] for source in sources)
    scorer = jax.jit(model.scorer(2, lengths, 5, attention=attention))
    mask = np.ones((2, 5), np.float32)
    for place in range(2):
        target = words[place::2]
        found = scorer(model.params, sources, Source(target, mask))
        expected, attended = found if attention else (found, None)
        scores = jax.nn.log_softmax(logits[place::2])
        got = np.take_along_axis(np.asarray(scores), target[:, :, None], -1)[:, :, 0]
        np.testing.assert_allclose(got, expected, atol=2e-5)
        if attended is not None:
            np.testing.assert_allclose(weights[place::2], attended, atol=2e-6)
            np.testing.assert_allclose(np.sum(attended, -1), mask, atol=1e-5)


def one_step(graph: ExpressionGraph, model: Model, shortlist: mgraph.Node | None = None) -> mgraph.Node:
    """The logits of a second step: 2 sentences with 2 hypotheses each."""
    source = drawn(0, [4, 2], 11)
    ids, words = (constant(graph, value) for value in (source.ids, np.array([3, 4, 5, 6], np.int32)))
    encoded = model.encode([Source(ids, constant(graph, source.mask))])
    state = model.start(graph, encoded, 2, 2, [6])
    position = constant(graph, np.array(1, np.int32))
    return model.step(encoded, state, words, position, 2, shortlist=shortlist).logits


def constant(graph: ExpressionGraph, value: np.ndarray) -> mgraph.Node:
    kind = Type.int32 if value.dtype == np.int32 else Type.float32
    return graph.constant(value.shape, mgraph.inits.from_tensor(value), kind)


def test_candidates_have_the_logits_that_they_have_among_all_words() -> None:
    model = random_model(SMALL)
    graph = model.new_graph()
    candidates = np.array([[0, 3, 12, 5], [7, 7, 1, 0]], np.int32)
    whole, chosen = one_step(graph, model), one_step(graph, model, constant(graph, candidates))
    graph.forward()
    expected = np.take_along_axis(np.asarray(whole.val()), np.repeat(candidates, 2, 0), 1)
    np.testing.assert_allclose(chosen.val(), expected, atol=1e-6)


def operations(node: mgraph.Node) -> list[str]:
    """The types of all nodes below one."""
    below, seen = [node], {}
    while below:
        last = below.pop()
        if last.id not in seen:
            seen[last.id] = last.type
            below.extend(last.children)
    return [seen[i] for i in sorted(seen)]


@pytest.mark.parametrize(
    "options, departs",
    [
        (replace(SMALL, **PRENORM), True),
        (replace(SMALL, transformer_preprocess="dr"), True),
        (replace(SMALL, transformer_preprocess="d"), False),
        (replace(SMALL, transformer_decoder_autoreg="average-attention", **PRENORM), False),
        (replace(SMALL, transformer_decoder_autoreg="rnn", **PRENORM), False),
        (replace(SMALL, type="transformer-new", **PRENORM), False),
    ],
)
def test_only_normalised_self_attention_is_another_in_marians_steps(
    options: ModelOptions, departs: bool
) -> None:
    params = create_model(options).params
    graphs = [ExpressionGraph(inference=True) for _ in range(2)]
    ours, marians = (
        operations(one_step(graph, Model(options, params, marian_exact=exact)))
        for graph, exact in zip(graphs, (False, True), strict=True)
    )
    assert (ours != marians) == departs


# ---------------------------------------------------------------- layers


def test_positions_past_a_trained_table_have_its_last_row() -> None:
    graph = ExpressionGraph(inference=True)
    x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    positions = layers.TrainedPositionEmbedding("Wpos", 3, 4)
    whole = positions(constant(graph, x))
    alone = positions(constant(graph, x[0]))
    steps = [positions.at(constant(graph, x[:, t]), constant(graph, np.array(t, np.int32))) for t in range(5)]
    graph.forward()
    expected = x + np.asarray(graph.params()["Wpos"].val())[[0, 1, 2, 2, 2]]
    np.testing.assert_allclose(whole.val(), expected, rtol=1e-6)
    np.testing.assert_allclose(alone.val(), expected[0], rtol=1e-6)
    np.testing.assert_allclose(np.stack([step.val() for step in steps], 1), expected, rtol=1e-6)


def test_old_models_have_one_table_of_positions_and_new_ones_two() -> None:
    old = create_model(replace(SMALL, extra=MappingProxyType({"transformer-train-positions": True})))
    new = create_model(VARIANTS["new"])
    assert {name: p.shape for name, p in old.params.items() if "Wpos" in name} == {"Wpos": (50, 6)}
    assert {name for name in new.params if "Wpos" in name} == {"encoder_Wpos", "decoder_Wpos"}


@pytest.mark.parametrize(("kind", "scale"), [("transformer", 1), ("transformer-new", 6**0.5)])
def test_words_without_positions_are_scaled_in_new_models_only(kind: str, scale: float) -> None:
    options = replace(SMALL, type=kind, transformer_disable_position_embeddings=True)
    positions = TransformerEncoder(Setup(options, Dropouts(), {}), "encoder", 0).stack.positions
    assert isinstance(positions, layers.NoPositionEmbedding) and positions.scale == scale


def test_average_attention_is_its_formula() -> None:
    graph = ExpressionGraph(inference=True)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 6)).astype(np.float32)
    config = layers.TransformerConfig(6, dim_aan=5, aan_depth=2, aan_activation="relu", postprocess="a")
    block = layers.AverageAttention("l", config, 1)
    y = block(graph.constant(x.shape, mgraph.inits.from_tensor(x)), graph.zeros((4, 4)))
    for node in graph.params().values():
        node.set_value(rng.standard_normal(node.shape))
    p = {name.removeprefix("l_aan_"): np.asarray(node.val()) for name, node in graph.params().items()}
    graph.forward()
    mean = np.cumsum(x, 1) / np.arange(1, 5)[:, None]
    ffn = np.maximum(mean @ p["W1"] + p["b1"], 0) @ p["W2"] + p["b2"]
    gates = [1 / (1 + np.exp(-(v @ p[f"W{g}"] + p[f"b{g}"]))) for v, g in ((x, "i"), (ffn, "f"))]
    np.testing.assert_allclose(y.val(), gates[0] * x + gates[1] * ffn + x, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- gradients, files, refusals


@pytest.mark.parametrize("name", ["average attention", "ssru"])
@pytest.mark.sampled("ssru")
def test_the_rules_are_right_by_every_parameter(name: str) -> None:
    model = random_model(replace(VARIANTS[name], dec_depth=1, transformer_tied_layers=()))
    report = check_model_gradients(model, [([3, 4, 0], [5, 6, 7, 0]), ([2, 0], [8, 0])], float32=False)
    assert report.ok, report


@pytest.mark.parametrize("row", ["aan", "student", "new", "new-rms", "new-ssru"])
def test_a_saved_model_is_the_file_that_it_was(row: str, tmp_path: Path) -> None:
    save_model(load_model(DATA / f"{row}.npz"), tmp_path / "model.npz")
    assert (tmp_path / "model.npz").read_bytes() == (DATA / f"{row}.npz").read_bytes()


@pytest.mark.parametrize(
    "options, problem",
    [
        ("transformer-attention-mask: alibi", "transformer-attention-mask"),
        ("transformer-decoder-autoreg: convolution", "transformer-decoder-autoreg"),
        ("transformer-ffn-activation: tanh", "transformer-ffn-activation: 'tanh' is unknown"),
        ("transformer-preprocess: na", "transformer-preprocess"),
        ("transformer-tied-layers: [1, 1]", "transformer-tied-layers"),
        (
            "transformer-decoder-autoreg: average-attention\ntransformer-aan-activation: linear",
            "transformer-aan-activation",
        ),
        ("transformer-decoder-autoreg: rnn\ndec-cell: elman", "dec-cell"),
        (
            "type: transformer-new\ntransformer-decoder-autoreg: average-attention",
            "transformer-decoder-autoreg",
        ),
        ("type: transformer-new\ntransformer-no-affine: true", "transformer-no-affine"),
        (
            "type: transformer-new\ntransformer-no-bias: true\ntransformer-decoder-autoreg: rnn",
            "transformer-no-bias",
        ),
        ("type: transformer-new\ntransformer-postprocess: dhn", "transformer-postprocess: type transf"),
        ("type: transformer-new\ntransformer-postprocess: dda", "transformer-postprocess: type transf"),
        ("type: transformer-new\ntransformer-preprocess: nr", "transformer-preprocess: type transf"),
        ("type: transformer-new\ntransformer-tied-layers: [2]", "cannot tie a layer to one above it"),
        ("type: transformer-new\ntransformer-ffn-activation: ''", "transformer-ffn-activation"),
    ],
)
def test_options_that_cannot_be_followed_are_refused_by_name(
    options: str, problem: str, tmp_path: Path
) -> None:
    common = "dim-vocabs: [5, 5]\ndim-emb: 8\nenc-depth: 1\ndec-depth: 1\ntransformer-heads: 2\n"
    kind = "" if options.startswith("type") else "type: transformer\n"
    path = tmp_path / "model.npz"
    items = {
        "w": np.zeros((1, 1), np.float32),
        "special:model.yml": with_model_yml(f"{common}{kind}{options}\n"),
    }
    write_npz(path, items)
    with pytest.raises(UnsupportedOptionError, match=problem) as error:
        load_model(path)
    assert str(path) in str(error.value)


def test_a_model_without_attention_says_so() -> None:
    pooled = random_model(replace(SMALL, transformer_pool=True))
    with pytest.raises(mgraph.ArgumentError, match="transformer-pool"):
        pooled.scorer(1, (2,), 2, attention=True)
    alone = create_model(replace(SMALL, type="lm-transformer", dim_vocabs=(13,)))
    with pytest.raises(mgraph.ArgumentError, match="reads no source"):
        alone.scorer(1, (), 2, attention=True)
    for layer in ("3", "0", "²"):
        deep = create_model(replace(SMALL, dec_depth=2, transformer_guided_alignment_layer=layer))
        with pytest.raises(UnsupportedOptionError, match=f"from 1 to 2, got '{layer}'"):
            deep.scorer(1, (2,), 2, attention=True)
