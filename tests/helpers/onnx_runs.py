"""ONNX files, run by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def run(path: Path, **inputs: Any) -> dict[str, np.ndarray]:
    """The outputs of a model by name."""
    from onnxruntime import InferenceSession  # an extra; without it, the tests are skipped

    session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))
