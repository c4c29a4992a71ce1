"""Code in pages: it runs, and prints what its comments say."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence


def promised(code: str) -> list[str]:
    """The output that comments promise: after a ``print`` or on the line below it."""
    behind = re.findall(r"^print\(.*\)\s+# (.*)$", code, re.MULTILINE)
    below = re.findall(r"^print\([^#\n]*\)\n# (.*)$", code, re.MULTILINE)
    return [line for line in (*behind, *below) if "..." not in line]


ROUNDING = re.compile(r"0\.0e\+00|\d\.\de-(0[6-9]|[1-9]\d)")
"""Numbers that differ from machine to machine."""


def check_blocks(blocks: list[str], name: str, shown: Sequence[str] = ()) -> list[str]:
    """Run the blocks of a page in order; return the lines that they promise, once all were printed.

    The texts in ``shown`` must be printed, too, except for numbers so small that they are rounding errors.
    """
    namespace: dict[str, object] = {}
    expected: list[str] = []
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in blocks:
            exec(compile(code, name, "exec"), namespace)
            expected += promised(code)
    for line in expected:
        assert line in printed.getvalue()
    for text in shown:
        assert ROUNDING.sub("...", text) in ROUNDING.sub("...", printed.getvalue()), printed.getvalue()
    return expected
