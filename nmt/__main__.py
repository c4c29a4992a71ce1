"""``python -m nmt COMMAND`` is ``mgraph COMMAND``."""

from __future__ import annotations

from nmt.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
