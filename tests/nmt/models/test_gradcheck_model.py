"""The gradient of a whole model: right rules pass, wrong ones are found however small their effect is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ArgumentError, ExpressionGraph, GradientError, rules
from mgraph.gradcheck import LossReport
from mgraph.ops.attention import DotProductAttentionNodeOp
from mgraph.ops.cells import GRUFastNodeOp
from mgraph.ops.norm import LayerNormalizationOp
from mgraph.ops.product import AffineNodeOp
from mgraph.ops.softmax import CrossEntropyNodeOp
from nmt.files import create_model, load_model
from nmt.models import Model
from nmt.settings.model_options import ModelOptions
from nmt.text.batches import Batch, pad
from nmt.text.parallel import ParallelTextError
from nmt.text.sentences import LineEncoder
from nmt.text.vocabs.loading import load_vocabs
from nmt.training.gradients import check_model_gradients, check_model_layers, read_samples
from nmt.training.learning.objective import cross_entropy_loss
from tests.helpers import places
from tests.helpers.places import SHIPPED

DATA = places.DATA / "numbers"
VOCAB = str(SHIPPED / "vocab.spm")
TEXTS = [str(DATA / name) for name in ("input.en", "input.de")]
EUROPARL = {
    "s2s-gru": ["v.de.yml", "v.en.yml"],
    "transformer-joint": ["v.joint.yml", "v.joint.yml"],
}
TRANSFORMER = ModelOptions(
    type="transformer",
    dim_vocabs=(11, 13),
    dim_emb=8,
    enc_depth=1,
    dec_depth=1,
    transformer_heads=2,
    transformer_dim_ffn=6,
)
S2S = ModelOptions(type="s2s", dim_vocabs=(11, 13), dim_emb=3, dim_rnn=4)
PAIRS = [([3, 4, 9, 0], [5, 6, 0]), ([2, 0], [7, 12, 3, 8, 0]), ([5, 5, 0], [4, 0])]


def batch_of(pairs: list) -> Batch:
    return pad(list(zip(*pairs, strict=True)), target=True)


def varied(options: ModelOptions) -> Model:
    """A small model whose biases and scales are not all the same."""
    created = create_model(options, seed=4)
    rng = np.random.default_rng(0)
    changed = {n: p + 0.2 * rng.standard_normal(p.shape, np.float32) for n, p in created.params.items()}
    return type(created)(created.options, changed)


@pytest.fixture(scope="module")
def model() -> Model:
    return varied(TRANSFORMER)


def samples_of(model: Model, vocabs: list[str], texts: list[str], lines: int) -> list:
    encoder = LineEncoder(load_vocabs(vocabs, model.dim_vocabs), 100, False)
    with open(texts[0], "rb") as source, open(texts[1], "rb") as target:
        return read_samples([source, target], encoder, lines)


def verdicts(report: LossReport) -> dict[str, str]:
    return {row.name: row.verdict for row in report.checks}


# ---------------------------------------------------------------- right rules


@pytest.mark.thorough
def test_the_shipped_model() -> None:
    model = load_model(SHIPPED / "model.npz")
    report = check_model_gradients(model, samples_of(model, [VOCAB, VOCAB], TEXTS, 8))
    assert report.ok and report.facts["sentences"] == 8
    assert {row.name for row in report.checks} == set(model.params)
    scores = [float(line) for line in (DATA / "scores.txt").read_text().split()[:8]]
    assert report.facts["loss"] == pytest.approx(-sum(scores), abs=8e-3), "the loss is what Marian says it is"
    zero = {row.name for row in report.checks if row.zero}
    assert zero == {name for name in model.params if name.endswith("_bk")}, "softmax is invariant to these"
    assert report.worst("float64").differences["float64"] < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", EUROPARL)
def test_models_of_europarl(fixtures: Path, name: str) -> None:
    model = load_model(fixtures / "marian" / name / "model.npz")
    vocabs = [str(fixtures / "data" / vocab) for vocab in EUROPARL[name]]
    texts = [str(fixtures / "data" / text) for text in ("test.de", "test.en")]
    report = check_model_gradients(model, samples_of(model, vocabs, texts, 8), label_smoothing=0.1)
    assert report.ok and "rounding" not in verdicts(report).values()
    assert report.worst("float64").differences["float64"] < 1e-12
    assert report.worst("float32").differences["float32"] < 2e-6


@pytest.mark.thorough
def test_a_small_recurrent_model() -> None:
    assert check_model_gradients(varied(S2S), PAIRS, label_smoothing=0.1).ok


@pytest.mark.parametrize("kind", ["lm", "shared-multi-transformer"])
@pytest.mark.sampled("lm")
def test_models_of_no_source_and_of_two(kind: str) -> None:
    model = varied(replace(TRANSFORMER, type=kind, dim_rnn=3, dim_vocabs=(11,) * (1 if kind == "lm" else 3)))
    sources = [[3, 4, 9, 0], [2, 0]][: model.sources]
    report = check_model_gradients(model, [(*sources, [5, 6, 0])], float32=False)
    assert report.ok and {row.name for row in report.checks} == set(model.params)
    graph = model.new_graph()
    loss = cross_entropy_loss(graph, model, batch_of([(*sources, [5, 6, 0])]))
    graph.forward()
    sums = {"words": 3, "sentences": 1, "label_smoothing": 0.0}
    assert report.facts == {**sums, "loss": pytest.approx(loss.scalar(), rel=1e-5)}


def test_the_loss_is_a_node_that_differences_can_judge_too() -> None:
    small = varied(replace(TRANSFORMER, dim_emb=4, transformer_dim_ffn=3))
    graph = small.new_graph(inference=False)
    loss = cross_entropy_loss(graph, small, batch_of(PAIRS[:1]), 0.1)
    chosen = {"encoder_Wemb", "encoder_l1_self_bq", "decoder_l1_context_Wo_ln_scale"}
    for name in small.params.keys() - chosen:
        graph.params()[name].set_trainable(False)
    report = mgraph.check_gradients(loss)
    assert report.ok, report
    assert {check.name for check in report.checks} == chosen


@pytest.mark.slow
@pytest.mark.optimized
@pytest.mark.parametrize("factor", [4, 12])
@pytest.mark.sampled("4")
def test_saturated_attention_is_no_false_alarm(model: Model, factor: float) -> None:
    """Where softmax is close to 0 or 1, the terms of its gradient nearly cancel."""
    params = {n: p * (factor if n.endswith(("_Wq", "_Wk")) else 1) for n, p in model.params.items()}
    report = check_model_gradients(type(model)(model.options, params), PAIRS[:1])
    assert report.ok and "rounding" in verdicts(report).values()
    assert max(row.differences["float32"] for row in report.checks) > 1e-5, (
        "float32 alone would raise the alarm"
    )


# ---------------------------------------------------------------- wrong rules


def plant(monkeypatch: pytest.MonkeyPatch, cls: Any, change: Callable[..., Any]) -> None:
    """Make the rule of ``cls`` return ``change(gradients, adj, val, *values)``."""
    right = cls.backward_ops

    def wrong(self: Any, adj: Any, val: Any, *values: Any) -> Any:
        return change(right(self, adj, val, *values), adj, val, *values)

    monkeypatch.setattr(cls, "backward_ops", wrong)
    monkeypatch.setattr(rules, "_VJPS", {})


def first(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Change only the gradient with respect to the first child."""
    return lambda gradients, *_: (change(gradients[0]), *gradients[1:])


