"""Pictures of a graph: an SVG file, a block diagram, and a page to explore in a browser."""

import tempfile
from pathlib import Path

import mgraph
from mgraph import ExpressionGraph, inits

# Prefixes of parameter names say what belongs together: an encoder with two layers, and the output.
graph = ExpressionGraph()
x = graph.constant((4, 8), inits.from_value(0.5))
for layer in ("encoder_l1", "encoder_l2"):
    w, b = graph.param(f"{layer}_W", (8, 8)), graph.param(f"{layer}_b", (1, 8), inits.zeros())
    x = mgraph.tanh(mgraph.affine(x, w, b)) + x
w, b = graph.param("output_W", (8, 3)), graph.param("output_b", (1, 3), inits.zeros())
logits = mgraph.affine(x, w, b).set_name("logits")
loss = mgraph.sum(mgraph.flatten(mgraph.cross_entropy(logits, graph.indices([0, 1, 2, 0]))))
graph.backprop()

folder = Path(tempfile.mkdtemp())
full = graph.draw(folder / "graph.svg")  # everything, in Marian's shapes and colours
blocks = graph.draw(folder / "blocks.svg", depth=0)  # groups as blocks
assert full.count('class="node"') == len(graph.tape.nodes)
assert blocks.count('class="node"') < 8 and ">encoder<" in blocks

# The page needs no network. It knows values and gradients too, because the graph has run: click on a node to
# see them. The profile adds the kernels that XLA made, and the time of each.
profile = graph.profile(backward=True)
page = graph.html(folder / "graph.html", profile=profile, title="Two layers")
assert "affine" in page and "://" not in page
print(profile)
print(f"open {folder / 'graph.html'}")

# Notebooks show a graph by themselves, as the page in a frame.
assert graph._repr_html_().startswith("<iframe")
