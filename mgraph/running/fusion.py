"""``FusionReport``: which nodes XLA computes in one kernel, and which values it writes to memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..node import Node
from .modules import CONTAINERS, Instruction, Module, inside, parsed

_NO_KERNEL = {
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id",
    "opt-barrier",
}  # fmt: skip
LIBRARY = "library"


@dataclass(frozen=True)
class Kernel:
    """A piece of compiled code: the nodes that it computes, as positions on the tape."""

    name: str
    kind: str
    """``loop``, ``library`` (a routine such as a matrix product), or XLA's name of the operation."""
    nodes: tuple[int, ...]
    written: tuple[int, ...]
    """The nodes whose values it writes to memory."""


RESULT = "a result"
ROUTINE = "of a library routine, which XLA fuses with nothing"
BEFORE_ROUTINE = "read by a library routine"
KEPT = "stored on purpose, rather than computed again for each reader"
SEVERAL = "read by several kernels"
COMPLETE = "needed complete before it is read"
_MOST = 3
"""How many nodes a line of the summary names for one reason."""


@dataclass(frozen=True)
class FusionReport:
    """The kernels of a compiled step, in the order in which they run; prints as a summary of three lines and
    the list."""

    kernels: tuple[Kernel, ...]
    labels: Mapping[int, str]
    """What each node is called in print."""
    reasons: Mapping[int, str]
    """For each node whose value is written to memory, why its kernel ends there."""

    @property
    def clusters(self) -> dict[int, str]:
        """For each node the first kernel that computes it."""
        clusters: dict[int, str] = {}
        for kernel in self.kernels:
            for node in kernel.nodes:
                clusters.setdefault(node, kernel.name)
        return clusters

    @property
    def written(self) -> frozenset[int]:
        """The nodes whose values are written to memory."""
        return frozenset(node for kernel in self.kernels for node in kernel.written)

    def contents(self, kernel: Kernel) -> str:
        """The nodes that a kernel computes, in words."""
        return ", ".join(self.labels.get(n, str(n)) for n in kernel.nodes) or "data moved"

    @property
    def summary(self) -> str:
        """Three lines: how many kernels, what was fused, and what was not and why."""
        computing = sum(bool(kernel.nodes) for kernel in self.kernels)
        others = len(self.kernels) - computing
        nodes = len(self.clusters)
        count = f"{computing} kernel{'s' * (computing != 1)}, {nodes} node{'s' * (nodes != 1)} computed"
        more = f"; {others} more draw random numbers or move data" if others else ""
        chains = dict.fromkeys(kernel.nodes for kernel in self.kernels if len(kernel.nodes) > 1)
        fused = "; ".join(self._named(chain, " with ") for chain in [*chains][:_MOST])
        rest = f"; {len(chains) - _MOST} more" if len(chains) > _MOST else ""
        by_reason: dict[str, list[int]] = {}
        for node in sorted(self.written):
            by_reason.setdefault(self.reasons[node], []).append(node)
        apart = "; ".join(f"{self._named(nodes, ', ')} ({why})" for why, nodes in by_reason.items())
        return "\n".join(
            [
                f"{count}, {len(self.written)} written to memory{more}",
                f"fused: {fused or 'nothing'}{rest}",
                f"written: {apart or 'nothing'}",
            ]
        )

    def _named(self, nodes: Sequence[int], between: str) -> str:
        names = [self.labels.get(node, str(node)) for node in nodes[:_MOST]]
        return between.join(names) + (f" and {len(nodes) - _MOST} more" if len(nodes) > _MOST else "")

    def __str__(self) -> str:
        lines = [self.summary]
        for i, kernel in enumerate(self.kernels, 1):
            if not kernel.nodes:
                continue
            inside = self.contents(kernel)
            out = ", ".join(self.labels.get(n, str(n)) for n in kernel.written)
            lines.append(f"kernel {i:3} {kernel.kind:12} {inside}{f' -> {out}' if out else ''}")
        return "\n".join(lines)

    __repr__ = __str__  # for prompts and notebooks


def fusion_report(text: str, nodes: Sequence[Node]) -> FusionReport:
    """The report on a compiled module, from its text; ``nodes`` has the node of each row, in order."""
    module, entry = parsed(text)
    kernels = []
    for instruction in _kernels(module, entry):
        inner = list(inside(module, instruction))
        rows = sorted({row for i in (instruction, *inner) for row in i.rows()})
        written = sorted({row for i in _results(module, instruction) for row in i.rows()})
        ids = [tuple(nodes[row].id for row in found if nodes[row].children) for found in (rows, written)]
        kernels.append(Kernel(instruction.name, _kind(instruction), *ids))
    labels = {n.id: f"{n.type} {n.name if n.name != 'none' else n.id}" for n in nodes}
    return FusionReport(tuple(kernels), labels, _reasons(kernels, nodes))


def _reasons(kernels: Sequence[Kernel], nodes: Sequence[Node]) -> dict[int, str]:
    """For each value that is written to memory, why it is written."""
    readers: dict[int, set[int]] = {}
    for node in nodes:
        for child in node.children:
            readers.setdefault(child.id, set()).add(node.id)
    known = {node.id: node for node in nodes}
    written = {node for kernel in kernels for node in kernel.written}
    return {node: _reason(known[node], readers.get(node, set()), kernels) for node in written}


def _reason(node: Node, readers: set[int], kernels: Sequence[Kernel]) -> str:
    own = [kernel for kernel in kernels if node.id in kernel.written]
    if not readers:
        return RESULT
    if any(kernel.kind == LIBRARY for kernel in own):
        return ROUTINE
    after = [kernel for kernel in kernels if readers & set(kernel.nodes) and kernel not in own]
    if any(kernel.kind == LIBRARY for kernel in after):
        return BEFORE_ROUTINE
    if type(node).computed_once:
        return KEPT
    return SEVERAL if len(after) > 1 else COMPLETE


def _kernels(module: Module, computation: str) -> Iterator[Instruction]:
    """Instructions that run their own code, also inside loops and branches."""
    for instruction in module.get(computation, ()):
        if instruction.opcode in CONTAINERS:
            for called in instruction.called():
                yield from _kernels(module, called)
        elif instruction.opcode not in _NO_KERNEL:
            yield instruction


def _results(module: Module, instruction: Instruction) -> Iterator[Instruction]:
    """The instructions whose values a kernel writes: its root, or the parts of a root that is a tuple."""
    if instruction.opcode != "fusion":
        yield instruction
        return
    fused = module.get(instruction.called()[0], [])
    roots = [i for i in fused if i.root]
    if roots and roots[0].opcode == "tuple":
        parts = set(re.findall(r"%([\w.\-]+)", roots[0].rest.partition(")")[0]))
        yield from (i for i in fused if i.name in parts)
    else:
        yield from roots or [instruction]


def _kind(instruction: Instruction) -> str:
    if instruction.opcode == "fusion":
        return "loop" if "kind=kCustom" not in instruction.rest else LIBRARY
    return LIBRARY if instruction.opcode in ("dot", "convolution", "custom-call") else instruction.opcode
