"""Where the time of compiled programs goes on a CPU: their kernels, by the operators that they come from.

XLA's dump of a program tells in which operator's scope and in which functions each kernel was traced; JAX's
profiler tells when it ran. A process must start with the folder of the dump in its environment, and have one
thread, so that kernels do not overlap and their seconds add up.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax

from mgraph.running.modules import CONTAINERS, Instruction, inside, parsed
from mgraph.running.profile import kernel_events

PRODUCTS = "products"
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_ENTRY = re.compile(r"^(\d+) (.*)$")
_LINK = re.compile(r"(\w+)_id=(\d+)")
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_SCOPE = re.compile(r'op_name="[^"]*?(transpose\()?(?:jvp\()?mgraph\.([^/")]+)')
_MULTIPLY = {"dot", "convolution"}
_OURS = ("mgraph", "layers", "nmt")


def dump_to(folder: Path) -> dict[str, str]:
    """The environment of a process whose programs ``kernels`` will read; it reads none from a cache."""
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*"
    return {"XLA_FLAGS": flags, "JAX_COMPILATION_CACHE_DIR": ""}


def kernels(folder: Path) -> dict[int, dict[str, str]]:
    """The origins of the kernels of programs that were dumped into a folder, by the number of the program and
    the name of the kernel."""
    paths = folder.glob("module_*after_optimizations.txt")
    return {
        int(path.name.split(".")[0].removeprefix("module_")): _Program(path.read_text()).origins()
        for path in paths
        if path.stat().st_size
    }


class _Program:
    """The text of a compiled program."""

    def __init__(self, text: str) -> None:
        self._module, _ = parsed(text)
        self._tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
        table = ""
        for line in text.splitlines():
            if line in _TABLES:
                table = line
            elif table and (entry := _ENTRY.match(line)):
                self._tables[table][int(entry[1])] = entry[2]
            elif line:
                table = ""

    def origins(self) -> dict[str, str]:
        """The origins of instructions, by name."""
        instructions = [i for computation in self._module.values() for i in computation]
        return {i.name: self._origin(i) for i in instructions if i.opcode not in CONTAINERS}

    def _origin(self, instruction: Instruction) -> str:
        every = [instruction, *inside(self._module, instruction)]
        if any(i.opcode in _MULTIPLY for i in every):
            return PRODUCTS
        origins = Counter(filter(None, map(self._operator, every)))
        return origins.most_common(1)[0][0] if origins else f"XLA's {instruction.opcode}"

    def _operator(self, instruction: Instruction) -> str:
        """The operator whose code an instruction comes from, or the innermost function of this project."""
        if scope := _SCOPE.search(instruction.rest):
            return scope[2] + " backwards" * bool(scope[1])
        frame = _FRAME.search(instruction.rest)
        return next(self._functions(int(frame[1])), "") if frame else ""

    def _functions(self, frame: int) -> Iterator[str]:
        """The functions of this project that a frame is in, the innermost first."""
        while frame:
            links = _links(self._tables["StackFrames"][frame])
            place = _links(self._tables["FileLocations"][links["file_location"]])
            file = self._tables["FileNames"][place["file_name"]]
            if any(f"/{room}/" in file for room in _OURS):
                name = self._tables["FunctionNames"][place["function_name"]].strip('"')
                yield name.partition(".<locals>")[0]
            frame = links.get("parent_frame", 1) - 1  # in the text, 1 means none


def _links(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in _LINK.findall(text)}


def profiled(run: Callable[[], float], dumped: Path) -> dict[str, Any]:
    """The kernels that ran during ``run``, which returns its seconds: their ``seconds`` and ``counts`` by
    origin, and the seconds of the ``whole``.

    Programs share names of kernels; the profiler identifies a program by its number in the dump.
    """
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    known = kernels(dumped)
    names = set().union(*known.values())
    seconds, counts = Counter[str](), Counter[str]()
    with TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            whole = run()
        for event in kernel_events(Path(folder), names):
            origin = known[dict(event.stats)["program_id"]][event.name]
            seconds[origin] += event.duration_ns * 1e-9
            counts[origin] += 1
    return {"seconds": seconds, "counts": counts, "whole": whole}
