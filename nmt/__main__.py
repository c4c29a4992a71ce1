"""``python -m nmt COMMAND`` is ``mgraph COMMAND``."""

from __future__ import annotations

from nmt.cli import process

if __name__ == "__main__":
    raise SystemExit(process())
