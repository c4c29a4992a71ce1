"""The page of a report on operators: complete, self-contained, and in a browser if there is one."""

from __future__ import annotations

import html as html_text
import json
import math
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mgraph import ArgumentError, UnaryNodeOp
from mgraph.cases import Case
from mgraph.gradcheck import GradientCheck, GradientReport, OperatorReport, OperatorRow, write_page
from mgraph.gradcheck.example import Example
from mgraph.gradcheck.page.page import page
from mgraph.gradcheck.page.pictures import HEIGHT, WIDTH, picture
from mgraph.gradcheck.shrinking.smallest import shrink

NODE = shutil.which("node")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
HOSTILE = "</script><script>alert(1)</script><!-- \u2028 &lt;"


class FourthPower(UnaryNodeOp):
    """``x ** 4``; </script><script>alert(1)</script>"""

    type = "fourthPower"
    cases = (Case((2, 2)),)

    def forward_ops(self, x):
        return x**4

    def backward_ops(self, adj, val, x):
        return (3 * adj * x**3,)


def fourth_power(x: Any, scale: float = 1.0) -> Any:
    """The fourth power, times ``scale``."""
    return FourthPower(x) * scale


@dataclass(frozen=True)
class Slope:
    steps: tuple[float, ...] = (0.1, 0.01, 0.001)
    remainders: tuple[float, ...] = (0.3, 0.03, 0.003)
    slope: float | None = 1.0


