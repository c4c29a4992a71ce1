"""Pictures: groups, rows, coordinates and SVG."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mgraph
from mgraph import ArgumentError, ExpressionGraph, drawing
from mgraph.drawing.groups import group_paths
from mgraph.drawing.layering import Net, arrange
from mgraph.drawing.nodes import drawn_nodes
from mgraph.drawing.placing import Outline, place
from mgraph.drawing.scene import Scene, make_scene
from tests.helpers.drawn import GRAPHS, SVG, positions, small, transformer


def titles(scene: Scene, key: str) -> tuple[str, ...]:
    """The titles of the boxes around a node."""
    return tuple(scene.boxes[box].title for box in scene.path(scene.home[key])[1:])


# -- groups


def test_groups_are_the_parts_of_a_transformer() -> None:
    graph = transformer("", 6)
    scene = make_scene(graph.tape)
    found = Counter(titles(scene, key) for key in scene.nodes)
    layers = [f"l{i}" for i in range(1, 7)]
    expected = {("encoder", layer, part) for layer in layers for part in ("self", "ffn")}
    expected |= {("decoder", layer, part) for layer in layers for part in ("self", "context", "ffn")}
    assert found.keys() == expected | {(), ("encoder",), ("decoder",)}
    assert found[()] + found[("encoder",)] + found[("decoder",)] < 40
    assert titles(scene, str(graph.tape.nodes[-1].id)) == (), "the loss is outside"
    assert all(
        set(titles(scene, key)) == set() or node.name.startswith("_".join(titles(scene, key)))
        for key, node in scene.nodes.items()
        if node.type == "param"
    )


def test_a_residual_before_a_norm_ends_its_layer() -> None:
    graph = transformer("transformer-preprocess: n\ntransformer-postprocess: da\n", 2)
    scene = make_scene(graph.tape)
    additions = [titles(scene, key)[1] for key, n in scene.nodes.items() if n.is_checkpoint]
    assert additions == ["l1", "l2", "l1", "l2"]


def test_an_addition_around_a_layer_belongs_to_it(graph: ExpressionGraph) -> None:
    x = graph.ones((4, 8))
    for i in range(3):
        inner = mgraph.relu(mgraph.dot(x, graph.param(f"l{i}_W1", (8, 16))))
        x = mgraph.layer_norm(x + mgraph.dot(inner, graph.param(f"l{i}_W2", (16, 8))))
    mgraph.sum(mgraph.flatten(x * x))
    scene = make_scene(graph.tape)
    additions = [titles(scene, key) for key, node in scene.nodes.items() if node.type == "+"]
    assert additions == [("l0",), ("l1",), ("l2",)]


def test_tied_layers_are_drawn_once_for_each_use() -> None:
    graph = transformer("transformer-tied-layers: [1, 2, 1, 2]\n", 4)
    scene = make_scene(graph.tape)
    layers = [box.title for box in scene.boxes.values() if box.title.startswith("l")]
    assert layers == ["l1", "l2", "l3", "l4", "l1", "l2", "l1 (2)", "l2 (2)"]
    assert all(not box.rows.upward for box in scene.boxes.values())


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_leads_upwards(name: str) -> None:
    """The boxes of groups form no cycle, because the graph has none."""
    scene = make_scene(GRAPHS[name]().tape)
    assert all(not box.rows.upward for box in scene.boxes.values())


def test_names_without_a_prefix_make_no_group(graph: ExpressionGraph) -> None:
    w, b = graph.param("W", (2, 2)), graph.param("b", (1, 2))
    mgraph.tanh(mgraph.affine(graph.ones((2, 2)), w, b))
    nodes, _ = drawn_nodes(graph.tape)
    assert set(group_paths(nodes).values()) == {()}


def test_names_lose_what_their_boxes_say() -> None:
    scene = make_scene(small().tape)
    names = {node.name: scene.name_in_box(node) for node in scene.nodes.values() if node.type == "param"}
    assert names == {f"mlp_{layer}_{p}": p for layer in ("l1", "l2") for p in "Wb"}


def test_boxes_of_one_make_share_a_kind() -> None:
    scene = make_scene(transformer("", 3).tape)
    kinds = {(box.title, scene.boxes[box.parent or ""].title): box.kind for box in scene.boxes.values()}
    assert kinds["l1", "encoder"] == kinds["l3", "encoder"] != 0
    assert kinds["l1", "decoder"] not in (0, kinds["l1", "encoder"])
    assert kinds["encoder", ""] == 0


# -- rows and places


def random_nets(seed: int, count: int, backwards: bool) -> list[Net]:
    draw = random.Random(seed)
    pairs = [draw.sample(range(count), 2) for _ in range(2 * count)]
    targets: dict[int, list[int]] = {}
    for a, b in pairs:
        low, high = (a, b) if backwards else sorted((a, b))
        targets.setdefault(low, []).append(high)
    return [Net(source, found) for source, found in targets.items()]


@given(st.integers(0, 10**6), st.integers(2, 25), st.booleans())
def test_rows_hold_every_item_once_and_nets_lead_down(seed: int, count: int, cyclic: bool) -> None:
    nets = random_nets(seed, count, cyclic)
    layout = arrange(count, nets)
    assert sorted(e for row in layout.rows for e in row if e >= 0) == list(range(count))
    assert cyclic or not layout.upward
    rank = {e: r for r, row in enumerate(layout.rows) for e in row if e >= 0}
    for n, net in enumerate(nets):
        down = [rank[t] for t in net.targets if (n, t) not in layout.upward]
        assert all(r > rank[net.source] for r in down)
        bends = [r for r, row in enumerate(layout.rows) if -1 - n in row]
        assert bends == list(range(rank[net.source] + 1, max(down, default=0)))


@given(st.integers(0, 10**6), st.integers(2, 25), st.booleans())
def test_nothing_overlaps_and_wires_meet_what_they_join(seed: int, count: int, cyclic: bool) -> None:
    nets = random_nets(seed, count, cyclic)
    draw = random.Random(seed)
    outlines = [Outline(draw.randint(20, 200), draw.randint(20, 90)) for _ in range(count)]
    layout = arrange(count, nets)
    placed = place(layout, nets, [str(n) for n in range(len(nets))], outlines, 50.0)
    boxes = [
        (x - o.width / 2, y, x + o.width / 2, y + o.height)
        for x, y, o in zip(placed.middles, placed.tops, outlines, strict=True)
    ]
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0 and right <= placed.width and top >= 0 and bottom <= placed.height
        for other in boxes[:i]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
    for net, pieces in zip(nets, placed.pieces, strict=True):
        assert Counter(p.target for p in pieces if p.target >= 0) == Counter(net.targets)
        for piece in pieces:
            if piece.target >= 0:
                left, top, right, _ = boxes[piece.target]
                assert piece.bottom == top and abs(piece.across - (left + right) / 2) < 30


def test_a_plane_graph_is_drawn_without_crossings() -> None:
    """A binary tree whose edges are given in random order."""
    nets = [Net(i, [(i - 1) // 2]) for i in random.Random(0).sample(range(1, 31), 30)]
    rows = arrange(31, nets).rows
    place_of = {e: i for row in rows for i, e in enumerate(row)}
    for row in rows[:-1]:
        users = [place_of[(e - 1) // 2] for e in row]
        assert users == sorted(users)


def test_a_chain_is_straight(graph: ExpressionGraph) -> None:
    x = graph.param("x", (2, 2))
    for _ in range(5):
        x = mgraph.tanh(mgraph.affine(x, graph.param("W", (2, 2)), graph.param("b", (1, 2))))
    spots = positions(drawing.draw(graph))
    assert len({spots[str(n.id)][0] for n in graph.tape.nodes if n.children}) == 1


@pytest.mark.parametrize(
    ("write", "name", "said"),
    [
        (drawing.draw, "g.PNG", "draw writes SVG: expected a file that ends in .svg, got "),
        (drawing.html, "g.pdf", "html writes a page: expected a file that ends in .html or .htm, got "),
        (drawing.graphviz, "g.svg", "graphviz writes text for dot -Tpng: expected .* .dot or .gv, got "),
    ],
)
def test_a_file_is_not_named_as_what_it_is_not(write: Callable[..., str], name, said, tmp_path) -> None:
    graph = ExpressionGraph()
    mgraph.exp(graph.param("x", (2,)))
    with pytest.raises(ArgumentError, match=said):
        write(graph, tmp_path / name)
    assert not any(tmp_path.iterdir())
    assert write(graph, tmp_path / "picture.txt") == (tmp_path / "picture.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("write", [drawing.draw, drawing.html, drawing.graphviz])
def test_only_graphs_are_drawn(graph: ExpressionGraph, write: Callable[..., str]) -> None:
    for wrong in (graph.ones((2,)), [graph], "graph", None):
        with pytest.raises(ArgumentError, match=r"expected a graph, got (.|\n)*test_drawing\.py:\d+"):
            write(wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clusters": ["a"]}, r"expected clusters by the ids of nodes, .*, got \["),
        ({"profile": "a"}, r"expected graph\.profile\(\), got 'a'"),
        ({"title": 5}, "the title of a page must be a string, got 5"),
        ({"depth": "a"}, "draw: depth must be a whole number, got 'a'"),
    ],
)
def test_options_of_another_kind_are_refused(graph: ExpressionGraph, options, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        (graph.draw if "depth" in options else graph.html)(**options)


# -- SVG


@pytest.mark.parametrize("name", GRAPHS)
def test_svg_has_every_node_and_every_wire(name: str, tmp_path: Path) -> None:
    graph = GRAPHS[name]()
    text = drawing.draw(graph, tmp_path / "g.svg")
    assert (tmp_path / "g.svg").read_text(encoding="utf-8") == text
    nodes, wires = drawn_nodes(graph.tape)
    root = ElementTree.fromstring(text)
    keys = [g.get("data-key") for g in root.iter(f"{SVG}g") if g.get("class") == "node"]
    assert sorted(keys) == sorted(key for key, node in nodes.items() if not node.is_loop)
    tips = [
        (t.get("data-from"), t.get("data-to")) for t in root.iter(f"{SVG}path") if t.get("class") == "tip"
    ]
    assert Counter(tips) == Counter(wires)
    loops = {str(n.id) for n in graph.tape.nodes if n.type == "scan"}
    for node in graph.tape.nodes:
        if str(node.id) not in loops:
            sources = [source for source, target in wires if target == str(node.id)]
            assert [s.partition(".")[0] for s in sources] == [str(c.id) for c in node.children]


def test_svg_has_marians_look() -> None:
    graph = small()
    root = ElementTree.fromstring(drawing.draw(graph))
    nodes = {g.get("data-key"): g for g in root.iter(f"{SVG}g") if g.get("class") == "node"}
    texts = {key: [t.text for t in g.iter(f"{SVG}text")] for key, g in nodes.items()}
    assert texts["0"] == ["const (0/0)", "2×3"]  # noqa: RUF001
    assert texts["1"] == ["param", '"W" (1/1)', "3×3"]  # noqa: RUF001
    pens = {key: g.find(f"{SVG}path").get("stroke-width") for key, g in nodes.items()}
    assert {key for key, pen in pens.items() if pen == "3"} == {
        str(n.id) for n in graph.tape.nodes if n.is_checkpoint
    }
    fills = {n.type: nodes[str(n.id)].find(f"{SVG}path").get("fill") for n in graph.tape.nodes}
    assert len({fills["const"], fills["param"], fills["ReLU"], fills["reshape"]}) == 4
    shown = [text for found in texts.values() for text in found]
    assert any("</script>" in (text or "") for text in shown), "hostile names are shown, not obeyed"


def test_large_graphs_are_summed_up_once_for_each_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """What folded boxes say is counted inside of them, not by a look at every node of the graph."""
    graph = transformer("", 6)
    scene = make_scene(graph.tape)
    for box in scene.boxes.values():
        inside = [n for key, n in scene.nodes.items() if box.key in scene.path(scene.home[key])]
        assert sorted(n.key for n in scene.inside(box)) == sorted(n.key for n in inside)
    asked: list[str] = []
    path = Scene.path
    monkeypatch.setattr(Scene, "path", lambda self, key: asked.append(key) or path(self, key))
    drawing.draw(graph, depth=0)
    assert len(asked) < 20 * len(scene.nodes)


def test_svg_folds_below_a_depth() -> None:
    graph = transformer("", 2)
    nodes = [len(positions(drawing.draw(graph, depth=depth))) for depth in (0, 1, 2, 3)]
    assert nodes[0] < nodes[1] <= nodes[2] < nodes[3] == len(graph.tape.nodes)
    blocks = re.findall('font-weight="bold"[^>]*>([^<]*)<', drawing.draw(graph, depth=0))
    assert blocks == ["encoder", "decoder"]


def test_a_color_that_is_none_is_not_written() -> None:
    class Painted(mgraph.UnaryNodeOp):
        type = "painted"
        color = '"/><script>'

        def forward_ops(self, x):
            return x

    graph = ExpressionGraph()
    Painted(graph.ones((2,)))
    assert "<script>" not in drawing.draw(graph)
