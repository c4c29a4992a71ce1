"""Number words: English to German for 0 to 999,999, the small task that ships with the package.

Rules write the words (``words``) and the corpus (``heldout``, or ``python -m nmt.numbers`` for files);
``model_dir`` holds a transformer that Marian trained on it.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from nmt.numbers.corpus import heldout as heldout
from nmt.numbers.corpus import is_heldout as is_heldout
from nmt.numbers.words import english as english
from nmt.numbers.words import german as german


def model_dir() -> Path:
    """Return the folder of the shipped model: ``model.npz``, ``vocab.spm``, ``decoder.yml``."""
    return Path(str(resources.files("nmt.numbers") / "model"))
