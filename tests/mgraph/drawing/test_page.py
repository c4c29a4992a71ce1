"""Pages: complete, self-contained, and in a browser if there is one."""

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

import mgraph
from mgraph import ExpressionGraph, drawing, inits
from mgraph.drawing.nodes import drawn_nodes
from mgraph.drawing.scene import make_scene
from mgraph.drawing.svg import svg
from tests.helpers.drawn import GRAPHS, HOSTILE, SVG, positions, small, transformer

NODE = shutil.which("node")
VIEW = Path(drawing.__file__).parent / "view.js"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def data_of(page: str) -> dict:
    """The data in the page."""
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


def test_gradients_of_several_outputs(graph: ExpressionGraph) -> None:
    values, _ = mgraph.topk(graph.param("x", (2, 3), inits.ones()), 2, 1)
    mgraph.sum(values, (0, 1))
    graph.backprop()
    nodes = data_of(drawing.html(graph))["nodes"].values()
    (topk,) = (node for node in nodes if node["type"] == "topk")
    found = [(s.get("gradient", False), s.get("output"), s["values"]) for s in topk["statistics"]]
    ones, indices = "1, 1, 1, 1", "0, 1, 0, 1"
    assert found == [(False, None, ones), (False, None, indices), (True, 0, ones)]  # indices have no gradient


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
    recorded = graph.tape.nodes[3]
    assert recorded.type == "affine"
    assert affine["statistics"][1]["max"] == pytest.approx(float(np.max(recorded.grad())))
    assert affine["details"]["element type"] == "float32"
    assert affine["details"]["trans_a"] == "False"
    assert re.search(r"drawn\.py:\d+$", affine["details"]["made at"])
    assert not any(n["statistics"] for n in data_of(drawing.html(graph, statistics=False))["nodes"].values())


def test_a_profile_is_shown() -> None:
    graph = small()
    profile = graph.profile(runs=1)
    data = data_of(drawing.html(graph, profile=profile, statistics=False))
    assert data["times"]["nodes"] == {str(node): seconds for node, seconds in profile.nodes.items()}
    assert data["times"]["clusters"] == profile.seconds and "mean of 1" in data["times"]["about"]
    assert data["clusters"] == {str(node): name for node, name in profile.clusters.items()}
    plain = data_of(drawing.html(graph, statistics=False))
    assert not plain["times"]["nodes"] and not plain["clusters"]


def test_values_that_are_no_numbers(graph: ExpressionGraph) -> None:
    mgraph.log(graph.constant((4,), inits.from_vector([-1, 0, 1, 1])))
    graph.forward()
    (found,) = data_of(drawing.html(graph))["nodes"]["1"]["statistics"]
    assert (found["NaN"], found["min"], found["max"]) == (1, "-inf", 0)


def test_inputs_without_a_value_have_no_statistics(graph: ExpressionGraph) -> None:
    graph.function(mgraph.tanh(graph.input("x", (2,))), [graph.tape.nodes[0]])
    assert data_of(drawing.html(graph))["nodes"]["0"]["statistics"] == []


def test_notebooks_get_a_frame_and_a_picture() -> None:
    graph = small()
    frame = ElementTree.fromstring(drawing.repr_html(graph).replace("&nbsp;", " "))
    assert frame.tag == "iframe" and frame.get("sandbox") == "allow-scripts"
    assert (frame.get("srcdoc") or "").startswith("<!DOCTYPE html>")
    assert ElementTree.fromstring(drawing.draw(graph)).tag == f"{SVG}svg"
    assert graph.covered == 0, "to look at a graph runs nothing"


# -- folding, without a browser

LAYOUTS = """
const {scene: data, states} = JSON.parse(require("fs").readFileSync(0, "utf8"));
globalThis.document = {getElementById: () => ({textContent: JSON.stringify(data)})};
%s
function seen(box, x, y, found) {
  const layout = layoutOf(box);
  box.items.forEach(([kind, key], i) => {
    if (kind === "in" || kind === "out") return;
    const { width, height } = layout.outlines[i];
    const left = x + layout.middles[i] - width / 2, top = y + layout.tops[i];
    found.push([kind, key, box.key, left, top, left + width, top + height]);
    if (open.has(key)) seen(scene.boxes[key], left, top, found);
  });
  const numbers = layout.pieces.flat().flatMap(Object.values);
  if (!numbers.every(Number.isFinite)) throw new Error("a wire leads nowhere");
  found.push(["inside", box.key, null, x, y, x + layout.width, y + layout.height]);
  return found;
}
console.log(JSON.stringify(states.map((state) => {
  open.clear();
  layouts.clear();
  ["", ...state].forEach((key) => open.add(key));
  return seen(scene.boxes[""], 0, 0, []);
})));
"""


