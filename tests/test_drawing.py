"""Pictures: groups, rows, coordinates, SVG, and the page, in a browser if there is one."""

from __future__ import annotations

import html as html_text
import json
import os
import random
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mgraph
from mgraph import ExpressionGraph, drawing, inits, scan
from mgraph.drawing.groups import group_paths
from mgraph.drawing.layering import Net, arrange
from mgraph.drawing.nodes import drawn_nodes
from mgraph.drawing.placing import Outline, place
from mgraph.drawing.scene import Scene, make_scene
from mgraph.drawing.svg import svg
from nmt.model_options import parse_model_options
from nmt.models import create_model

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</script><script>alert(1)</script>&\"'<!--\u2028\x00\udc80{{scene}}"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TRANSFORMER = (
    "type: transformer\ndim-vocabs: [20, 20]\ndim-emb: 8\ntransformer-heads: 2\ntransformer-dim-ffn: 16\n"
    "tied-embeddings-all: true\n"
)


def small() -> ExpressionGraph:
    """Two layers, a shared constant, a node used twice by one, a checkpoint, hostile names."""
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
    logits = model.logits(graph, model.encode(graph, words, graph.ones((2, 3))), words)
    mgraph.sum(mgraph.flatten(mgraph.cross_entropy(logits, ids, 0.1)))
    return graph


GRAPHS = {"small": small, "loop": loop, "transformer": lambda: transformer("", 2), "empty": ExpressionGraph}


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


def test_tied_layers_are_drawn_once_for_each_use() -> None:
    graph = transformer("transformer-tied-layers: [1, 2, 1, 2]\n", 4)
    scene = make_scene(graph.tape)
    layers = [box.title for box in scene.boxes.values() if box.title.startswith("l")]
    assert layers == ["l1", "l2", "l3", "l4", "l1", "l2", "l1 (2)", "l2 (2)"]
    assert all(not box.rows.upward for box in scene.boxes.values())


@pytest.mark.parametrize("name", GRAPHS)
def test_nothing_leads_upwards(name: str) -> None:
    """Boxes of groups have no cycles among each other, as the graph has none."""
    scene = make_scene(GRAPHS[name]().tape)
    assert all(not box.rows.upward for box in scene.boxes.values())


