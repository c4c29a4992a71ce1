"""Code in pages: it runs, and prints what the comments beside it say."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence


def promised(code: str) -> list[str]:
    """What comments say that is printed: behind a ``print`` or on the line below it."""
    behind = re.findall(r"^print\(.*\)\s+# (.*)$", code, re.MULTILINE)
    below = re.findall(r"^print\([^#\n]*\)\n# (.*)$", code, re.MULTILINE)
    return [line for line in (*behind, *below) if "..." not in line]


ROUNDING = re.compile(r"0\.0e\+00|\d\.\de-(0[6-9]|[1-9]\d)")
"""Numbers that differ from machine to machine."""


def check_blocks(blocks: list[str], name: str, shown: Sequence[str] = ()) -> list[str]:
    """Run the blocks of a page one after another; what they promise, which was printed.

    So were the texts that are ``shown``, up to numbers so small that they are of rounding.
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
