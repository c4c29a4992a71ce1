"""Makes the files in this folder: Marian converts models to ``.bin``.

    python make_references.py           (needs the command ``pymarian``; made with 1.12.42)

``model.bin`` is made from ``model.npz``; ``convert --gemm-type TYPE`` makes ``quantized.TYPE.bin`` from
``quantized.npz``. Marian quantizes parameters named ``..._W`` or ``..._W?``. Sizes are multiples of 16,
because Marian garbles other matrices.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

from mgraph.files.items import MODEL_YML, with_model_yml, write_npz

HERE = Path(__file__).parent
TYPES = (
    *("float32", "intgemm8", "intgemm8ssse3", "intgemm8avx2", "intgemm8avx512"),
    *("intgemm16", "intgemm16sse2", "intgemm16avx2", "intgemm16avx512"),
)


def convert(source: Path, target: Path, gemm_type: str) -> None:
    command = ["pymarian", "convert", "-f", str(source), "-t", str(target), "--gemm-type", gemm_type]
    subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    generator = np.random.default_rng(1)
    items = {
        "tall_W": generator.normal(0, 0.4, (64, 16)).astype(np.float32),
        "wide_Wx": generator.normal(0, 0.1, (16, 64)).astype(np.float32),
        "ff_bias": generator.normal(0, 1, (1, 16)).astype(np.float32),
        "table": np.arange(5, dtype=np.int32),
        MODEL_YML: with_model_yml("type: none\nversion: v1"),
    }
    write_npz(HERE / "quantized.npz", items)
    for gemm_type in TYPES:
        convert(HERE / "quantized.npz", HERE / f"quantized.{gemm_type}.bin", gemm_type)
    convert(HERE / "model.npz", HERE / "model.bin", "float32")


if __name__ == "__main__":
    main()