def small_ones(factor: float, below: float) -> Callable[[Any], Any]:
    return lambda g: jnp.where(jnp.abs(g) < below, factor * g, g)


def without_the_sum(gradients: Any, adj: Any, _: Any, query: Any, keys: Any, values: Any, mask: Any) -> Any:
    """The gradients of attention; that of the queries has only one of the two terms in softmax's rule."""
    scale = query.shape[-1] ** -0.5
    weights = jax.nn.softmax(scale * (query @ keys.mT) + mask)
    return scale * (weights * (adj @ values.mT)) @ keys, *gradients[1:]


FAULTS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "off by a hundred-millionth": (CrossEntropyNodeOp, first(lambda g: g * (1 + 1e-8))),
    "a term left out": (DotProductAttentionNodeOp, without_the_sum),
    "small gradients only, by a percent": (DotProductAttentionNodeOp, first(small_ones(1.01, 1e-3))),
    "a gradient that is zero": (DotProductAttentionNodeOp, lambda g, *_: (g[0], g[1] + 1e-8, *g[2:])),
    "bias without a gradient": (AffineNodeOp, lambda g, *_: (g[0], g[1], None)),
    "not a number": (AffineNodeOp, first(lambda g: g.at[..., 0, 0].set(jnp.nan))),
    "for one scale only": (LayerNormalizationOp, lambda g, *_: (g[0], g[1].at[0].multiply(1.001), *g[2:])),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sampled("off by a hundred-millionth")
