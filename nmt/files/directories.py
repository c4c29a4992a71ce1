"""Directories of published models: OPUS-MT's, Firefox Translations', Marian's own.

- OPUS-MT: ``decoder.yml``, ``*.npz``, ``*.vocab.yml`` (or ``*.src.vocab*`` and ``*.trg.vocab*``), and
  ``source.spm``, ``target.spm``, which split and join raw text.
- Firefox Translations and Bergamot's students: ``model*.bin``, ``vocab*.spm`` (or ``srcvocab*.spm`` and
  ``trgvocab*.spm``), ``lex*.s2t.bin``, with or without ``config*.yml``.
- Marian: ``model.npz`` with ``model.npz.decoder.yml``, which training writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

from mgraph.files.paths import path_text
from mgraph.names import first_of
from nmt.settings import DECODE, Command, OptionError

# Decoder configurations have `models:`, those of training `model:`; in a vocabulary, an id follows the word.
_CONFIG = re.compile(rb"""^(?:\xef\xbb\xbf)?(["']?)models\1[ \t]*:(?![ \t]*\d+[ \t]*\r?$)""", re.MULTILINE)
_CONFIG_BYTES = 1 << 16
PIECES = ("source.spm", "target.spm")
_PATHS = ("models", "vocabs")
_SOURCE_VOCABS = ("srcvocab*", "*src.vocab*", "vocab.src.*")
_TARGET_VOCABS = ("trgvocab*", "*trg.vocab*", "vocab.trg.*")
_VOCAB_ENDINGS = (".spm", ".yml", ".yaml", ".json", ".txt", ".vocab")
_HUGGINGFACES = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"}
_NO_MODELS = ("*.optimizer.npz", "*.orig.npz", "lex*", "*.s2t.bin")
_MOST_NAMED = 20

# Bergamot's programs set these for models without a configuration.
FIREFOX_OPTIONS: dict[str, Any] = {
    "beam_size": 1,
    "normalize": 1.0,
    "max_length_factor": 2.0,
    "mini_batch": 64,
    "maxi_batch": 1000,
    "maxi_batch_sort": "src",
}


class DirectoryError(OptionError):
    """A directory does not hold exactly one model with its vocabularies; the message lists its files."""


def read_directory(
    path: str | os.PathLike[str], config: str = "", *, command: Command[Any] = DECODE, **options: Any
) -> dict[str, Any]:
    """The arguments of ``Translator`` for the model in the directory ``path``.

    They are ``models``, ``vocabs``, ``pieces`` for OPUS-MT, ``shortlist`` if any, and the configuration's
    options for search and batches; ``options`` override them.

    config: the name of the configuration to use, if there are several. A bare name in a configuration, or a
    path that does not exist, as after the directory was moved, means the file of that name in the directory.
    command: whose options a configuration may have; those of the command line only, such as ``port``, do not
    count.

    Raises DirectoryError for no or several candidates, OptionError for an invalid configuration, OSError for
    files that cannot be read.
    """
    return _Directory(path_text(path), command).arguments(config, options)


def names_models(path: str) -> bool:
    """Whether a YAML file is a configuration for decoding: it has ``models:``. OSError if unreadable."""
    with open(path, "rb") as stream:
        return _CONFIG.search(stream.read(_CONFIG_BYTES)) is not None


class _Directory:
    """The names in a directory, and their roles."""

    def __init__(self, path: str, command: Command[Any]) -> None:
        self.path, self._command = path, command
        if not os.path.isdir(path):
            raise DirectoryError(f"{path}: expected a model directory")
        present = [entry for entry in os.scandir(path) if not entry.name.startswith(".")]
        self.names = sorted(entry.name for entry in present if entry.is_file())
        self.folders = sorted(entry.name for entry in present if entry.is_dir())

    def arguments(self, config: str, options: Mapping[str, Any]) -> dict[str, Any]:
        config = self._config(config)
        given = {name: _listed(value) if name in _PATHS else value for name, value in options.items()}
        found = (self._configured(config) if config else {}) | given
        if not found.get("models"):
            self._refuse_huggingface()
            found["models"] = self._models()
        if not found.get("vocabs"):
            found["vocabs"] = self._vocabs()
        if not config and str(found["models"][0]).endswith(".bin"):
            table = {} if "shortlist" in found else self._shortlist()
            found = FIREFOX_OPTIONS | table | found
        return found if "pieces" in found else found | self._pieces(found["vocabs"])

    def _config(self, name: str) -> str:
        """The name of the configuration to read; empty if there is none."""
        if name and name not in self.names:
            raise self._error(f"{name} does not exist")
        candidates = [name] if name else [other for other in self.names if self._is_config(other)]
        usable = [other for other in candidates if self._has_models(other)] or candidates
        if len(usable) > 1:
            raise self._error(
                f"several configurations: {', '.join(usable)}; choose one with config=... (--config of "
                "decode, score and server), or give the files of the model instead of the directory"
            )
        return usable[0] if usable else ""

    def _is_config(self, name: str) -> bool:
        return name.endswith((".yml", ".yaml")) and names_models(self._at(name))

    def _has_models(self, name: str) -> bool:
        try:
            return all(map(os.path.exists, self._configured(name)["models"]))
        except OptionError:
            return False

    def _configured(self, name: str) -> dict[str, Any]:
        """The options of a configuration, with paths resolved by ``_present``."""
        found = self._command.from_config(self._at(name))
        for key in _PATHS:
            found[key] = tuple(map(self._present, filter(None, found.get(key, ()))))
        if "pieces" in found:
            found["pieces"] = tuple(map(self._present, found["pieces"]))
        if found.get("shortlist"):
            table, *numbers = found["shortlist"]
            found["shortlist"] = (self._present(table), *map(_as_number, numbers))
        return found

    def _present(self, path: str) -> str:
        """``path``, or the file of that name here if ``path`` is a bare name or does not exist."""
        name = os.path.basename(path)
        return self._at(name) if name in self.names and (name == path or not os.path.exists(path)) else path

    def _models(self) -> tuple[str, ...]:
        found = [
            name
            for name in self.names
            if name.endswith((".npz", ".bin")) and not any(fnmatch(name, p) for p in _NO_MODELS)
        ]
        if len(found) != 1:
            raise self._error(
                f"several models: {', '.join(found)}; choose with models=[...] (--models)"
                if found
                else "no model (.npz or .bin)"
            )
        return (self._at(found[0]),)

    def _refuse_huggingface(self) -> None:
        """DirectoryError for a checkpoint of HuggingFace, whose ``pytorch_model.bin`` is not Marian's."""
        if "config.json" in self.names and _HUGGINGFACES.intersection(self.names):
            raise self._error(
                "a checkpoint of HuggingFace; convert it first (mgraph convert -f "
                f"{self.path} -t NEW_FOLDER/model.npz)"
            )

    def _vocabs(self) -> tuple[str, str]:
        names = [name for name in self._of(("*vocab*",)) if name.endswith(_VOCAB_ENDINGS)]
        sources, targets = (
            [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]
            for patterns in (_SOURCE_VOCABS, _TARGET_VOCABS)
        )
        if len(sources) == len(targets) == 1:
            return self._at(sources[0]), self._at(targets[0])
        if len(names) == len(sources) + len(targets) == 1:
            raise self._error(f"{names[0]} without that of the {'target' if sources else 'source'}")
        if len(names) != 1:
            raise self._error(
                f"several vocabularies: {', '.join(names)}; choose with vocabs=[source, target] (--vocabs)"
                if names
                else "no vocabulary (vocab*.spm, *.vocab.yml)"
            )
        return self._at(names[0]), self._at(names[0])

    def _shortlist(self) -> dict[str, Any]:
        tables = self._of(("lex*.s2t.bin", "lex*.bin")) or self._of(("lex*.s2t", "lex*.gz"))
        if len(tables) > 1:
            raise self._error(
                f"several shortlists: {', '.join(tables)}; choose with shortlist=[...] (--shortlist)"
            )
        return {"shortlist": (self._at(tables[0]),)} if tables else {}

    def _pieces(self, vocabs: Sequence[str]) -> dict[str, Any]:
        """The SentencePiece models that split and join raw text, if vocabularies list pieces (OPUS-MT)."""
        if any(str(path).endswith(".spm") for path in vocabs):
            return {}
        if "source.bpe" in self.names:
            raise self._error(
                "source.bpe: this model needs text tokenized and split by subword-nmt, which is not "
                "supported; do that first, and use Translator.from_config(decoder.yml) (--config without "
                "--models)"
            )
        present = [name for name in PIECES if name in self.names]
        if len(present) == 1:
            raise self._error(f"{present[0]} without {' or '.join(set(PIECES) - set(present))}")
        return {"pieces": tuple(map(self._at, present))} if present else {}

    def _of(self, patterns: Sequence[str]) -> list[str]:
        return [name for name in self.names if any(fnmatch(name, pattern) for pattern in patterns)]

    def _at(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _error(self, problem: str) -> DirectoryError:
        return DirectoryError(";\n".join((f"{self.path}: {problem}", *self._listing())))  # also as one line

    def _listing(self) -> Iterator[str]:
        packed = [name for name in self.names if name.endswith((".bin.gz", ".npz.gz", ".spm.gz"))]
        if packed:
            yield f"packed files must be unpacked first (gunzip): {', '.join(packed)}"
        yield f"the directory holds {len(self.names)} files: {first_of(self.names, _MOST_NAMED) or 'none'}"
        if self.folders:
            yield f"and other directories, which are not searched: {first_of(self.folders, _MOST_NAMED)}"


def _listed(paths: Any) -> Any:
    """A single path as a tuple; several as they are."""
    return (paths,) if isinstance(paths, str | os.PathLike) else paths


def _as_number(word: str) -> str:
    """Translate ``false`` and ``true`` of Bergamot's configurations to Marian's 0 and 1."""
    return {"false": "0", "true": "1"}.get(word, word)
