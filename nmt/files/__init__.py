"""Read and write models: Marian's files, directories of them, and HuggingFace's checkpoints."""

from __future__ import annotations

from nmt.files.loading import create_model as create_model
from nmt.files.loading import load_model as load_model
from nmt.files.saving import convert_model as convert_model
from nmt.files.saving import save_model as save_model
