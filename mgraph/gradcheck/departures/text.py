"""An examination of a loss as text: blocks and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...tables import table
from .nodes import ChildCheck, LayerCheck, NodeCheck

LEGEND = (
    "Largest relative differences: in float32 from float64, of values, adjoints by JAX and by rules;",
    "in float64 of rules from JAX, of all rules together (adjoints) and of each alone (its gradients).",
)
COLUMNS = ("values", "by jax", "by rules", "together", "alone")
ADJOINTS = ("rounding", "rule_rounding", "float64")


def block(node: NodeCheck) -> Iterator[str]:
    """The lines about an operator that departs."""
    yield f"{node.label} in {node.layer}: {node.verdict}"
    yield f"  {node.place}"
    if node.problem:
        yield f"  {node.problem}"
    if node.children:
        yield from table(child_rows(node.children), "<<>>>><>><")
    yield from (f"  {line}" for line in likenesses(node))


def likenesses(node: NodeCheck) -> Iterator[str]:
    """How the wrong gradients relate to the right ones."""
    for child in node.children:
        if "float64" in child.objections and child.likeness:
            yield f"the gradient by {child.name} is {child.likeness}"


def child_rows(children: Sequence[ChildCheck]) -> list[tuple[str, ...]]:
    """A header, and a row for each child: magnitudes, the worst element and both gradients there."""
    rows: list[tuple[str, ...]] = [
        ("gradient by", "shape", "value", "largest", "rule - jax", "allowed", "at", "jax", "rule", "")
    ]
    for child in children:
        for kind, c in child.comparisons.items():
            wrong = kind in child.objections
            if kind == "float64" or (wrong and "float64" not in child.objections):
                place = str(list(child.index(kind))) if wrong else ""
                place += f" in step {child.step}" if wrong and child.step is not None else ""
                both = (f"{c.expected:.6g}", f"{c.found:.6g}") if wrong else ("", "")
                numbers = (f"{n:.1e}" for n in (c.value, c.size, c.difference, c.allowed))
                name = child.name if kind == "float64" else f"{child.name} in {kind}"
                verdict = "WRONG" if wrong else "ok"
                rows.append((name, shape_of(child), *numbers, place, *both, verdict))
    return rows


def shape_of(child: ChildCheck) -> str:
    """Sizes of the axes."""
    return "x".join(map(str, child.shape)) or "scalar"


def layer_table(layers: Sequence[LayerCheck]) -> list[str]:
    """A row for each layer."""
    rows: list[tuple[str, ...]] = [("layer", "operators", *COLUMNS, "")]
    for layer in layers:
        numbers = (layer.value, *(layer.adjoint(name) for name in ADJOINTS), layer.worst)
        rows.append((layer.name, str(len(layer.nodes)), *map(_text, numbers), layer.verdict))
    return table(rows, "<>>>>>><")


def node_table(nodes: Sequence[NodeCheck]) -> list[str]:
    """A row for each operator, with the columns of ``layer_table``."""
    rows: list[tuple[str, ...]] = [("operator", "layer", *COLUMNS, "")]
    for node in nodes:
        numbers = map(_text, (*errors_of(node), node.worst))
        rows.append((node.label, node.layer, *numbers, node.verdict))
    return table(rows, "<<>>>>><")


def errors_of(node: NodeCheck) -> tuple[float | None, ...]:
    """The relative errors of an operator's value and of its ``ADJOINTS``."""
    value = node.value.relative if node.value is not None else None
    return value, *(node.adjoints[name].relative if name in node.adjoints else None for name in ADJOINTS)


def _text(number: float | None) -> str:
    return "" if number is None else f"{number:.1e}"
