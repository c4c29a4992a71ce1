"""A user's script. Type checkers report the lines marked ``# wrong`` and no others."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import jax
import jax.numpy as jnp
import numpy as np

import mgraph
from mgraph import ExpressionGraph, NaryNodeOp, Node, UnaryNodeOp, inits
from nmt import Scorer, Trainer, Translation, Translator


class Scale(UnaryNodeOp):
    type = "scale"
    factor: float = 2.0
    runtime_fields = ("factor",)

    def forward_ops(self, x: jax.Array) -> jax.Array:
        return x * self.factor

    def backward_ops(self, adj: jax.Array, val: jax.Array, x: jax.Array) -> tuple[jax.Array]:
        return (adj * self.factor,)


class Distance(NaryNodeOp):
    type = "distance"

    def forward_ops(self, x, y):
        return jnp.abs(x - y)

    def backward_ops(self, adj, val, x, y):
        return adj * jnp.sign(x - y), None


def misnamed() -> None:
    class Misnamed(UnaryNodeOp):
        type = 3  # wrong

        def forward_ops(self, x: jax.Array) -> jax.Array:
            return x * self.factor  # wrong


def right() -> float:
    graph = ExpressionGraph(seed=3)
    x = graph.param("x", (2, 3), inits.glorot_uniform())
    y = graph.constant([2, 3], inits.from_value(3), "float32")
    scaled = Scale(x, factor=0.5)
    assert_type(scaled, Scale)
    assert_type(scaled.factor, float)
    z = scaled * y + 2 * mgraph.sin(x) - y / 3
    assert_type(z, Node)
    assert_type(y[0:1, 0], Node)
    assert_type(y @ mgraph.transpose(y), Node)
    assert_type(mgraph.maximum(x < y, 0.5), Node)
    assert_type(mgraph.plus([y, y]), Node)
    top = mgraph.sum(mgraph.sum(Distance(z, y), axis=0), axis=1)
    graph.forward()
    assert_type(top.val(), jax.Array)
    graph.backward()
    assert_type(x.grad(), jax.Array)
    assert_type(x.shape, mgraph.NodeShape)
    function = graph.function(top, {"y": y})
    assert_type(function(y=jnp.ones((2, 3))), jax.Array)
    assert_type(graph.function([top, z]).pure(graph.params().vals()), tuple[jax.Array, ...])
    numbers = np.arange(2)
    assert_type(graph.indices(numbers), mgraph.ConstantNode)
    assert_type(mgraph.rows(y, numbers), Node)
    return top.scalar() + float(jnp.sum(x.grad()))


def translate(folder: Path) -> list[str]:
    vocab = folder / "vocab.spm"
    translator = Translator(folder / "model.npz", [vocab, vocab], beam_size=4, normalize=0.6, devices=[0])
    assert_type(translator.translate(["one"]), list[str])
    assert_type(translator.translate(["one"], n_best=2), list[Translation])
    assert_type(translator.translate(["one"], return_scores=True), list[Translation])
    assert_type(translator.options.beam_size, int)
    assert_type(Scorer(str(folder / "model.npz"), [vocab], normalize=True).score(["a"], ["b"]), list[float])
    Trainer(
        model="m.npz", train_sets=["a", "b"], learn_rate=1e-4, after="10e", save_freq=100, enc_cell="ssru"
    )
    Translator.from_config(folder / "decoder.yml", vocabs=[vocab, vocab], models="other.npz")
    return Translator.from_dir(folder, beam_size=1).translate(["one"])


def wrong(graph: ExpressionGraph, x: Node, translator: Translator) -> None:
    graph.forwrad()  # wrong
    graph.param("x", "2x3")  # wrong
    graph.constant((2, 3), tpye="float32")  # wrong
    mgraph.sinn(x)  # wrong
    mgraph.maximum(x, [1.0])  # wrong
    x.vall()  # wrong
    _ = x.trainabel  # wrong
    _ = x + [1.0]  # wrong
    _ = x @ 3  # wrong
    _ = x["a"]  # wrong
    for _ in x:  # wrong
        pass
    if x:  # wrong for pyright
        pass
    _ = x.val().shpae  # wrong
    translator.translat(["one"])  # wrong
    translator.translate(["one"], nbest=3)  # wrong
    Translator("model.npz", ["v", "v"], beam_sise=4)  # wrong
    Translator("model.npz", ["v", "v"], beam_size="many")  # wrong
    Translator.from_dir("folder", beam_sise=4)  # wrong
    Scorer("model.npz", ["v", "v"], normalise=True)  # wrong
    Trainer(model="m.npz", learning_rate=1e-4)  # wrong
    Trainer(model="m.npz", enc_cell="sssru")  # wrong
