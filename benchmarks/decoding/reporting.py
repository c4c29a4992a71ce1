"""``mgraph``, which then says what it compiled: ``python -m benchmarks.decoding.reporting decode ...``.

The last line on standard error is ``MARK`` and a JSON object.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MARK = "reported:"


def report() -> dict[str, Any]:
    """What the process has compiled so far. What the search counts of itself belongs here, too."""
    from mgraph import compile_stats

    done = compile_stats()
    return {
        "compiled": done.misses - done.read,
        "read": done.read,
        "tracing": done.trace_seconds,
        "compiling": done.compile_seconds,
    }


def main() -> None:
    from nmt.cli import main as mgraph

    code = mgraph(sys.argv[1:])
    if code:
        sys.exit(code)
    sys.stdout.flush()
    print(MARK, json.dumps(report()), file=sys.stderr)


if __name__ == "__main__":
    main()
