"""Which options a parameter depends on, found by building the model with other options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

from layers import CELLS
from mgraph import MGraphError
from nmt.models.network import Network
from nmt.models.parts import NO_DROPOUT
from nmt.models.types import TYPES
from nmt.settings.model_options import MOST_LAYERS, OPTIONS, ModelOptions

_FEATURES, _OTHER_FEATURES = 4, 5
"""Sizes do not matter here, except whether average attention is as wide as the model."""
_MOST_LAYERS = 64
"""No hint suggests more layers than this."""
_NUMBER = re.compile("[0-9]+")
_POSITIONS = "transformer-train-positions"

_RICH = {
    "layer-normalization": True,
    "output-omit-bias": False,
    "transformer-no-projection": False,
    "transformer-rnn-projection": True,
    "transformer-pool": False,
    "transformer-aan-nogate": False,
    "transformer-dim-aan": _OTHER_FEATURES,
    "transformer-tied-layers": (),
    "transformer-train-position-embeddings": True,
    "transformer-disable-position-embeddings": False,
    "transformer-no-bias": False,
    _POSITIONS: True,
}
"""Values that add parameters to a model and remove none."""
_CHOICES: tuple[Mapping[str, Any], ...] = (
    *({"transformer-decoder-autoreg": kind} for kind in ("self-attention", "average-attention")),
    *(
        {"enc-cell": cell, "dec-cell": cell, "enc-type": kind, "transformer-decoder-autoreg": "rnn"}
        for cell, kind in product(CELLS, ("bidirectional", "bi-unidirectional"))
    ),
)
"""Alternatives with different parameters, like the next three."""
_TIED: tuple[Mapping[str, Any], ...] = (
    {"tied-embeddings": False, "tied-embeddings-src": False, "tied-embeddings-all": False},
    {"tied-embeddings": False, "tied-embeddings-src": True, "tied-embeddings-all": False},
    {"tied-embeddings": False, "tied-embeddings-src": False, "tied-embeddings-all": True},
)
_OPERATIONS = ("nrh", "n", "r")
_LAYERS = ("enc-depth", "dec-depth")
DEPTHS = tuple(name for name, option in OPTIONS.items() if option.greatest == MOST_LAYERS)
"""Options for numbers of layers."""
_INNER_LAYERS = tuple(name for name in DEPTHS if name not in _LAYERS)

_MOST_PARAMETERS = 200_000
"""The total of parameters examined before hints stop: names in a file may be anything."""

_Values = dict[str, Any]
"""Values of options by name, including those in ``extra``."""


class Explanations:
    """Explains which options the parameters of a model depend on."""

    def __init__(self, options: ModelOptions) -> None:
        self.options = options
        wide = options.transformer_dim_aan != options.dim_emb
        sizes = {
            "dim-vocabs": (1,) * (len(TYPES[options.type].encoders) + 1),
            "dim-emb": _FEATURES,
            "dim-rnn": _FEATURES,
            "transformer-heads": 1,
            "transformer-dim-aan": _OTHER_FEATURES if wide else _FEATURES,
        }
        self.values: _Values = {name: options[name] for name in OPTIONS} | sizes
        self.values[_POSITIONS] = options.extra.get(_POSITIONS) is True
        self._found: dict[frozenset[tuple[str, Any]], frozenset[str]] = {}
        self._rich: dict[tuple[int, int], list[_Values]] = {}
        self._known: list[_Values] = []
        self._seen = 0

    def conditions(self) -> dict[str, tuple[str, ...]]:
        """By name, the options that each parameter depends on, if any."""
        own = self._names({})
        needed: dict[str, dict[str, None]] = {name: {} for name in own}
        for text, changes in self._alternatives():
            names = self._names(changes)
            for name in own - names if names else ():
                needed[name][text] = None
        return {name: tuple(texts) for name, texts in needed.items()}

    def hints(self, names: Iterable[str]) -> dict[str, str]:
        """By name, the options with which a parameter would exist, in words; empty if none."""
        return {name: self._hint(name) for name in names}

    def _hint(self, name: str) -> str:
        ways = [changes for changes in self._known if self._needs_all(name, changes)] or self._ways(name)
        fewest = min(map(len, ways), default=0)
        texts = [self._text(changes) for changes in ways if len(changes) == fewest]
        if not texts:
            texts = [f"type {other}" for other in TYPES if self._is_of(name, other)]
        return f"exists with {', or with '.join(dict.fromkeys(texts))}" if texts else ""

    def _needs_all(self, name: str, changes: _Values) -> bool:
        """Whether the parameter exists with all the changes, and not with one less."""
        if name not in self._names(changes):
            return False
        own = self.values
        less = ({**changes, n: v - 1 if n in DEPTHS else own[n]} for n, v in changes.items())
        return not any(name in self._names(fewer) for fewer in less)

    def _ways(self, name: str) -> list[_Values]:
        """Minimal changes with which the parameter exists."""
        numbers = [int(digits) for digits in _NUMBER.findall(name)]
        if max(numbers, default=0) > _MOST_LAYERS or self._seen > _MOST_PARAMETERS:
            return []
        ways: list[_Values] = []
        for depths in product(sorted({1, *numbers}), repeat=2):
            for changes in self._richest(*depths):
                if name in self._names(changes):
                    least = self._least(name, changes)
                    if least not in ways:
                        ways.append(least)
        self._known += [changes for changes in ways if changes not in self._known]
        return ways

    def _is_of(self, name: str, model_type: str) -> bool:
        vocabs = (1,) * (len(TYPES[model_type].encoders) + 1)
        return name in self._names({"type": model_type, "dim-vocabs": vocabs})

    def _alternatives(self) -> Iterator[tuple[str, _Values]]:
        """Changes of one option each, with the text of the present value."""
        for name, option in OPTIONS.items():
            value = self.values[name]
            if isinstance(value, bool):
                yield _said(name, value), {name: not value}
            elif option.letters:
                for letter in dict.fromkeys(str(value)):
                    yield f"{letter} in {name}", {name: str(value).replace(letter, "")}
            elif option.choices and name != "type":
                yield from ((_said(name, value), {name: other}) for other in option.choices if other != value)
        if self.values[_POSITIONS]:
            yield _POSITIONS, {_POSITIONS: False}

    def _richest(self, layers: int, inner: int) -> list[_Values]:
        """Alternative changes that give a model of this type as many parameters as possible."""
        if (layers, inner) not in self._rich:
            found: dict[frozenset[str], _Values] = {}
            only = dict(TYPES[self.options.type].only)
            for choice, tied, letters in product(_CHOICES, _TIED, _OPERATIONS):
                changes: _Values = {**_RICH, **choice, **tied, **only}
                for names, depth in ((_LAYERS, layers), (_INNER_LAYERS, inner)):
                    changes |= {option: max(depth, self.values[option]) for option in names}
                for option, about in OPTIONS.items():
                    if about.letters:
                        changes[option] = "".join(letter for letter in letters if letter in about.letters)
                found.setdefault(self._names(changes), changes)
            self._rich[layers, inner] = list(found.values())
        return self._rich[layers, inner]

    def _least(self, name: str, changes: _Values) -> _Values:
        """The changes that the parameter needs, in the order of the options."""
        for option in self.values:
            if option in changes:
                for kept in self._between(option, changes[option]):
                    if name in self._names(changes | {option: kept}):
                        changes = changes | {option: kept}
                        break
        return {n: changes[n] for n, own in self.values.items() if n in changes and changes[n] != own}

    def _between(self, option: str, value: Any) -> Iterator[Any]:
        """Values from the present one to ``value``."""
        own = self.values[option]
        yield own
        if option in DEPTHS:
            yield from range(own + 1, value)
        elif option in OPTIONS and OPTIONS[option].letters:
            yield from (own + letter for letter in value if letter not in own)

    def _names(self, changes: _Values) -> frozenset[str]:
        """The names of the parameters of a changed model; none if it is invalid."""
        key = frozenset((name, value) for name, value in changes.items() if value != self.values[name])
        if key not in self._found:
            if self._seen > _MOST_PARAMETERS:
                return frozenset()
            try:
                network = Network(_options(self.values | changes), {}, NO_DROPOUT, False)
                self._found[key] = frozenset(parameter.name for parameter in network.parameters())
                self._seen += len(self._found[key])
            except MGraphError:
                self._found[key] = frozenset()
        return self._found[key]

    def _text(self, changes: _Values) -> str:
        return ", ".join(_change(name, self.values[name], value) for name, value in changes.items())


def _options(values: _Values) -> ModelOptions:
    extra = MappingProxyType({_POSITIONS: values[_POSITIONS]})
    known = {name.replace("-", "_"): value for name, value in values.items() if name != _POSITIONS}
    return ModelOptions(**known, extra=extra)


def _said(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value}"


def _change(name: str, own: Any, value: Any) -> str:
    """Describe the changed value of an option."""
    if isinstance(value, tuple):
        return f"no {name}"
    if name == "transformer-dim-aan":
        return f"{name} other than dim-emb"
    if isinstance(value, bool):
        return _said(name, value)
    if isinstance(value, int):
        return f"{name} of at least {value}"
    if OPTIONS[name].letters:
        return ", ".join(f"{letter} in {name}" for letter in value if letter not in own)
    return _said(name, value)
