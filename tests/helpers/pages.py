"""Code in pages: it runs, and prints what the comments beside it say."""

from __future__ import annotations

import contextlib
import io
import re


def promised(code: str) -> list[str]:
    """What comments say that is printed: behind a ``print`` or on the line below it."""
    behind = re.findall(r"^print\(.*\)\s+# (.*)$", code, re.MULTILINE)
    below = re.findall(r"^print\([^#\n]*\)\n# (.*)$", code, re.MULTILINE)
    return [line for line in (*behind, *below) if "..." not in line]


def check_blocks(blocks: list[str], name: str) -> list[str]:
    """Run the blocks of a page one after another; what they promise, which was printed."""
    namespace: dict[str, object] = {}
    expected: list[str] = []
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in blocks:
            exec(compile(code, name, "exec"), namespace)
            expected += promised(code)
    for line in expected:
        assert line in printed.getvalue()
    return expected
