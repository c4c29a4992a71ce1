"""Pages of the site that are made from the code: the reference of all public names, examples, notebooks.

A hook of MkDocs (``mkdocs.yml``). It imports nothing of the project.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = {
    "graph": ("mgraph", "The graph, its checks and its tools"),
    "operators": ("mgraph", "Operators"),
    "layers": ("layers", "Layers"),
    "nmt": ("nmt", "Translation models"),
}
"""Pages of the reference: the package and the title of each."""
COPIED = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}
PAGE_OF = {source: page for page, source in COPIED.items()} | {
    "mgraph/__init__.py": "reference/graph.md",
    "mgraph/inits.py": "reference/graph.md",
    "mgraph/ops": "reference/operators.md",
    "layers/__init__.py": "reference/layers.md",
    "nmt/__init__.py": "reference/nmt.md",
}
"""Made pages, by the files that links to them name, so that these lead somewhere in the sources, too."""
OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(\.\./([^)#]+)(#[^)]*)?\)")
"""Links out of ``docs``."""
_FROM_ROOT = re.compile(r"\]\(docs/")


def public_names(package: str) -> dict[str, list[str]]:
    """The public names of a package by the module they come from: what its ``__init__`` imports as itself.

    A module that is public is the only name of itself.
    """
    found: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse((ROOT / package / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom):
            base = ".".join(part for part in (package * bool(node.level), node.module) if part)
            for alias in node.names:
                if alias.asname == alias.name:
                    home = base if _file(f"{base}.{alias.name}") is None else f"{base}.{alias.name}"
                    names = found.setdefault(home, [])
                    names += [alias.name] * (alias.name not in names)
    return found


def reference(page: str) -> str:
    """A page of the reference: each public name, under the heading of the module that it comes from."""
    package, title = REFERENCE[page]
    parts = [f"# {title}", f"All public names of `{package}` on this subject: `import {package}`."]
    for home, names in public_names(package).items():
        if page not in ("graph", "operators") or (page == "operators") == home.startswith("mgraph.ops."):
            path = _file(home)
            text = ast.get_docstring(ast.parse(path.read_text())) if path else None
            first = " ".join((text or home).partition("\n\n")[0].split())
            parts += [f"## {_heading(first)}", first, *(f"::: {package}.{name}" for name in names)]
    return "\n\n".join([*parts, ""])


def example(path: Path) -> str:
    """A script as a page: its docstring and its code."""
    source = path.read_text()
    text = ast.get_docstring(ast.parse(source)) or path.stem
    first = text.partition("\n")[0]
    title = re.split(r"[:.,]", first)[0]
    return f"# {title}\n\n{text}\n\n`python examples/{path.name}`\n\n```python\n{source}```\n"


def notebook(path: Path) -> str:
    """A notebook as a page: its texts and its code."""
    parts = [f"`examples/notebooks/{path.name}`"]
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    parts[:2] = parts[1::-1]  # the title first
    return "\n\n".join([*parts, ""])


def made_pages() -> Iterator[tuple[str, str, str]]:
    """Section of the navigation, path in the site and text of each page that is made."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield "Examples", f"examples/{path.stem}.md", example(path)
    for path in sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")):
        yield "Notebooks", f"examples/notebooks/{path.stem}.md", notebook(path)
    for page in REFERENCE:
        yield "Reference", f"reference/{page}.md", reference(page)
    for target, source in COPIED.items():
        yield "Project", target, _FROM_ROOT.sub("](", (ROOT / source).read_text())


def on_config(config: Any) -> Any:
    """Add the made pages to the navigation."""
    sections: dict[str, list[str]] = {}
    for section, path, _ in made_pages():
        sections.setdefault(section, []).append(path)
    config.nav += [{section: paths} for section, paths in sections.items()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the made pages to the files."""
    from mkdocs.structure.files import File  # only there where the site is built

    for _, path, text in made_pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, files: Any, **_: Any) -> str:
    """Lead links out of ``docs`` to the page made of the file, or name the file."""

    def led(match: re.Match[str]) -> str:
        _, text, path, anchor = match.groups()
        target = PAGE_OF.get(path) or str(Path(path).with_suffix(".md"))
        if files.get_file_from_path(target):
            return f"[{text}]({target}{anchor or ''})"
        return f"{text} (`{path}`)"

    return markdown if "/" in page.file.src_uri else OUTSIDE.sub(led, markdown)


def _file(module: str) -> Path | None:
    """The file of a module of the project."""
    path = ROOT.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()), None)


def _heading(sentence: str) -> str:
    return re.split(r"[:.,;]( |$)| \(", sentence)[0].strip().replace("``", "`")
