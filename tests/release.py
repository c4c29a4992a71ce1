"""A release, up to its upload: ``python -m tests.release``; see ``docs/releasing.md``.

Checks that the version is ready, runs ``.ci/run``, ``pytest -m thorough`` and ``mgraph gradcheck
--mutants``, builds the wheel and the sdist in ``dist``, compares them with the sources, has twine check
them, runs the demo from the wheel in a fresh environment, and prints the commands that tag and upload. With
``--draft`` the version need not be ready, and the three test commands are not run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import mgraph
from tests.helpers.packages import build, problems
from tests.helpers.places import ROOT


def unready(version: str) -> list[str]:
    """What keeps this version of the working tree from being released."""
    said = []
    changes = (ROOT / "CHANGELOG.md").read_text()
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", changes, re.M):
        said.append(f"CHANGELOG.md has no section '## {version} (YEAR-MONTH-DAY)'")
    if not re.search(rf"^version: {re.escape(version)}$", (ROOT / "CITATION.cff").read_text(), re.M):
        said.append(f"CITATION.cff has another version than {version}")
    if _git("status", "--porcelain"):
        said.append("the working tree has changes that are not committed")
    if _git("tag", "--list", f"v{version}"):
        said.append(f"the tag v{version} exists")
    return said


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def run(*command: str | Path) -> None:
    """Print a command and run it; raises CalledProcessError if it fails."""
    print("+", *command, flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def try_wheel(wheel: Path) -> None:
    """Run the demo in a fresh environment that has nothing but the wheel and what it depends on."""
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "venv", folder)
        own = Path(folder) / "bin"
        run(own / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel)
        print("+", own / "mgraph", "demo", flush=True)
        apart = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([own / "mgraph", "demo"], cwd=folder, env=apart, check=True)  # not from the sources


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    parser.add_argument("--draft", action="store_true", help="build and check what is there, without tests")
    draft = parser.parse_args(arguments).draft
    version = mgraph.__version__
    said = unready(version)
    for line in said:
        print(f"{version} is not ready: {line}", file=sys.stderr)
    if said and not draft:
        return 1
    try:
        if not draft:
            run(".ci/run")
            run(sys.executable, "-m", "pytest", "-m", "thorough")
            run(sys.executable, "-m", "nmt", "gradcheck", "--mutants")
        folder = ROOT / "dist"
        shutil.rmtree(folder, ignore_errors=True)
        packages = build(folder, SOURCE_DATE_EPOCH=_git("log", "-1", "--format=%ct"))
        wrong = [f"{path.name}: {line}" for path in packages for line in problems(path)]
        if wrong:
            print(*wrong, sep="\n", file=sys.stderr)
            return 1
        run(sys.executable, "-m", "twine", "check", "--strict", *packages)
        try_wheel(packages[0])
    except subprocess.CalledProcessError as error:
        print(f"failed: {' '.join(map(str, error.cmd))}", file=sys.stderr)
        return 1
    names = " ".join(str(path.relative_to(ROOT)) for path in packages)
    print(f"\n{version} is built" + (" as a draft." if said or draft else ". Publish it by:"))
    if not draft:
        print(f"  git tag -a v{version} -m 'mgraph {version}' && git push origin v{version}")
        print(f"  twine upload {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
