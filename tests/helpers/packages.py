"""The wheel and the sdist: building them, and what is wrong with them."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path

from tests.helpers.places import ROOT

ROOMS = ("mgraph", "layers", "nmt")
PAGES = ("CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "constraints.txt", "pyproject.toml")
MOST_BYTES = 4 << 20
"""The size limit of a package, most of which is the shipped model."""


def build(folder: Path, source: Path = ROOT, **environment: str) -> tuple[Path, Path]:
    """Build a wheel and an sdist of ``source`` in ``folder`` with the hatchling that is installed."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    done = subprocess.run(
        command, cwd=source, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


def files_of(package: Path) -> dict[str, bytes]:
    """The files of a wheel, or of an sdist without its folder, by path."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as archive:
            return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    with tarfile.open(package) as archive:
        found = {}
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            if stream is not None:
                found[member.name.partition("/")[2]] = stream.read()
        return found


def sources() -> dict[str, bytes]:
    """The files of the rooms by path: a package must have all of them, and no other code."""
    return {
        str(path.relative_to(ROOT)): path.read_bytes()
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def problems(package: Path) -> list[str]:
    """What is wrong with the contents of a wheel or an sdist."""
    found, expected = files_of(package), sources()
    is_wheel = package.suffix == ".whl"
    allowed = (
        {name for name in found if ".dist-info/" in name.partition("licenses")[0]} if is_wheel else set()
    )
    if not is_wheel:
        expected |= {name: (ROOT / name).read_bytes() for name in PAGES}
        allowed = {name for name in found if name.startswith(("docs/", "examples/")) or name == "PKG-INFO"}
        allowed.add(".gitignore")  # hatchling adds it
    said = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    said += [f"{name} does not belong there" for name in sorted(found.keys() - expected.keys() - allowed)]
    said += [
        f"{name} differs" for name in sorted(expected.keys() & found.keys()) if expected[name] != found[name]
    ]
    if package.stat().st_size > MOST_BYTES:
        said.append(f"{package.stat().st_size} bytes, at most {MOST_BYTES} are expected")
    return said


def metadata(wheel: Path) -> dict[str, list[str]]:
    """The fields of a wheel's metadata with their values; ``body`` is the long description."""
    (text,) = [data for name, data in files_of(wheel).items() if name.endswith(".dist-info/METADATA")]
    message = HeaderParser().parsestr(text.decode())
    return {name: message.get_all(name, []) for name in message} | {"body": [message.get_payload()]}
