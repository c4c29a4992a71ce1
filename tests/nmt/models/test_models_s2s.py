"""The recurrent model types, compared with Marian's numbers, files and places of dropout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import chex
import jax
import numpy as np
import pytest

import mgraph
from layers import UnsupportedOptionError
from mgraph import ExpressionGraph, Type
from mgraph.files.parameter_files import read_items
from mgraph.ops.scan import ScanNodeOp
from nmt.files import create_model, load_model, save_model
from nmt.models import Dropouts, Model, Source
from nmt.models.names import amun_names, nematus_names
from nmt.search.scoring import Streams, score
from nmt.settings.model_options import ModelOptions, yaml_of
from nmt.text.vocabs.loading import load_vocab
from nmt.training.gradients import check_model_gradients
from tests.helpers import places

OPTIONS = places.DATA / "options"
DATA = places.DATA / "models-s2s"

SOURCE, SECOND, TARGET = OPTIONS / "source", DATA / "second", OPTIONS / "target"
JOINT = OPTIONS / "joint"
TEXTS = {1: (TARGET,), 2: (SOURCE, TARGET), 3: (SOURCE, SECOND, TARGET)}
VOCABS = {
    "amun": (SOURCE, TARGET),
    "amun-tied": (JOINT, JOINT),
    "nematus": (SOURCE, TARGET),
    "multi-s2s": (SOURCE, SECOND, TARGET),
    "shared-multi-s2s": (SECOND, SECOND, TARGET),
    "lm": (TARGET,),
    "transformer_s2s": (SOURCE, TARGET),
}

NEMATUS = ModelOptions(
    type="nematus",
    dim_vocabs=(16, 21),
    dim_emb=4,
    dim_rnn=5,
    enc_cell="gru-nematus",
    dec_cell="gru-nematus",
    enc_cell_depth=2,
    dec_cell_base_depth=4,
    enc_depth=2,
    dec_depth=2,
    skip=True,
    layer_normalization=True,
)


def streams_of(name: str) -> list[Streams]:
    """The ids of the texts that Marian scored."""
    vocabs = [load_vocab(path.with_suffix(".yml")) for path in VOCABS[name]]
    texts = [path.with_suffix(".txt").read_bytes().split(b"\n")[:-1] for path in TEXTS[len(vocabs)]]
    return [
        [vocab.encode(line) for vocab, line in zip(vocabs, lines, strict=True)]
        for lines in zip(*texts, strict=True)
    ]


def assert_marians_scores(model: Model, streams: Sequence[Streams], reference: Path) -> None:
    """Word scores agree within two units of the fifth decimal, attention within two of the sixth digit."""
    lines = reference.read_text().splitlines()
    for line, found in zip(lines, score(model, streams, attention=True), strict=True):
        words = np.array(line.split("WordScores= ")[1].split(), float)
        np.testing.assert_allclose(found.word_scores, words, rtol=0, atol=1.5e-5)
        if line.count("|||") == 2:
            rows = [row.split(",") for row in line.split(" ||| ")[1].split()]
            np.testing.assert_allclose(found.attention, np.array(rows, float), rtol=0, atol=2e-6)


# ---------------------------------------------------------------- Marian's numbers and files


@pytest.mark.parametrize("name", VOCABS)
@pytest.mark.sampled("nematus", "lm")
def test_scores_and_attention_are_marians(name: str) -> None:
    assert_marians_scores(load_model(DATA / f"{name}.npz"), streams_of(name), DATA / f"{name}.txt")


@pytest.mark.parametrize("name", VOCABS)
def test_a_model_is_saved_byte_for_byte_as_marian_saved_it(name: str, tmp_path: Path) -> None:
    model = load_model(DATA / f"{name}.npz")
    save_model(model, tmp_path / "model.npz")
    assert (tmp_path / "model.npz").read_bytes() == (DATA / f"{name}.npz").read_bytes()
    save_model(model, tmp_path / "model.bin")
    again = load_model(tmp_path / "model.bin")
    assert again.key == model.key
    chex.assert_trees_all_equal(again.params, model.params, strict=True)


def test_a_file_of_nematus_itself_takes_its_options_from_the_call(tmp_path: Path) -> None:
    items = read_items(DATA / "nematus.npz")
    del items["special:model.yml"]
    items["ff_logit_W"] = np.ascontiguousarray(items.pop("decoder_ff_logit_l2_Wt").T)
    rows = {name: array[0] for name, array in items.items() if array.shape[0] == 1}
    path = tmp_path / "old.npz"
    np.savez(path, **{**items, **rows, "uidx": np.int64(20), "history_errs": np.array([3.5, 2.5])})
    model = load_model(path, options=NEMATUS)
    assert_marians_scores(model, streams_of("nematus"), DATA / "nematus-old.txt")
    with pytest.raises(mgraph.ModelFileError, match="old.npz: no item special:model.yml"):
        load_model(path)
    assert load_model(DATA / "amun.npz", options=NEMATUS).type == "amun", "a file knows its own options"


def test_a_file_of_nematus_type_may_have_the_names_of_graphs(tmp_path: Path) -> None:
    model = load_model(DATA / "nematus.npz")
    model.new_graph().save(tmp_path / "model.npz")
    assert "decoder_cell1_U" in read_items(tmp_path / "model.npz")
    assert load_model(tmp_path / "model.npz").key == model.key


@pytest.mark.parametrize("tied", [False, True])
def test_no_two_parameters_have_one_name(tied: bool) -> None:
    options = replace(NEMATUS, enc_cell_depth=4, dec_cell_base_depth=8, tied_embeddings_all=tied)
    for names in (amun_names(options), nematus_names(options)):
        assert len(set(names.values())) == len(names)
        assert ("Wemb" in names) is not tied


@pytest.mark.parametrize(
    "options, problem",
    [
        ({"enc_depth": 2}, "enc-depth: type amun allows only 1, got 2"),
        ({"dec_cell": "lstm"}, "dec-cell: type amun allows only 'gru', got 'lstm'"),
        ({"type": "nematus"}, "enc-cell: type nematus allows only 'gru-nematus', got 'gru'"),
        (
            {"type": "nematus", "enc_type": "alternating"},
            "enc-type: type nematus allows only 'bidirectional', got 'alternating'",
        ),
    ],
)
def test_what_marians_type_does_not_allow_is_refused(options: dict[str, object], problem: str) -> None:
    plain = ModelOptions(type="amun", dim_vocabs=(5, 6), dim_emb=3, dim_rnn=4)
    with pytest.raises(UnsupportedOptionError, match=problem):
        create_model(replace(plain, **options))


# ---------------------------------------------------------------- options as text


@pytest.mark.parametrize("name", VOCABS)
def test_options_are_written_as_marian_writes_them(name: str) -> None:
    options = load_model(DATA / f"{name}.npz").options
    assert yaml_of(options) == options.text


def test_a_model_that_was_made_or_changed_is_saved_with_the_options_it_has(tmp_path: Path) -> None:
    model = load_model(DATA / "amun.npz")
    changed = Model(replace(model.options, type="s2s", separator_symbol="a: b"), model.params)
    save_model(changed, tmp_path / "model.npz")
    saved = load_model(tmp_path / "model.npz")
    assert (saved.type, saved.options.separator_symbol) == ("s2s", "a: b")
    made = create_model(ModelOptions(type="lm", dim_vocabs=(7,), dim_emb=3, dim_rnn=4))
    save_model(made, tmp_path / "made.bin")
    assert load_model(tmp_path / "made.bin").key == made.key


# ---------------------------------------------------------------- steps


@pytest.mark.thorough
def test_steps_give_the_attention_and_the_shortlist_of_the_whole_model() -> None:
    model = load_model(DATA / "multi-s2s.npz")
    rng = np.random.default_rng(1)
    batch, beam, time, lengths = 2, 2, 3, (4, 3)
    mask = [np.ones((batch, lengths[0]), np.float32), np.ones((batch, lengths[1]), np.float32)]
    mask[0][1, 3:] = 0
    sources = [
        Source(rng.integers(2, size, m.shape).astype(np.int32), m)
        for size, m in zip(model.dim_vocabs, mask, strict=False)
    ]
    words = rng.integers(2, model.dim_vocabs[-1], (batch * beam, time)).astype(np.int32)
    size = model.dim_vocabs[-1]
    shortlist = rng.permuted(np.tile(np.arange(size, dtype=np.int32), (batch, 1)), axis=1)
    stepper = model.stepper(batch, beam, lengths, (time,), attention=True, candidates=size)
    encoded = jax.jit(model.encoder(batch, lengths))(model.params, sources)
    state = stepper.start(model.params, encoded)
    step = jax.jit(stepper.step)
    attentions, logits = [], []
    for t in range(time):
        found, state, attention, _ = step(
            model.params, encoded, state, words[:, t - 1], np.int32(t), shortlist
        )
        attentions.append(attention)
        place = shortlist.repeat(beam, 0) == words[:, t : t + 1]
        logits.append(np.asarray(jax.nn.log_softmax(found))[place])
    repeated = [Source(s.ids.repeat(beam, 0), s.mask.repeat(beam, 0)) for s in sources]
    scorer = jax.jit(model.scorer(batch * beam, lengths, time, attention=True))
    log_probs, whole = scorer(model.params, repeated, Source(words, np.ones(words.shape, np.float32)))
    np.testing.assert_allclose(np.stack(attentions, 1), whole, atol=2e-6)
    np.testing.assert_allclose(np.stack(logits, 1), log_probs, atol=1e-5)
    np.testing.assert_allclose(whole.sum(-1), 1, atol=1e-6)
    assert not whole[2:, :, 3:].any(), "no attention to padding"


def test_attention_is_computed_where_it_is_asked_for_only() -> None:
    model = create_model(ModelOptions(type="s2s", dim_vocabs=(7, 9), dim_emb=3, dim_rnn=4))

    def results(attention: bool) -> int:
        graph = ExpressionGraph(inference=True)
        ids = graph.input("ids", (2, 5), Type.int32)
        encoded = model.encode([Source(ids, graph.input("mask", (2, 5)))])
        model.decode(encoded, ids, attention=attention)
        heads = [head for head, *_ in graph.tape.structure().rows if isinstance(head, ScanNodeOp)]
        return len(heads[-1].body.results)

    assert results(attention=True) == results(attention=False) + 1


def test_a_language_model_starts_from_zeros_and_has_no_attention() -> None:
    model = load_model(DATA / "lm.npz")
    assert model.sources == 0
    stepper = model.stepper(2, 3, (), (4,))
    encoded = model.encoder(2, ())(model.params, [])
    assert encoded == {}
    start = stepper.start(model.params, encoded)
    assert {name: value.shape for name, value in start.items()} == dict.fromkeys(
        ("l1_0", "l1_1", "l2_0", "l2_1"), (6, 5)
    )
    assert not any(np.any(value) for value in start.values())
    with pytest.raises(mgraph.ArgumentError, match="of type lm reads no source, so it has no attention"):
        model.stepper(2, 3, (), (4,), attention=True)


# ---------------------------------------------------------------- dropout and gradients

DEEP = ModelOptions(
    type="s2s",
    dim_vocabs=(7, 9),
    dim_emb=3,
    dim_rnn=5,
    enc_depth=2,
    dec_depth=2,
    dec_cell_base_depth=3,
    skip=True,
)


def training_logits(model: Model, graph: ExpressionGraph) -> mgraph.Node:
    """The logits of two sentences of 6 words for sources of 7, recorded in a graph."""

    def ids(width: int, vocabulary: int) -> mgraph.Node:
        values = np.arange(2 * width).reshape(2, width) % vocabulary
        return graph.constant(values.shape, mgraph.inits.from_tensor(values), Type.int32)

    return model.logits(model.encode([Source(ids(7, 7), graph.ones((2, 7)))]), ids(6, 9))


def test_dropout_masks_are_drawn_where_marian_draws_them(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: Counter[tuple[float, tuple[int, ...]]] = Counter()
    draw = ExpressionGraph.dropout_mask

    def record(graph: ExpressionGraph, p: float, shape: tuple[int, ...], type: object = None) -> mgraph.Node:
        drawn[p, tuple(shape)] += 1
        return draw(graph, p, shape, type)

    monkeypatch.setattr(ExpressionGraph, "dropout_mask", record)
    model = Model(DEEP, create_model(DEEP).params, Dropouts(rnn=0.25, src=0.5, trg=0.75))
    training_logits(model, ExpressionGraph(inference=True))
    assert not drawn
    training_logits(model, ExpressionGraph())
    word, state, context = (1, DEEP.dim_emb), (1, DEEP.dim_rnn), (1, 2 * DEEP.dim_rnn)
    encoder = 2 * [word, state, state, state]
    attention = [context, state]
    decoder = [word, state, context, state, state, state, state]
    assert drawn == Counter((0.25, shape) for shape in encoder + attention + decoder) + Counter(
        [(0.5, (7, 1, 1)), (0.75, (6, 1, 1))]
    )


@pytest.mark.parametrize("place", ["rnn", "src", "trg"])
@pytest.mark.sampled("src", "trg")
def test_dropout_changes_training_and_nothing_else(place: str) -> None:
    shallow = replace(DEEP, enc_depth=1, dec_depth=1)
    params = create_model(shallow).params

    def logits(inference: bool, **probabilities: float) -> np.ndarray:
        model = Model(shallow, params, Dropouts(**probabilities))
        graph = model.new_graph(inference)
        node = training_logits(model, graph)
        graph.forward()
        return np.asarray(node.val())

    plain = logits(False)
    assert np.abs(logits(False, **{place: 0.5}) - plain).max() > 1e-3
    np.testing.assert_array_equal(logits(True, **{place: 0.5}), plain)


@pytest.mark.parametrize("name", ["shared-multi-s2s", "lm"])
@pytest.mark.thorough
def test_the_rules_give_the_gradients_that_jax_gives(name: str) -> None:
    report = check_model_gradients(load_model(DATA / f"{name}.npz"), streams_of(name)[:2], float32=False)
    assert report.ok, report


def test_scores_of_several_sources_do_not_depend_on_the_batch() -> None:
    model, streams = load_model(DATA / "multi-s2s.npz"), streams_of("multi-s2s")
    together = score(model, streams, attention=True)
    (alone,) = score(model, streams[2:3], attention=True)
    np.testing.assert_allclose(alone.word_scores, together[2].word_scores, atol=1e-6)
    np.testing.assert_allclose(alone.attention, together[2].attention, atol=1e-6)