def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch, model: Model, fault: str) -> None:
    plant(monkeypatch, *FAULTS[fault])
    report = check_model_gradients(model, PAIRS, float32=False)
    found = {name for name, verdict in verdicts(report).items() if verdict == "WRONG"}
    assert found and not report.ok and report.checks[0].name in found
    if fault == "a gradient that is zero":
        assert {name for name in found if name.endswith("_bk")}, "noise of the right size is no excuse"
    if fault == "bias without a gradient":
        assert {"decoder_ff_logit_out_b", "encoder_l1_ffn_b1"} <= found
        assert report.worst("float64").differences["float64"] == 1
    if fault == "for one scale only":
        assert found == {name for name in model.params if name.endswith("_ln_scale")}


@pytest.mark.thorough
def test_a_rule_that_loses_digits_in_float32_is_unstable(
    monkeypatch: pytest.MonkeyPatch, model: Model
) -> None:
    def cut(g: Any) -> Any:
        return g.astype(jnp.bfloat16).astype(g.dtype) if g.dtype == jnp.float32 else g

    plant(monkeypatch, DotProductAttentionNodeOp, first(cut))
    report = check_model_gradients(model, PAIRS)
    assert not report.ok and {"UNSTABLE"} == {row.verdict for row in report.checks if not row.ok}
    assert report.worst("float64").differences["float64"] < 1e-12
    assert check_model_gradients(model, PAIRS, float32=False).ok, "float64 has all its digits"