def report_of(count: int = 3) -> OperatorReport:
    """Right operators, one with a hostile name, and among them a wrong one with all that a page can show."""
    example = Example(FourthPower, FourthPower.cases[0], tuple(FourthPower.cases[0].values()))
    wrong = GradientCheck("2x2 child 0", (2, 2), {"jax": 0.25, "differences": math.inf}, example=example)
    object.__setattr__(wrong, "taylor", Slope())
    right = GradientCheck("2x2 child 0", (2, 2), {"jax": 1e-16, "differences": 2e-11})
    rows = [
        OperatorRow(
            f"Right{i}NodeOp", f"right{i}", 1, {"jax": (i + 1) * 1e-16}, "", GradientReport("", (right,))
        )
        for i in range(count - 1)
    ]
    rows[0] = replace(rows[0], type=HOSTILE)
    report = GradientReport("FourthPower", (wrong, right))
    bad = OperatorRow("FourthPower", "fourthPower", 1, dict(wrong.differences), "", report)
    return OperatorReport((*rows[:1], bad, *rows[1:]))


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', text, re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_page_is_complete_and_alone(tmp_path: Path) -> None:
    report = report_of()
    write_page(report, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert not re.search(r"https?:|//\w+\.|@import|url\(", text)
    assert len(re.findall("</script>", text)) == 2, "names end no script"
    data = data_of(text)
    assert data["facts"].keys() >= {"date", "jax", "jaxlib", "Python", "processor"} and all(
        data["facts"].values()
    )
    assert data["columns"] == ["rule - jax", "rule - diff"]
    first, wrong, last = data["operators"]
    assert first["type"] == HOSTILE and first["ok"]
    assert wrong["cells"][0] == {"difference": 0.25, "witness": "jax", "limit": 1e-10, "wrong": True}
    assert wrong["cells"][1]["difference"] == "inf" and last["cells"][1] == {"difference": None}
    assert re.fullmatch(r"tests/mgraph/gradcheck/test_page\.py:\d+", wrong["file"])
    assert wrong["documents"].keys() >= {"FourthPower", "fourth_power(x, scale=1.0)"}
    assert wrong["sources"]["backward_ops"][-1].strip() == "return (3 * adj * x**3,)"
    assert wrong["sources"].keys() == {"forward_ops", "backward_ops"}
    with pytest.raises(
        ArgumentError, match="a report of check_operators or check_layers, got .*GradientReport"
    ):
        write_page(report.rows[0].report, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == text
    assert [check["verdict"] for check in wrong["checks"]] == ["WRONG: jax, differences", "ok"]
    assert wrong["checks"][0]["slope"] == 1.0 and wrong["checks"][1]["picture"] == ""


def test_the_smallest_failure_is_on_the_page() -> None:
    report = report_of()
    example = report.rows[1].report.checks[0].example
    failure = shrink(example, seconds=0)
    rows = (*report.rows[:1], replace(report.rows[1], failure=failure))
    (_, found) = data_of(page(replace(report, rows=rows)))["operators"]
    assert "\n".join(found["failure"]) + "\n" == failure.test and "# got: " in failure.test


def test_a_picture_has_the_points_and_lines_of_both_slopes() -> None:
    root = ElementTree.fromstring(picture(Slope()))
    assert root.get("aria-label") == "Taylor remainders, slope 1.00"
    (curve,) = root.findall("polyline")
    points = [tuple(map(float, point.split(","))) for point in curve.get("points").split()]
    assert len(points) == len(root.findall("g/circle")) == 3
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    guides = [path.get("d") for path in root.findall("path[@class='guide']")]
    (x1, y1), (x2, y2) = (
        [tuple(map(float, p.split(","))) for p in re.split("[ML]", g)[1:]][1] for g in guides
    )
    assert (x1, y1) == pytest.approx(points[0], abs=0.2), "a wrong gradient lies on the line of slope 1"
    assert x2 > points[0][0] + 20 and y2 >= y1, "and off the line of slope 2"


@pytest.mark.parametrize(
    "taylor", [None, Slope((0.1,), (0.2,)), Slope(remainders=(0.1, 0.0, math.nan)), Slope(slope=None)]
)
def test_too_few_points_are_no_picture(taylor: Slope | None) -> None:
    assert picture(taylor) == ""


def test_a_page_over_nothing_and_over_what_could_not_be_checked() -> None:
    assert data_of(page(OperatorReport(())))["operators"] == []
    row = OperatorRow("BareNodeOp", "bare", 0, {}, "declares no cases")
    (found,) = data_of(page(OperatorReport((row,))))["operators"]
    assert found["verdict"] == "declares no cases" and found["checks"] == [] and not found["ok"]


# -- the script

SCRIPT = re.compile(r'<script type="module">\n(.*?)</script>', re.DOTALL)


@pytest.mark.skipif(NODE is None, reason="there is no node to read the script with")
def test_the_script_is_well_formed(tmp_path: Path) -> None:
    path = tmp_path / "page.mjs"
    path.write_text(SCRIPT.findall(page(report_of()))[0], encoding="utf-8")
    subprocess.run([NODE or "", "--check", str(path)], check=True, capture_output=True)


PROBE = """
<script>
  window.problems = [];
  for (const name of ["error", "securitypolicyviolation", "unhandledrejection"]) {
    addEventListener(name, (event) => problems.push(`${name}: ${event.message ?? event.violatedDirective}`));
  }
  window.alert = () => problems.push("a name was obeyed");
</script>
"""
ACTIONS = """
<script type="module">
  const $ = (selector) => document.querySelector(selector);
  const names = () => [...document.querySelectorAll("tr.operator:not([hidden]) .name")];
  const seen = () => names().map((name) => name.textContent);
  const type = (text) => { $("#search").value = text; $("#search").dispatchEvent(new Event("input")); };
  const press = (key) =>
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const found = { first: seen(), verdict: $("#verdict").textContent, opened: performance.now() };
  $("#operators th:nth-child(5) button").click();
  found.sorted = [$("[aria-sort]").getAttribute("aria-sort"), ...seen()];
  type("right1");
  found.filtered = [seen(), $("#count").textContent];
  type("");
  $("#wrong").click();
  found.wrong = seen();
  $("#wrong").click();
  $("#verdict a").click();
  found.focused = document.activeElement.textContent;
  found.details = $(".details").textContent;
  found.pictures = document.querySelectorAll(".details svg polyline").length;
  press("ArrowDown");
  found.next = document.activeElement.textContent;
  press("/");
  found.searching = document.activeElement.id;
  found.problems = problems;
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium or google-chrome to open the page in")
def test_the_page_answers(tmp_path: Path) -> None:
    text = page(report_of(90)).replace("<meta charset", PROBE + "<meta charset", 1)
    path = tmp_path / "page.html"
    path.write_text(text.replace("</body>", ACTIONS + "</body>", 1), encoding="utf-8")
    run = subprocess.run(
        [CHROMIUM or "", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    out = re.search(r'<pre id="found">(.*?)</pre>', run.stdout, re.DOTALL)
    assert out, run.stderr[-2000:]
    check_answers(json.loads(html_text.unescape(out[1])))


def check_answers(found: dict[str, Any]) -> None:
    assert found["problems"] == []
    assert found["first"][:2] == ["FourthPower", "Right0NodeOp"] and len(found["first"]) == 90
    assert found["verdict"] == "1 of 90 wrong: FourthPower" and found["wrong"] == ["FourthPower"]
    assert found["sorted"][:3] == ["descending", "FourthPower", "Right88NodeOp"]
    assert found["filtered"] == [["Right1NodeOp", *(f"Right1{i}NodeOp" for i in range(10))][::-1], "11 of 90"]
    assert found["focused"] == "FourthPower" and found["pictures"] == 1
    assert "return (3 * adj * x**3,)" in found["details"] and "inf> 1e-6" in found["details"]
    assert found["next"] != "FourthPower" and found["searching"] == "search"
