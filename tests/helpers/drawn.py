"""Graphs that the tests of pictures draw, and where their nodes stand in an SVG picture."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import mgraph
from mgraph import ExpressionGraph, inits, scan
from nmt.files import create_model
from nmt.models import Source
from nmt.settings.model_options import parse_model_options

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</script><script>alert(1)</script>&\"'<!--\u2028\x00\udc80{{scene}}"
TRANSFORMER = (
    "type: transformer\ndim-vocabs: [20, 20]\ndim-emb: 8\ntransformer-heads: 2\ntransformer-dim-ffn: 16\n"
    "tied-embeddings-all: true\n"
)


def small() -> ExpressionGraph:
    """Two layers, a shared constant, a node that another one uses twice, a checkpoint, hostile names."""
    graph = ExpressionGraph()
    x = graph.constant((2, 3), inits.from_vector([1, 2, 3, 4, 5, 6]))
    for layer in ("l1", "l2"):
        w, b = graph.param(f"mlp_{layer}_W", (3, 3)), graph.param(f"mlp_{layer}_b", (1, 3), inits.zeros())
        x = mgraph.relu(mgraph.affine(x, w, b)).mark_checkpoint()
    mgraph.sum(mgraph.flatten((x * x).set_name(HOSTILE)))
    return graph


def loop() -> ExpressionGraph:
    """A recurrent network whose body has a state, a slice, a parameter and a constant from outside."""
    graph = ExpressionGraph()
    xs = graph.constant((5, 2, 3), inits.from_value(0.5))
    u, w = graph.param("rnn_U", (4, 4)), graph.param("rnn_W", (3, 4))

    def step(h, x):
        h = mgraph.tanh(mgraph.dot(h, u) + mgraph.dot(x, w))
        return h, h * 2.0

    _, out = scan(step, graph.zeros((2, 4)), xs)
    mgraph.sum(mgraph.flatten(out))
    return graph


def transformer(options: str, layers: int) -> ExpressionGraph:
    """The loss of a training step."""
    depths = f"enc-depth: {layers}\ndec-depth: {layers}\n"
    model = create_model(parse_model_options(TRANSFORMER + depths + options, "test"))
    graph = ExpressionGraph()
    ids = graph.indices([2, 3, 4, 5, 6, 7])
    words = mgraph.reshape(ids, (2, 3))
    logits = model.logits(model.encode([Source(words, graph.ones((2, 3)))]), words)
    mgraph.sum(mgraph.flatten(mgraph.cross_entropy(logits, ids, 0.1)))
    return graph


GRAPHS = {"small": small, "loop": loop, "transformer": lambda: transformer("", 2), "empty": ExpressionGraph}


def positions(text: str) -> dict[str, tuple[float, float]]:
    """The middle of every node's top edge, relative to the corner of the picture."""
    found = {}

    def visit(element: ElementTree.Element, x: float, y: float) -> None:
        shift = re.fullmatch(r"translate\((\S+) (\S+)\)", element.get("transform", ""))
        if shift:
            x, y = x + float(shift[1]), y + float(shift[2])
        for child in element:
            if element.get("class") == "node" and child.tag == f"{SVG}path":
                at = re.fullmatch(r"translate\((\S+) (\S+)\)", child.get("transform", ""))
                assert at
                found[element.get("data-key", "")] = x + float(at[1]), y + float(at[2])
            else:
                visit(child, x, y)

    visit(ElementTree.fromstring(text), -12.0, -12.0)
    return found
