"""The packages that are released have what users need and nothing else."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import mgraph
from tests import release
from tests.helpers.packages import PAGES, build, files_of, metadata, problems, sources
from tests.helpers.places import ROOT


def test_wheel_and_sdist(tmp_path: Path) -> None:
    wheel, sdist = build(tmp_path)
    version = mgraph.__version__
    assert (wheel.name, sdist.name) == (
        f"mgraph_jax-{version}-py3-none-any.whl",
        f"mgraph_jax-{version}.tar.gz",
    )
    for package in wheel, sdist:
        assert problems(package) == []
        names = files_of(package)
        assert {
            "mgraph/py.typed",
            "layers/py.typed",
            "nmt/py.typed",
            "mgraph/drawing/page.js",
        } <= names.keys()
        assert "nmt/numbers/model/model.npz" in names and not any(name.startswith("tests") for name in names)
    said = metadata(wheel)
    assert said["Name"] == ["mgraph-jax"] and said["License-Expression"] == ["MIT"]
    assert said["Description-Content-Type"] == ["text/markdown"] and "# mgraph" in said["body"][0]
    assert {"cuda", "onnx", "plot", "progress", "tensorboard"} <= set(said["Provides-Extra"])
    (scripts,) = [
        text.decode() for name, text in files_of(wheel).items() if name.endswith("entry_points.txt")
    ]
    assert "mgraph = nmt.cli:process" in scripts and "mgraph-jax = nmt.cli:process" in scripts

    # The same sources make the same packages, and the sdist makes the wheel.
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    again, repeated = build(tmp_path / "again", source)
    assert again.read_bytes() == wheel.read_bytes() and files_of(repeated) == files_of(sdist)


def test_problems_are_seen(tmp_path: Path) -> None:
    package = tmp_path / "p.whl"
    files = sources()
    del files["nmt/py.typed"]
    files |= {"tests/data/secret": b"", "mgraph/__init__.py": b"", "p.dist-info/METADATA": b""}
    with zipfile.ZipFile(package, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    assert problems(package) == [
        "nmt/py.typed is missing",
        "tests/data/secret does not belong there",
        "mgraph/__init__.py differs",
    ]


def test_the_citation_has_the_version() -> None:
    assert f"\nversion: {mgraph.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_what_is_not_ready_is_not_released() -> None:
    assert "CHANGELOG.md has no section '## 99.0 (YEAR-MONTH-DAY)'" in release.unready("99.0")
    assert "CITATION.cff has another version than 99.0" in release.unready("99.0")


def test_every_pip_command_names_the_distribution() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, found = project["optional-dependencies"], []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "nmt").rglob("*.py")]:
        for name, extra in re.findall(r"install '([\w-]+)\[([\w{}]+)\]'", path.read_text()):
            assert name == project["name"], path
            assert extra in extras or "{" in extra, path
            found.append(extra)
    assert len(found) >= 4 and all((ROOT / page).exists() for page in PAGES)


def test_the_container_copies_what_the_wheel_needs() -> None:
    copied = set(re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.M))
    words = {word for line in copied for word in line.split()}
    let_through = set(re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.M))
    assert words == let_through >= {"mgraph", "layers", "nmt", "pyproject.toml", "README.md", "LICENSE"}


@pytest.mark.parametrize("page", [".github/workflows/ci.yml", ".gitlab-ci.yml"])
def test_the_services_run_what_the_project_runs(page: str) -> None:
    text = (ROOT / page).read_text()
    assert re.search(r"- (run: )?\.ci/run$", text, re.M) and "macos" in text
    versions = re.findall(r"first (python3\.\d+)", (ROOT / ".ci/run").read_text())
    assert all(version.removeprefix("python") in text for version in versions) and len(versions) == 2