@pytest.mark.skipif(NODE is None, reason="there is no node to run the page's layouts with")
@pytest.mark.parametrize("name", GRAPHS)
def test_whatever_is_folded_nothing_overlaps(name: str) -> None:
    graph = GRAPHS[name]()
    scene = make_scene(graph.tape)
    keys, chance = [key for key in scene.boxes if key], random.Random(1)
    depths = [[key for key in keys if len(scene.path(key)) <= depth + 1] for depth in range(4)]
    some = [{key for key in keys if chance.random() < share} for share in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)]
    states = depths + [[key for key in found if found.issuperset(scene.path(key)[1:])] for found in some]
    given = {"scene": data_of(drawing.html(graph)), "states": states}
    run = subprocess.run(
        [NODE or "", "-e", LAYOUTS % VIEW.read_text()],
        input=json.dumps(given), capture_output=True, text=True, check=True,
    )  # fmt: skip
    for i, (state, parts) in enumerate(zip(states, json.loads(run.stdout), strict=True)):
        frames = {key: frame for kind, key, _, *frame in parts if kind == "inside"}
        places = {
            key: ((left + right) / 2, top) for kind, key, _, left, top, right, _ in parts if kind == "node"
        }
        expected = positions(svg(scene, [key for key in keys if key not in state]))
        assert places.keys() == expected.keys()
        if i < len(depths):
            assert all(np.allclose(places[key], spot, atol=0.6) for key, spot in expected.items())
        within: dict[str, list[list[float]]] = {}
        for kind, _, box, *frame in parts:
            if kind != "inside":
                assert lies_in(frame, frames[box])
                assert all(are_apart(frame, other) for other in within.setdefault(box, []))
                within[box].append(frame)


def are_apart(a: list[float], b: list[float], slack: float = 0.3) -> bool:
    """Whether two frames, each left, top, right and bottom, do not overlap."""
    return a[2] < b[0] + slack or b[2] < a[0] + slack or a[3] < b[1] + slack or b[3] < a[1] + slack


def lies_in(a: list[float], b: list[float], slack: float = 0.3) -> bool:
    return a[0] > b[0] - slack and a[1] > b[1] - slack and a[2] < b[2] + slack and a[3] < b[3] + slack


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
         f"--user-data-dir={folder / 'profile'}", "--window-size=1400,900", 
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
      report.summary = $("#summary").textContent;
      $("#fit").dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
      report.hint = $("#hint").hidden;
      click($("#fold"));
      report.folded = [$$(".node").length, $$(".box.folded").length];
      type("l2_W");
      report.marked = [$$(".found").length, $$(".box.folded.found").length, $$("#results li").length];
      press("Enter");
      report.chosen = [$("#panel h2").textContent, $(".node.selected").dataset.key, $$(".trace.out").length];
      const [list, panel] = ["#results", "#panel"].map((part) => $(part).getBoundingClientRect());
      report.apart = list.width > 0 && list.right < panel.left;
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
      report.fused = [fill(3), fill(4), fill(7), $("#colors").textContent];
      click($("#colors div"));
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
    assert report["summary"] == f"{len(graph.tape.nodes)} nodes, 24 parameters"
    assert report["hint"], "it would cover what stands at the bottom"
    assert report["folded"] == [3, 1]
    assert report["marked"] == [1, 1, 1]
    assert report["chosen"] == ["param mlp_l2_W", "5", 1]
    assert report["apart"], "what was found covers the panel"
    for word in ("float32", "3×3", "drawn.py:", "Value", "Gradient", "l2 norm", "affine"):  # noqa: RUF001
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
    """With all boxes open, and with all folded, the page has the coordinates that Python gave it."""
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


def test_a_page_with_a_profile_shades_nodes(tmp_path: Path) -> None:
    graph = small()
    script = """
      report.hidden = [$("#times").hidden, $("#legend").textContent.includes("parameter")];
      click($("#times"));
      const fills = $$(".timed > path").map((part) => getComputedStyle(part).fill);
      report.shades = [$$("#colors .time").length, fills.length, new Set(fills).size];
      click($("#colors .time"));
      report.panel = $("#panel").textContent;
      click($("#fusion"));
      report.modes = [$("#world").classList.contains("timing"), $("#world").classList.contains("fused")];
      report.times = $("#colors").textContent;
    """
    profile = graph.profile(runs=1)
    report = browse(drawing.html(graph, profile=profile), script, tmp_path)
    listed, filled, shades = report["shades"]
    assert report["hidden"] == [False, True] and listed == filled == len(profile.nodes) and shades > 1
    assert re.search(r"time[\d.]+ (ns|µs|ms)", report["panel"])
    assert report["modes"] == [False, True]
    assert re.search(r"[\d.]+ (ns|µs|ms)", report["times"])


def test_of_ten_thousand_nodes_only_those_in_sight_are_there(tmp_path: Path) -> None:
    graph = ExpressionGraph()
    x = graph.param("x", (2, 2))
    for _ in range(5000):
        x = mgraph.tanh(x) + x
    script = """
      const drawn = () => [$$(".node").length, $$(".far .coarse path").length];
      report.first = drawn();
      click($("#fit"));
      report.all = drawn();
      type("4000");
      press("Enter");
      report.found = [$("#panel h2").textContent, $$(".node.selected").map((node) => node.dataset.key)];
    """
    report = browse(drawing.html(graph), script, tmp_path)
    assert 5 < report["first"][0] < 200 and report["first"][1] == 0
    assert report["all"] == [0, 3], "wires, parameters and operations, as plain paths"
    assert report["found"] == ["+", ["4000"]]


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
