"""A report on operators as an HTML page."""

from __future__ import annotations

from .page import write_page as write_page
