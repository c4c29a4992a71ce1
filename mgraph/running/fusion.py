"""``FusionReport``: which nodes XLA computes in one kernel, and which values it writes to memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..node import Node

_LABEL = re.compile(r"mgraph\.(\d+)")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.+?) ([a-z][a-z0-9\-]*)\((.*)$")
_CALLED = re.compile(r"(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_NAME = re.compile(r'op_name="([^"]*)"')

_NO_KERNEL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id"}
_CONTAINERS = {"call", "while", "conditional"}


class Instruction(NamedTuple):
    """One line of a compiled module."""

    name: str
    opcode: str
    root: bool
    rest: str
    """Operands and attributes."""

    def rows(self) -> Iterator[int]:
        """The row that the instruction comes from, if any."""
        label = _NAME.search(self.rest)
        found = _LABEL.search(label[1]) if label else None
        if found:
            yield int(found[1])

    def called(self) -> list[str]:
        """The computations that it calls."""
        branches = _BRANCHES.search(self.rest)
        listed = re.findall(r"[\w.\-]+", branches[1]) if branches else []
        return [*_CALLED.findall(self.rest), *listed]


Module = dict[str, list[Instruction]]


@dataclass(frozen=True)
class Kernel:
    """A piece of compiled code: the nodes that it computes, as positions on the tape."""

    name: str
    kind: str
    """``loop``, ``library`` (a routine such as a matrix product), or XLA's name of the operation."""
    nodes: tuple[int, ...]
    written: tuple[int, ...]
    """The nodes whose values it writes to memory."""


@dataclass(frozen=True)
class FusionReport:
    """The kernels of a compiled step, in the order in which they run; prints as a list."""

    kernels: tuple[Kernel, ...]
    labels: Mapping[int, str]
    """What each node is called in print."""

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

    def __str__(self) -> str:
        lines = []
        for i, kernel in enumerate(self.kernels, 1):
            inside = ", ".join(self.labels.get(n, str(n)) for n in kernel.nodes) or "data moved"
            out = ", ".join(self.labels.get(n, str(n)) for n in kernel.written)
            lines.append(f"kernel {i:3} {kernel.kind:12} {inside}{f' -> {out}' if out else ''}")
        count = f"{len(self.kernels)} kernel{'s' * (len(self.kernels) != 1)}"
        return "\n".join(
            [f"{count}, {len(self.clusters)} nodes computed, {len(self.written)} written", *lines]
        )


def fusion_report(text: str, nodes: Sequence[Node]) -> FusionReport:
    """The report of a compiled module's text; ``nodes`` are those of the rows, in order."""
    module, entry = _parsed(text)
    kernels = []
    for instruction in _kernels(module, entry):
        inner = list(_inside(module, instruction))
        rows = sorted({row for i in (instruction, *inner) for row in i.rows()})
        written = sorted({row for i in _results(module, instruction) for row in i.rows()})
        ids = [tuple(nodes[row].id for row in found if nodes[row].children) for found in (rows, written)]
        kernels.append(Kernel(instruction.name, _kind(instruction), *ids))
    labels = {n.id: f"{n.type} {n.name if n.name != 'none' else n.id}" for n in nodes}
    return FusionReport(tuple(kernels), labels)


def _parsed(text: str) -> tuple[Module, str]:
    """The computations of a module by name, and the name of the entry."""
    module: Module = {}
    entry, current = "", ""
    for line in text.splitlines():
        instruction = _INSTRUCTION.match(line)
        if instruction and current:
            root, name, _, opcode, rest = instruction.groups()
            module[current].append(Instruction(name, opcode, bool(root), rest))
        elif opening := _COMPUTATION.match(line):
            current = opening[1]
            module[current] = []
            if line.startswith("ENTRY"):
                entry = current
    return module, entry


def _kernels(module: Module, computation: str) -> Iterator[Instruction]:
    """Instructions that run code of their own, also inside of loops and branches."""
    for instruction in module.get(computation, ()):
        if instruction.opcode in _CONTAINERS:
            for called in instruction.called():
                yield from _kernels(module, called)
        elif instruction.opcode not in _NO_KERNEL:
            yield instruction


def _inside(module: Module, instruction: Instruction) -> Iterator[Instruction]:
    for called in instruction.called():
        for inner in module.get(called, ()):
            yield inner
            yield from _inside(module, inner)


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
        return "loop" if "kind=kCustom" not in instruction.rest else "library"
    return "library" if instruction.opcode in ("dot", "convolution", "custom-call") else instruction.opcode