@pytest.mark.thorough
def test_a_small_gradient_is_not_judged_by_a_large_one(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    """Keys that are almost equal make almost no difference to queries, whose gradient is a millionth."""
    params = {n: p * (1e-6 if n.endswith(("_Wk", "_bk")) else 1) for n, p in model.params.items()}
    faint = type(model)(model.options, params)
    sizes = {row.name: row.gradient for row in check_model_gradients(faint, PAIRS, float32=False).checks}
    assert sizes["encoder_l1_self_Wq"] < 1e-6 * max(sizes.values())
    plant(monkeypatch, DotProductAttentionNodeOp, first(small_ones(1 + 1e-6, jnp.inf)))
    found = verdicts(check_model_gradients(faint, PAIRS, float32=False))
    assert found["encoder_l1_self_Wq"] == found["decoder_l1_context_bq"] == "WRONG"


def test_gradients_that_are_not_finite_are_no_zeros(model: Model) -> None:
    broken = model.params | {"encoder_l1_self_Wq": np.full((8, 8), np.nan, np.float32)}
    report = check_model_gradients(type(model)(model.options, broken), PAIRS, float32=False)
    assert {row.verdict for row in report.checks} == {"WRONG"}
    assert report.as_json()["parameters"][0]["float64"] is None


def test_marians_layer_norm_is_found_wrong(model: Model) -> None:
    report = check_model_gradients(model, PAIRS, float32=False, rule_set="marian")
    assert not report.ok and report.checks[0].differences["float64"] > 1e-3
    assert (report.facts["sentences"], report.facts["words"]) == (3, 10)
    assert ", 3 sentences, 10 target words, " in report.title
    assert verdicts(report)["decoder_ff_logit_out_b"] == "ok", "no layer norm lies above the output layer"


def test_a_rule_that_returns_no_gradient_is_named(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    plant(monkeypatch, DotProductAttentionNodeOp, first(lambda g: g[..., :1]))
    with pytest.raises(
        GradientError, match="DotProductAttentionNodeOp.backward_ops: the gradient of child 0"
    ):
        check_model_gradients(model, PAIRS)


# ---------------------------------------------------------------- operator by operator


@pytest.mark.slow
def test_marians_formulas_depart_in_exactly_the_layer_norms(model: Model) -> None:
    report = check_model_layers(model, PAIRS, float32=False, rule_set="marian")
    norms = {node.key for node in report.nodes if node.type == "layer_normalization"}
    assert {node.key for node in report.departures} == norms and len(norms) == 5
    assert [node.layer for node in report.departures] == [
        "decoder_l1_ffn", "decoder_l1_context", "decoder_l1_self", "encoder_l1_ffn", "encoder_l1_self",
    ]  # fmt: skip
    whole = check_model_gradients(model, PAIRS, float32=False, rule_set="marian")
    assert {c.name for c in report.parameters.checks if not c.ok} == {
        c.name for c in whole.checks if not c.ok
    }
    assert report.loss == pytest.approx(whole.facts["loss"], rel=1e-12)
    assert report.way("encoder_Wemb")[-1] in {node.layer for node in report.departures}
    above = report.way("decoder_l1_context_Wo_ln_scale")
    assert above == ("decoder_l1_context", "decoder_l1_ffn"), "by its scale the norm of its own is right"


@pytest.mark.slow
def test_a_wrong_rule_in_the_body_of_a_recurrent_models_loop_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, GRUFastNodeOp, first(lambda g: g * 1.001))
    model = varied(replace(S2S, type="lm", dim_vocabs=(11,)))
    report = check_model_layers(model, [([5, 6, 0],), ([4, 0],)], float32=False)
    assert {node.type for node in report.departures} == {"GRU-ops"}
    assert all(node.loop for node in report.departures)
    assert report.departures[0].children[0].likeness == "1.001 times what was expected"


@pytest.mark.slow
@pytest.mark.parametrize("name", EUROPARL)
def test_operators_of_models_of_europarl(fixtures: Path, name: str) -> None:
    model = load_model(fixtures / "marian" / name / "model.npz")
    vocabs = [str(fixtures / "data" / vocab) for vocab in EUROPARL[name]]
    texts = [str(fixtures / "data" / text) for text in ("test.de", "test.en")]
    report = check_model_layers(model, samples_of(model, vocabs, texts, 4), label_smoothing=0.1)
    report.raise_if_wrong()
    assert {row.name for row in report.parameters.checks} == set(model.params)
    assert max(layer.worst for layer in report.layers) < 1e-12
    assert max(layer.value for layer in report.layers) < 1e-5


# ---------------------------------------------------------------- the loss and its texts


def test_padding_counts_nothing_in_the_loss(model: Model) -> None:
    def loss(pairs: list) -> tuple[float, int]:
        batch, graph = batch_of(pairs), model.new_graph()
        node = cross_entropy_loss(graph, model, batch)
        graph.forward()
        assert node.shape == (1,)
        return node.scalar(), batch.words

    alone = [loss([pair]) for pair in PAIRS]
    together, words = loss(PAIRS)
    assert together == pytest.approx(sum(value for value, _ in alone), rel=1e-5)
    assert words == sum(count for _, count in alone) == 10


@pytest.mark.parametrize("kind", ["float64", "bfloat16"])
def test_the_loss_is_recorded_in_the_type_of_the_graph(model: Model, kind: str) -> None:
    graph = ExpressionGraph()
    graph.set_default_element_type(kind)
    loss = cross_entropy_loss(graph, model, batch_of(PAIRS), 0.1)
    assert str(loss.value_type) == ("float64" if kind == "float64" else "float32")


def test_arguments_that_cannot_be(model: Model) -> None:
    with pytest.raises(ArgumentError, match="at least one sample"):
        check_model_gradients(model, [])
    with pytest.raises(ArgumentError, match="^expected a label smoothing from 0 to 1, got 2"):
        check_model_gradients(model, PAIRS, label_smoothing=2)
    with pytest.raises(ArgumentError, match="label_smoothing must be a number, got 'a' of type str"):
        check_model_gradients(model, PAIRS, label_smoothing="a")
    with pytest.raises(
        ArgumentError, match="expected a model, as nmt.load_model returns it, got 'model.npz'"
    ):
        check_model_gradients("model.npz", PAIRS)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="has 1 streams, expected 2"):
        check_model_gradients(model, [*PAIRS, ([5, 0],)])
    with pytest.raises(ArgumentError, match="sentence 0: expected ids in its source, got 'a'"):
        check_model_gradients(model, ["ab"])
    with pytest.raises(ArgumentError, match="sentence 0: expected ids for each of source, target, got 5"):
        check_model_gradients(model, [5])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="sentence 0: expected ids in its target, got 5"):
        check_model_gradients(model, [([4, 0], 5)])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="expected a list of sentences, got 5"):
        check_model_gradients(model, 5)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="sentence 0 has id 13 in its target, of which .* 13 ids"):
        check_model_layers(model, [([5, 0], [13, 0])])


def test_lines_that_cannot_be_taken_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    vocabs = load_vocabs([VOCAB, VOCAB], load_model(SHIPPED / "model.npz").dim_vocabs)
    encoder = LineEncoder(vocabs, 9, False)
    source = ["six", "", "one " * 9, "seven", "eight"]
    target = ["sechs", "null", "eins", "sieben", " "]
    with caplog.at_level(logging.WARNING):
        samples = read_samples([source, target], encoder, 3)
        assert read_samples([source, target], encoder, 1) == samples[:1]
    assert samples == [
        (vocabs[0].encode(s), vocabs[1].encode(t)) for s, t in (("six", "sechs"), ("seven", "sieben"))
    ]
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [
        f"line {n} is left out" for n in (2, 3, 5)
    ]
    with pytest.raises(ParallelTextError, match="the target ends after 2 lines"):
        read_samples([source, target[:2]], encoder, 3)
    for texts in ([], []), (["", "six"], ["null", ""]):
        with pytest.raises(ArgumentError, match="no line has words in each text and at most 9"):
            read_samples(texts, encoder, 3)
