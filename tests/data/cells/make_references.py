"""Makes the files in this folder: Marian's scores of the models of ``tests/helpers/cell_models.py``.

PYTHONPATH=../../.. python make_references.py      (needs the command ``pymarian``; made with 1.12.42)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2]))

from tests.helpers.cell_models import ROWS, TEXTS, VOCABS, make  # noqa: E402

SCORE = "--word-scores --mini-batch 1 --maxi-batch 1 --cpu-threads 1 -w 200 --quiet".split()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            path = Path(folder) / f"{row}.npz"
            make(row).new_graph().save(path)
            command = ["pymarian", "score", "-m", path, "-v", *VOCABS, "-t", *TEXTS, *SCORE]
            found = subprocess.run(command, check=True, capture_output=True)
            (HERE / f"{row}.txt").write_bytes(found.stdout)


if __name__ == "__main__":
    main()