def test_names_without_a_prefix_make_no_group() -> None:
    graph = ExpressionGraph()
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
    """A binary tree whose leaves come in the order that is worst."""
    nets = [Net(i, [(i - 1) // 2]) for i in random.Random(0).sample(range(1, 31), 30)]
    rows = arrange(31, nets).rows
    place_of = {e: i for row in rows for i, e in enumerate(row)}
    for row in rows[:-1]:
        users = [place_of[(e - 1) // 2] for e in row]
        assert users == sorted(users)


def test_a_chain_is_straight() -> None:
    graph = ExpressionGraph()
    x = graph.param("x", (2, 2))
    for _ in range(5):
        x = mgraph.tanh(mgraph.affine(x, graph.param("W", (2, 2)), graph.param("b", (1, 2))))
    spots = positions(drawing.draw(graph))
    assert len({spots[str(n.id)][0] for n in graph.tape.nodes if n.children}) == 1


# -- SVG


def positions(text: str) -> dict[str, tuple[float, float]]:
    """The middle of the top of every node, from the corner of the picture."""
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
    pens = {key: g.find(f"{SVG}path").get("stroke-width") for key, g in nodes.items()}  # type: ignore[union-attr]
    assert {key for key, pen in pens.items() if pen == "3"} == {
        str(n.id) for n in graph.tape.nodes if n.is_checkpoint
    }
    fills = {n.type: nodes[str(n.id)].find(f"{SVG}path").get("fill") for n in graph.tape.nodes}  # type: ignore[union-attr]
    assert len({fills["const"], fills["param"], fills["ReLU"], fills["reshape"]}) == 4
    shown = [text for found in texts.values() for text in found]
    assert any("</script>" in (text or "") for text in shown), "hostile names are shown, not obeyed"


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


# -- the page


def data_of(page: str) -> dict:
    """What the page knows."""
    found = re.search(r'<script type="application/json" id="scene">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.mark.parametrize("name", GRAPHS)
def test_the_page_is_complete_and_alone(name: str, tmp_path: Path) -> None:
    graph = GRAPHS[name]()
    page = drawing.html(graph, tmp_path / "g.html", title=HOSTILE)
    assert (tmp_path / "g.html").read_text(encoding="utf-8") == page
    assert not re.search(r"https?:|//\w+\.|@import|url\(", page)
    assert len(re.findall("</script>", page)) == 2, "names end no script"
    nodes, wires = drawn_nodes(graph.tape)
    data = data_of(page)
    assert data["nodes"].keys() == nodes.keys()
    ends = [
        (value, box["items"][target][1])
        for box in data["boxes"].values()
        for value, _, targets in box["nets"]
        for target in targets
        if box["items"][target][0] == "node"
    ]
    assert Counter(ends) == Counter(wires)


def test_details_and_statistics() -> None:
    graph = small()
    assert not any(node["statistics"] for node in data_of(drawing.html(graph))["nodes"].values())
    graph.backprop()
    nodes = data_of(drawing.html(graph))["nodes"]
    constant, weight = nodes["0"], nodes["1"]
    assert constant["statistics"] == [
        {"NaN": 0, "min": 1, "max": 6, "mean": 3.5, "l2 norm": pytest.approx(91**0.5),
         "values": "1, 2, 3, 4, 5, 6"}
    ]  # fmt: skip
    value, gradient = weight["statistics"]
    w = graph.params()["mlp_l1_W"]
    assert value["max"] == pytest.approx(float(np.max(w.val())))
    assert gradient["gradient"] and gradient["l2 norm"] == pytest.approx(float(np.linalg.norm(w.grad())))
    affine = next(node for node in nodes.values() if node["type"] == "affine")
    assert affine["details"]["element type"] == "float32"
    assert affine["details"]["trans_a"] == "False"
    assert re.search(r"test_drawing\.py:\d+$", affine["details"]["made at"])
    assert not any(n["statistics"] for n in data_of(drawing.html(graph, statistics=False))["nodes"].values())


def test_values_that_are_no_numbers() -> None:
    graph = ExpressionGraph()
    mgraph.log(graph.constant((4,), inits.from_vector([-1, 0, 1, 1])))
    graph.forward()
    (found,) = data_of(drawing.html(graph))["nodes"]["1"]["statistics"]
    assert (found["NaN"], found["min"], found["max"]) == (1, "-inf", 0)


def test_inputs_without_a_value_have_no_statistics() -> None:
    graph = ExpressionGraph()
    graph.function(mgraph.tanh(graph.input("x", (2,))), [graph.tape.nodes[0]])
    assert data_of(drawing.html(graph))["nodes"]["0"]["statistics"] == []


def test_notebooks_get_a_frame_and_a_picture() -> None:
    graph = small()
    frame = ElementTree.fromstring(drawing.repr_html(graph).replace("&nbsp;", " "))
    assert frame.tag == "iframe" and frame.get("sandbox") == "allow-scripts"
    assert (frame.get("srcdoc") or "").startswith("<!DOCTYPE html>")
    assert ElementTree.fromstring(drawing.repr_svg(graph)).tag == f"{SVG}svg"
    assert graph.tape.run is None, "to look at a graph runs nothing"


# -- in a browser

PROBE = """
<script>
  window.problems = [];
  for (const name of ["error", "securitypolicyviolation", "unhandledrejection"]) {
    addEventListener(name, (event) => problems.push(`${name}: ${event.message ?? event.violatedDirective}`));
  }
  window.alert = () => problems.push("a name was obeyed");
</script>
"""

REPORT = """
<script type="module">
  const $ = (selector) => document.querySelector(selector);
  const $$ = (selector) => [...document.querySelectorAll(selector)];
  const click = (target, type = "click") => target.dispatchEvent(new MouseEvent(type, { bubbles: true }));
  const type = (text) => {
    $("#search").value = text;
    $("#search").dispatchEvent(new Event("input"));
  };
  const press = (key, target = $("#search")) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const titled = (title) => $$(".box").find((box) =>
    box.querySelector(":scope > .heading > text").textContent === title);
  const places = () => Object.fromEntries($$(".node").map((node) => {
    const m = $("#world").getCTM().inverse().multiply(node.getCTM());
    return [node.dataset.key, [m.e, m.f]];
  }));
  const report = { opened: performance.now(), seen: $$(".node").length };
  try {
    %s
  } catch (error) {
    problems.push(error.stack);
  }
  report.problems = problems;
  const out = document.createElement("pre");
  out.id = "report";
  out.textContent = JSON.stringify(report);
  document.body.append(out);
</script>
"""


def browse(page: str, script: str, folder: Path) -> dict:
    """Open a page in a browser, run a script on it, return what it reports."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium, chromium-browser or google-chrome to open the page in")
    page = page.replace("<meta charset", PROBE + "<meta charset", 1)
    page = page.replace("</body>", REPORT % script + "</body>", 1)
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    run = subprocess.run(
        [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900", "--virtual-time-budget=5000",
         "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(folder)},
    )  # fmt: skip
    found = re.search(r'<pre id="report">(.*?)</pre>', run.stdout, re.DOTALL)
    assert found, run.stderr[-2000:]
    report: dict = json.loads(html_text.unescape(found[1]))
    assert report["problems"] == []
    return report


def test_the_page_answers(tmp_path: Path) -> None:
    graph = small()
    graph.backprop()
    page = drawing.html(graph, clusters={3: "kernel <1>", 4: "kernel <1>", 7: "kernel 2"}, title=HOSTILE)
    script = """
      report.first = [titled("mlp") !== undefined, $("#panel").hidden, $("#fusion").hidden];
      click($("#fold"));
      report.folded = [$$(".node").length, $$(".box.folded").length];
      type("l2_W");
      report.marked = [$$(".found").length, $$(".box.folded.found").length, $$("#results li").length];
      press("Enter");
      report.chosen = [$("#panel h2").textContent, $(".node.selected").dataset.key, $$(".trace.out").length];
      report.panel = $("#panel").textContent;
      press("Escape");
      report.closed = [$("#panel").hidden, $$(".found").length, $$(".trace").length];
      click($("#unfold"));
      click($("[data-key='3']"));
      report.asked = [$("#panel h2").textContent, $$(".trace.in").length, $$(".trace.out").length];
      click($$("#panel li a").at(-1));
      report.followed = $("#panel h2").textContent;
      click(titled("l1").querySelector(".heading text"));
      const isStrong = (part) => getComputedStyle(part).strokeWidth === "3px";
      report.strong = $$("#world *").filter(isStrong).map((part) => part.closest("[data-key]").dataset.key);
      const before = $$(".node").length;
      click(titled("l2").querySelector(".sign"));
      report.toggled = [before, $$(".node").length];
      click(titled("l2").querySelector(".cover"), "dblclick");
      report.toggled.push($$(".node").length);
      click($("#fusion"));
      const fill = (key) => getComputedStyle($(`[data-key='${key}'] > path`)).fill;
      report.fused = [fill(3), fill(4), fill(7), $("#clusters").textContent];
      click($("#clusters div"));
      report.only = $$(".node.shown").map((node) => node.dataset.key);
      click($("#fusion"));
      report.unfused = fill(3);
      const canvas = $("#canvas"), eye = () => $("#world").getAttribute("transform");
      const pointer = (type, x, y) => canvas.dispatchEvent(
        new PointerEvent(type, { clientX: x, clientY: y, pointerId: 1 }));
      canvas.setPointerCapture = () => {}; // there is no pointer to capture
      report.eyes = [eye()];
      canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, clientX: 700, clientY: 400 }));
      report.eyes.push(eye());
      pointer("pointerdown", 300, 300);
      pointer("pointermove", 340, 320);
      report.eyes.push(eye());
    """
    report = browse(page, script, tmp_path)
    assert report["first"] == [True, True, False]
    assert report["folded"] == [3, 1]
    assert report["marked"] == [1, 1, 1]
    assert report["chosen"] == ["param mlp_l2_W", "5", 1]
    for word in ("float32", "3×3", "test_drawing.py:", "Value", "Gradient", "l2 norm", "affine"):  # noqa: RUF001
        assert word in report["panel"], word
    assert report["closed"] == [True, 0, 0]
    assert report["asked"] == ["affine", 3, 1]
    assert report["followed"] == "ReLU"
    assert report["strong"] == [report["strong"][0], "4", "8"], "the selected box and the checkpoints"
    few, fewer, again = report["toggled"]
    assert fewer == few - 4 and again == few
    first, second, other, legend = report["fused"]
    assert first == second != other and "kernel <1>2" in legend
    assert report["only"] == ["3", "4"] and report["unfused"] != first
    assert len(set(report["eyes"])) == 3, "the wheel zooms, dragging moves"


@pytest.mark.parametrize("name", ["loop", "transformer"])
def test_the_page_places_as_the_picture_does(name: str, tmp_path: Path) -> None:
    """The browser computes coordinates anew whenever a box is folded."""
    graph = GRAPHS[name]()
    script = """
      click($("#unfold"));
      report.open = places();
      click($("#fold"));
      report.folded = places();
    """
    report = browse(drawing.html(graph), script, tmp_path)
    scene = make_scene(graph.tape)
    for folded, found in ([], report["open"]), ([key for key in scene.boxes if key], report["folded"]):
        expected = positions(svg(scene, folded))
        assert found.keys() == expected.keys()
        for key, spot in expected.items():
            np.testing.assert_allclose(found[key], spot, atol=0.6)


def test_a_transformer_of_six_layers_opens_at_once(tmp_path: Path) -> None:
    graph = transformer("", 6)
    page = drawing.html(graph)
    script = """
      const began = performance.now();
      click($("#unfold"));
      report.all = [$$(".node").length, performance.now() - began];
    """
    report = browse(page, script, tmp_path)
    assert 20 < report["seen"] < 80, "what is seen first is a block diagram"
    assert report["all"][0] == len(graph.tape.nodes) > 600
    assert report["opened"] < 2000 and report["all"][1] < 2000
