"""A reader of untrusted pickles: only the few operations that write a dictionary of tensors.

Python's own reader allocates, calls and hashes whatever a pickle asks for; a few bytes can fill the memory or
run forever. This one uses memory in proportion to the bytes read. Source: Python, ``pickletools``, which
documents each operation.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from mgraph import ModelFileError

MAX_OPERATIONS = 1 << 18
"""The most operations in one pickle; a tensor takes about forty."""
MAX_TEXT_BYTES = 4096
"""The most bytes in one text, which is a name."""
MAX_LINE_BYTES = 256
MAX_INTEGER_BYTES = 16

Find = Callable[[str, str], Any]
"""Finds what a module has under a name. If the result is callable, the pickle may call it."""
Load = Callable[[tuple[Any, ...]], Any]
"""Finds what a persistent id stands for."""


def read_pickle(stream: BinaryIO, find: Find, load: Load) -> Any:
    """The object of the next pickle in ``stream``, which is left at the pickle's end.

    It consists of numbers, texts, tuples, lists, dictionaries with names as keys, and the results of ``find``
    and ``load``. States of objects (``BUILD``) are ignored. ``ModelFileError`` for any other operation, for
    more than ``MAX_OPERATIONS``, texts longer than ``MAX_TEXT_BYTES`` and invalid pickles.
    """
    machine = _Machine(stream, find, load)
    code = b""
    try:
        for _ in range(MAX_OPERATIONS):
            code = stream.read(1)
            if code == pickle.STOP:
                return machine.pop()
            if not code:
                raise ModelFileError("a pickle that is cut short")
            if code not in _OPERATIONS:
                raise ModelFileError(f"a pickle with the operation {code!r}, which no tensors need")
            _OPERATIONS[code](machine)
    except ModelFileError:
        raise
    except (IndexError, KeyError, ValueError) as error:  # stack or memo lacks it; bad text or number
        raise ModelFileError(f"a damaged pickle: {code!r}: {str(error)[:80]}") from None
    raise ModelFileError(f"a pickle of more than {MAX_OPERATIONS} operations")


class _Machine:
    """The stack of objects on which operations work."""

    def __init__(self, stream: BinaryIO, find: Find, load: Load) -> None:
        self._stream, self.find, self.load = stream, find, load
        self.stack: list[Any] = []
        self._marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def mark(self) -> None:
        self._marked.append(self.stack)
        self.stack = []

    def marked(self) -> list[Any]:
        """Pop the objects after the last mark, and the mark."""
        found, self.stack = self.stack, self._marked.pop()
        return found

    def read(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) != count:
            raise ModelFileError("a pickle that is cut short")
        return data

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.read(struct.calcsize(form)))[0]

    def line(self) -> str:
        data = self._stream.readline(MAX_LINE_BYTES)
        if data[-1:] != b"\n":
            raise ModelFileError(f"a pickle with a line of {len(data)} bytes that does not end")
        return data[:-1].decode()

    def text(self, count: int) -> str:
        if count > MAX_TEXT_BYTES:
            raise ModelFileError(f"a pickle with a text of {count} bytes (at most {MAX_TEXT_BYTES} are read)")
        return self.read(count).decode()

    def integer(self, count: int) -> int:
        if count > MAX_INTEGER_BYTES:
            raise ModelFileError(
                f"a pickle with an integer of {count} bytes (at most {MAX_INTEGER_BYTES} are read)"
            )
        return int.from_bytes(self.read(count), "little", signed=True)

    def integer_line(self) -> int | bool:
        """An integer in digits; ``00`` and ``01`` are false and true."""
        digits = self.line().removesuffix("L")
        return digits == "01" if digits in ("00", "01") else int(digits)

    def gather(self, count: int) -> None:
        found = tuple(self.pop() for _ in range(count))
        self.push(found[::-1])

    def append(self, values: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise ModelFileError("a pickle that appends to something other than a list")
        self.stack[-1].extend(values)

    def set_all(self, values: list[Any]) -> None:
        """Put keys and values into the dictionary on top."""
        target = self.stack[-1]
        # Hashing any other kind of key may take forever.
        if type(target) is not dict or not all(type(key) in (str, int) for key in values[::2]):
            raise ModelFileError("a pickle of something other than a dictionary with string keys")
        target.update(zip(values[::2], values[1::2], strict=True))

    def set_one(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_all([key, value])

    def remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def global_(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:
            raise ModelFileError("a pickle that asks for an object without a name")
        self.push(self.find(module, name))

    def global_of_stack(self) -> None:
        name, module = self.pop(), self.pop()
        self.global_(module, name)

    def call(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not callable(function) or type(arguments) is not tuple:
            raise ModelFileError("a pickle that calls something that cannot be called")
        self.push(function(*arguments))

    def persistent(self) -> None:
        found = self.pop()
        if type(found) is not tuple:
            raise ModelFileError("a pickle that asks for a storage without saying which")
        self.push(self.load(found))


_OPERATIONS: dict[bytes, Callable[[_Machine], object]] = {
    pickle.PROTO: lambda m: m.read(1),
    pickle.FRAME: lambda m: m.read(8),
    pickle.MARK: lambda m: m.mark(),
    pickle.POP: lambda m: m.pop(),
    pickle.POP_MARK: lambda m: m.marked(),
    pickle.DUP: lambda m: m.push(m.stack[-1]),
    pickle.NONE: lambda m: m.push(None),
    pickle.NEWTRUE: lambda m: m.push(True),
    pickle.NEWFALSE: lambda m: m.push(False),
    pickle.INT: lambda m: m.push(m.integer_line()),
    pickle.LONG: lambda m: m.push(m.integer_line()),
    pickle.BININT: lambda m: m.push(m.number("<i")),
    pickle.BININT1: lambda m: m.push(m.number("<B")),
    pickle.BININT2: lambda m: m.push(m.number("<H")),
    pickle.LONG1: lambda m: m.push(m.integer(m.number("<B"))),
    pickle.LONG4: lambda m: m.push(m.integer(m.number("<I"))),
    pickle.BINFLOAT: lambda m: m.push(m.number(">d")),
    pickle.SHORT_BINSTRING: lambda m: m.push(m.text(m.number("<B"))),
    pickle.BINSTRING: lambda m: m.push(m.text(m.number("<I"))),
    pickle.SHORT_BINUNICODE: lambda m: m.push(m.text(m.number("<B"))),
    pickle.BINUNICODE: lambda m: m.push(m.text(m.number("<I"))),
    pickle.BINUNICODE8: lambda m: m.push(m.text(m.number("<Q"))),
    pickle.EMPTY_TUPLE: lambda m: m.push(()),
    pickle.TUPLE1: lambda m: m.gather(1),
    pickle.TUPLE2: lambda m: m.gather(2),
    pickle.TUPLE3: lambda m: m.gather(3),
    pickle.TUPLE: lambda m: m.push(tuple(m.marked())),
    pickle.EMPTY_LIST: lambda m: m.push([]),
    pickle.LIST: lambda m: m.push(m.marked()),
    pickle.APPEND: lambda m: m.append([m.pop()]),
    pickle.APPENDS: lambda m: m.append(m.marked()),
    pickle.EMPTY_DICT: lambda m: m.push({}),
    pickle.SETITEM: lambda m: m.set_one(),
    pickle.SETITEMS: lambda m: m.set_all(m.marked()),
    pickle.PUT: lambda m: m.remember(int(m.line())),
    pickle.BINPUT: lambda m: m.remember(m.number("<B")),
    pickle.LONG_BINPUT: lambda m: m.remember(m.number("<I")),
    pickle.MEMOIZE: lambda m: m.remember(len(m.memo)),
    pickle.GET: lambda m: m.push(m.memo[int(m.line())]),
    pickle.BINGET: lambda m: m.push(m.memo[m.number("<B")]),
    pickle.LONG_BINGET: lambda m: m.push(m.memo[m.number("<I")]),
    pickle.GLOBAL: lambda m: m.global_(m.line(), m.line()),
    pickle.STACK_GLOBAL: lambda m: m.global_of_stack(),
    pickle.REDUCE: lambda m: m.call(),
    pickle.BUILD: lambda m: m.pop(),
    pickle.BINPERSID: lambda m: m.persistent(),
}
