"""``mgraph`` with a report of its work at the end: ``python -m benchmarks.decoding.reporting decode ...``.

The last line on standard error is ``MARK`` and a JSON object.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from nmt.search.work import SearchWork

MARK = "reported:"


class Searched(logging.Handler):
    """The work that searches log."""

    def __init__(self) -> None:
        super().__init__()
        self.work = SearchWork()

    def emit(self, record: logging.LogRecord) -> None:
        self.work += getattr(record, "work", SearchWork())


def report(searched: Searched) -> dict[str, Any]:
    """What the process has compiled and searched so far."""
    from mgraph import compile_stats

    done = compile_stats()
    return {
        "idle": 100 * searched.work.idle,
        "padding": 100 * searched.work.padding,
        "compiled": done.misses - done.read,
        "read": done.read,
        "tracing": done.trace_seconds,
        "compiling": done.compile_seconds,
    }


def main() -> None:
    from nmt.cli import main as mgraph

    searched, search = Searched(), logging.getLogger("nmt.search.beam_search")
    search.addHandler(searched)
    search.setLevel(logging.DEBUG)
    code = mgraph(sys.argv[1:])
    if code:
        sys.exit(code)
    sys.stdout.flush()
    print(MARK, json.dumps(report(searched)), file=sys.stderr)


if __name__ == "__main__":
    main()
