"""The pictures of the README: a graph, a gradient report, an attention, curves of a training.

``python examples/15_readme_pictures.py --folder docs/pictures`` makes them again, in a minute or two.
"""

import argparse
import tempfile
from html import escape
from pathlib import Path

import jax
import matplotlib

import mgraph
from mgraph import ExpressionGraph, UnaryNodeOp, check_gradients, inits
from nmt import Curves, Trainer, Translator, numbers
from nmt.numbers import corpus

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--folder", type=Path, help="where to put the pictures (default: a temporary folder)")
arguments.add_argument("--after", default="600u", help="how long to train for the curves (default: 600u)")
given = arguments.parse_args()
work = Path(tempfile.mkdtemp())
folder = given.folder or work / "pictures"
folder.mkdir(parents=True, exist_ok=True)
matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "mgraph"  # the same file each time

# A graph: two layers with residual connections, and a loss.
graph = ExpressionGraph()
x = graph.constant((4, 8), inits.from_value(0.5))
for layer in ("encoder_l1", "encoder_l2"):
    w, b = graph.param(f"{layer}_W", (8, 8)), graph.param(f"{layer}_b", (1, 8), inits.zeros())
    x = mgraph.tanh(mgraph.affine(x, w, b)) + x
logits = mgraph.dot(x, graph.param("output_W", (8, 3))).set_name("logits")
mgraph.mean(mgraph.cross_entropy(logits, graph.indices([0, 1, 2, 0])), 0)
graph.draw(folder / "graph.svg")


# A gradient report: a rule with a typing error, and the right one.
class Swish(UnaryNodeOp):
    type = "my_swish"

    def forward_ops(self, x):
        return x * jax.nn.sigmoid(x)

    def backward_ops(self, adj, val, x):
        s = jax.nn.sigmoid(x)
        return (adj * (s + x * s * (1 - x)),)


class Right(Swish):
    def backward_ops(self, adj, val, x):
        s = jax.nn.sigmoid(x)
        return (adj * (s + x * s * (1 - s)),)


def printed(text: str) -> str:
    """Lines of text as a picture; verdicts are coloured."""
    lines, step, height = text.splitlines(), 7.83, 20
    width, rows = round(max(map(len, lines)) * step + 32), []
    for i, line in enumerate(lines):
        spaced = line.replace(" ", "\N{NO-BREAK SPACE}")
        color = "#ff9d7d" if "WRONG" in line else "#8fd694" if line.endswith(" ok") else "#e6e9ee"
        rows.append(f'<text x="16" y="{height * (i + 1) + 8}" fill="{color}">{escape(spaced)}</text>')
    bottom = height * len(lines) + 24
    size = f'width="{width}" height="{bottom}" viewBox="0 0 {width} {bottom}"'
    font = 'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13"'
    background = '<rect width="100%" height="100%" rx="8" fill="#16191f"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
    return "\n".join([head, background, *rows, "</svg>", ""])


wrong, right = check_gradients(Swish, (2, 3)), check_gradients(Right, (2, 3))
assert not wrong.ok and right.ok
(folder / "gradients.svg").write_text(printed(f"{wrong}\n\n{right}"), encoding="utf-8")

# An attention, of the shipped model.
model, vocab = (str(numbers.model_dir() / name) for name in ("model.npz", "vocab.spm"))
line = "seventy-two thousand four hundred eleven"
best = Translator(model, [vocab, vocab]).translate([line], return_attention=True)[0]
quiet = {"metadata": {"Date": None}}
best.plot(title="Attention of the last layer").figure.savefig(folder / "attention.svg", **quiet)

# Curves of a training, from what --log-json wrote.
texts = corpus.write(corpus.training(6000), work / "train")
heldout = corpus.write(corpus.heldout(60), work / "heldout")
Trainer(
    model=str(work / "model.npz"),
    train_sets=[str(text) for text in texts],
    valid_sets=[str(text) for text in heldout],
    vocabs=[vocab, vocab],
    type="transformer",
    dim_emb=64,
    enc_depth=2,
    dec_depth=2,
    transformer_heads=4,
    transformer_dim_ffn=256,
    transformer_ffn_activation="relu",
    tied_embeddings_all=True,
    mini_batch=128,
    maxi_batch=50,
    learn_rate=0.004,
    lr_warmup="200",
    lr_decay_inv_sqrt=["200"],
    cost_type="ce-mean-words",
    valid_metrics=["ce-mean-words"],
    disp_freq="10u",
    valid_freq="50u",
    after=given.after,
    log_json=str(work / "train.json"),
    seed=1,
).train()
curves = Curves.read(work / "train.json")
curves.plot(title="English number words to German ones").savefig(folder / "curves.svg", **quiet)

for name in ("graph", "gradients", "attention", "curves"):
    path = folder / f"{name}.svg"
    assert path.read_text(encoding="utf-8").rstrip().endswith("</svg>")
    print(f"{path}: {path.stat().st_size:,} bytes")
