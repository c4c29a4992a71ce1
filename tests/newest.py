"""The quick tests with the newest releases of everything: ``python -m tests.newest [PYTHON]``.

For maintainers, once a week or so, and before a release: makes a fresh environment with the named Python, or
with the one that runs this, installs the newest releases that pip finds without constraints, prints what has
changed since ``constraints.txt``, and runs the quick tests. If all pass, the printed versions can go there.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers.places import ROOT


def held(text: str, version: str) -> dict[str, str]:
    """The versions by package that constraints name for a version of Python such as ``3.12``."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition("#")[0].partition("==")
        wanted, _, marker = rest.partition(";")
        condition = re.search(r'python_version (<|>=) "3\.(\d+)"', marker)
        minor = int(version.split(".")[1])
        if condition and (minor < int(condition[2])) is not (condition[1] == "<"):
            continue
        if wanted:
            found[name.strip().lower().replace("_", "-")] = wanted.strip()
    return found


def main(arguments: list[str]) -> int:
    python = arguments[0] if arguments else sys.executable
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        own = str(Path(folder) / "bin" / "python")
        pip = [own, "-m", "pip", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", "--upgrade", "-e", ".[test]"], cwd=ROOT, check=True)
        show = "import sys; print('%d.%d' % sys.version_info[:2])"
        version, frozen = (
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
            for command in ([own, "-c", show], [*pip, "freeze", "--exclude-editable"])
        )
        before, now = (
            held((ROOT / "constraints.txt").read_text(), version.strip()),
            held(frozen, version.strip()),
        )
        for name in sorted(now):
            if now[name] != before.get(name):
                print(f"{name} {now[name]}, constraints.txt has {before.get(name, 'none')}", flush=True)
        return subprocess.run([own, "-m", "pytest", "-m", "quick"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
