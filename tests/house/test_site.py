"""The site: its reference has all public names, its navigation all pages."""

from __future__ import annotations

import importlib
import importlib.util
import re
from types import ModuleType

import pytest

from tests.helpers.places import ROOT


def hook() -> ModuleType:
    """The module that makes the pages of the reference."""
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site_pages.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = hook()


def of_the_house(package: ModuleType, name: str) -> bool:
    """Whether a name in a package's namespace is meant for users: no import for its own use, no room."""
    value = getattr(package, name)
    if isinstance(value, ModuleType):
        return f"from . import {name} as {name}" in (ROOT / package.__name__ / "__init__.py").read_text()
    return name not in ("annotations", "Any", "ModuleType", "TYPE_CHECKING")


@pytest.mark.parametrize("package", ["mgraph", "layers", "nmt"])
def test_the_reference_has_all_public_names(package: str) -> None:
    module = importlib.import_module(package)
    public = {name for name in dir(module) if name[0] != "_" and of_the_house(module, name)} - {"HOMES"}
    text = "".join(PAGES.reference(page) for page, (of, _) in PAGES.REFERENCE.items() if of == package)
    shown = re.findall(rf"^::: {package}\.(\w+)$", text, re.MULTILINE)
    assert sorted(shown) == sorted(public)
    values = {name: getattr(module, name) for name in public}
    assert not [name for name, value in values.items() if callable(value) and not value.__doc__]


@pytest.mark.parametrize("package", ["mgraph", "nmt"])
def test_a_star_imports_the_public_names_and_nothing_else(package: str) -> None:
    names: dict[str, object] = {}
    exec(f"from {package} import *", names)
    public = [name for names in PAGES.public_names(package).values() for name in names]
    assert sorted(names.keys() - {"__builtins__"}) == sorted(public)


def test_the_navigation_has_all_pages() -> None:
    configuration = (ROOT / "mkdocs.yml").read_text()
    for path in (ROOT / "docs").glob("*.md"):
        assert re.search(rf"[ :-] {re.escape(path.name)}$", configuration, re.MULTILINE), path.name


def test_links_out_of_the_pages_lead_somewhere() -> None:
    pages = (ROOT / "docs").glob("*.md")
    found = [(path, target) for path in pages for _, _, target, _ in PAGES.OUTSIDE.findall(path.read_text())]
    assert found, "no link is seen"
    for path, target in found:
        assert (ROOT / target).exists(), f"{path.name}: {target}"


def test_links_lead_to_pages_that_the_sources_have() -> None:
    pages, link = (ROOT / "docs").glob("*.md"), re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
    found = [(path, target) for path in pages for target in link.findall(path.read_text())]
    assert found, "no link is seen"
    for path, target in found:
        assert (path.parent / target).exists(), f"{path.name}: {target}"


def test_every_reference_and_copied_page_can_be_linked_from_the_sources() -> None:
    made = {path for section, path, _ in PAGES.made_pages() if section in ("Reference", "Project")}
    assert set(PAGES.PAGE_OF.values()) == made
    assert all((ROOT / source).exists() for source in PAGES.PAGE_OF)
