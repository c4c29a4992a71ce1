"""Bridges: from a plain JAX function to a graph and back; a translation model in ONNX, run without JAX."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import mgraph
from mgraph import ExpressionGraph, inits
from mgraph.bridges import export_onnx, from_jax, import_onnx
from nmt import Translator, numbers
from nmt.files.export import OnnxModel, export_model


def network(p, x):
    """Ordinary JAX; it knows nothing of graphs."""
    hidden = jax.nn.gelu(x @ p["W1"] + p["b1"], approximate=False)
    return jax.nn.softmax(hidden @ p["W2"])


# Each primitive becomes the operator with the same value and gradient.
graph = ExpressionGraph()
random = np.random.default_rng(0)
p = {
    name: graph.param(name, shape, inits.from_tensor(random.standard_normal(shape)))
    for name, shape in {"W1": (3, 5), "b1": (5,), "W2": (5, 2)}.items()
}
x = graph.constant((4, 3), inits.from_tensor(random.standard_normal((4, 3))))
y = from_jax(graph, network, p, x)
loss = mgraph.sum(mgraph.flatten(mgraph.square(y)))
graph.backprop()
print("operators:", " ".join(node.type for node in graph.tape.nodes if node.children))
plain = jax.grad(lambda p: jnp.sum(network(p, x.val()) ** 2))({k: n.val() for k, n in p.items()})
for name, node in p.items():
    np.testing.assert_allclose(node.grad(), plain[name], rtol=1e-5, atol=1e-6)
assert mgraph.check_gradients(loss).ok

# And back: the pure function of a graph is ordinary JAX.
again = graph.function(y, {"x": x}).pure
np.testing.assert_allclose(again(graph.params().vals(), [x.val()]), y.val(), rtol=1e-6)

with tempfile.TemporaryDirectory() as folder:
    # To a file that other runtimes run, and back to a graph. The batch size stays open.
    writing = ExpressionGraph()
    rows = writing.input("x", (1999, 3))
    weights = {k: writing.param(k, n.shape, inits.from_tensor(n.val())) for k, n in p.items()}
    path = Path(folder) / "network.onnx"
    written = from_jax(writing, network, weights, rows)
    export_onnx(writing, {"y": written}, [rows], path, axes={"batch": 1999})
    reading = ExpressionGraph()
    read = import_onnx(reading, path, reading.constant((4, 3), inits.from_tensor(x.val())))["y"]
    reading.forward()
    np.testing.assert_allclose(read.val(), y.val(), rtol=1e-5)

    # A translation model that Marian trained, as an encoder and a decoder for onnxruntime.
    model, vocab = (str(numbers.model_dir() / name) for name in ("model.npz", "vocab.spm"))
    translator = Translator(model, [vocab, vocab], beam_size=1)
    export_model(translator.models[0], folder)
    exported = OnnxModel(folder)
    line = "seventy-two thousand four hundred eleven"
    source = translator.encoder.sentence(0, [line.encode()]).sequences[0]
    (words,) = exported.greedy([source], translator.target_vocab.eos_id)
    translation = translator.target_vocab.decode(words)
    print(f"{line} -> {translation}")
    assert [translation] == translator.translate([line])
