"""A report of operators as a page to look at."""

from __future__ import annotations

from .page import write_page as write_page
