"""The text of a compiled module: its computations, and the instructions in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LABEL = re.compile(r"mgraph\.(\d+)")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.+?) ([a-z][a-z0-9\-]*)\((.*)$")
_CALLED = re.compile(r"(?:calls|to_apply|body|true_computation|false_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_NAME = re.compile(r'op_name="([^"]*)"')
CONTAINERS = {"call", "while", "conditional"}
"""Operations that only run the computations that they call."""


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
        """The computations that the instruction calls."""
        branches = _BRANCHES.search(self.rest)
        listed = re.findall(r"[\w.\-]+", branches[1]) if branches else []
        return [*_CALLED.findall(self.rest), *listed]


Module = dict[str, list[Instruction]]


def parsed(text: str) -> tuple[Module, str]:
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


def inside(module: Module, instruction: Instruction) -> Iterator[Instruction]:
    """The instructions of all computations that an instruction calls."""
    for called in instruction.called():
        for inner in module.get(called, ()):
            yield inner
            yield from inside(module, inner)
