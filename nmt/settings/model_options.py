"""The options that a model carries with it (``special:model.yml``), typed, with Marian's defaults."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType

import numpy as np
import yaml

from mgraph import __version__
from mgraph.errors import ModelFileError
from mgraph.files.items import MODEL_YML, model_yml
from nmt.settings.yaml_text import MAX_CHARACTERS, entry

MAX_DEPTH = 8

_EXPECTED = {
    bool: "true or false",
    int: "an integer",
    str: "a word",
    tuple[int, ...]: "a list of integers",
    tuple[str, ...]: "a list of words",
}

Value = None | bool | int | float | str | tuple["Value", ...]

_WORDS = {"true": True, "yes": True, "on": True, "y": True}
_WORDS |= {"false": False, "no": False, "off": False, "n": False}
# As in yaml-cpp, whole words in one of these three ways of writing.
_BOOLS = {write(word): value for word, value in _WORDS.items() for write in (str, str.upper, str.capitalize)}
_INT = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NULLS = ("", "~", "null", "Null", "NULL")


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What a model is: Marian's model options under their names, in snake_case.

    ``options.dim_emb`` and ``options["dim-emb"]`` are the same. A field that the model does not
    mention has the default of Marian's command line. Options of other model types, which have no
    field here, are in ``extra`` under Marian's names; ``text`` is what was read, for saving the model
    as it came, and ``given`` the names of the options that it has a value for.
    """

    type: str = "amun"
    version: str = ""
    dim_vocabs: tuple[int, ...] = (0, 0)
    dim_emb: int = 512
    dim_rnn: int = 1024
    enc_type: str = "bidirectional"
    enc_cell: str = "gru"
    enc_cell_depth: int = 1
    enc_depth: int = 1
    dec_cell: str = "gru"
    dec_cell_base_depth: int = 2
    dec_cell_high_depth: int = 1
    dec_depth: int = 1
    skip: bool = False
    layer_normalization: bool = False
    right_left: bool = False
    input_types: tuple[str, ...] = ()
    tied_embeddings: bool = False
    tied_embeddings_src: bool = False
    tied_embeddings_all: bool = False
    output_omit_bias: bool = False
    transformer_heads: int = 8
    transformer_no_projection: bool = False
    transformer_rnn_projection: bool = False
    transformer_pool: bool = False
    transformer_dim_ffn: int = 2048
    transformer_decoder_dim_ffn: int = 0
    transformer_ffn_depth: int = 2
    transformer_decoder_ffn_depth: int = 0
    transformer_ffn_activation: str = "swish"
    transformer_dim_aan: int = 2048
    transformer_aan_depth: int = 2
    transformer_aan_activation: str = "swish"
    transformer_aan_nogate: bool = False
    transformer_decoder_autoreg: str = "self-attention"
    transformer_tied_layers: tuple[int, ...] = ()
    transformer_guided_alignment_layer: str = "last"
    transformer_preprocess: str = ""
    transformer_postprocess_emb: str = "d"
    transformer_postprocess: str = "dan"
    transformer_postprocess_top: str = ""
    transformer_train_position_embeddings: bool = False
    transformer_disable_position_embeddings: bool = False
    transformer_attention_mask: str = "default"
    transformer_alibi_shift: bool = False
    transformer_alibi_trainable: bool = False
    transformer_no_bias: bool = False
    transformer_no_affine: bool = False
    separator_symbol: str = "[eos]"
    bert_train_type_embeddings: bool = True
    bert_type_vocab_size: int = 2
    ulr: bool = False
    ulr_dim_emb: int = 0
    ulr_trainable_transformation: bool = False
    lemma_dim_emb: int = 0
    lemma_dependency: str = ""
    factors_combine: str = "sum"
    factors_dim_emb: int = 0
    extra: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    text: str = ""
    given: frozenset[str] = field(default=frozenset(), compare=False)

    def __post_init__(self) -> None:
        if self.type == "transformer-new":
            object.__setattr__(self, "transformer_tied_layers", _tied_places(self.transformer_tied_layers))

    def __getitem__(self, name: str) -> Value:
        if name in _FIELDS:
            value: Value = getattr(self, _FIELDS[name])
            return value
        if name in self.extra:
            return self.extra[name]
        raise KeyError(f"{name} is not an option of this model")

    def __iter__(self) -> Iterator[str]:
        """The names of all options, as Marian writes them."""
        yield from _FIELDS
        yield from self.extra

    def __contains__(self, name: object) -> bool:
        return name in _FIELDS or name in self.extra


_FIELDS = {
    f.name.replace("_", "-"): f.name for f in fields(ModelOptions) if f.name not in ("extra", "text", "given")
}
_TYPES = typing.get_type_hints(ModelOptions)


def model_options(items: Mapping[str, np.ndarray], path: str) -> ModelOptions:
    """The options among the ``items`` of the model file ``path``; ModelFileError if it carries none."""
    try:
        text = model_yml(items)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    if text is None:
        raise ModelFileError(f"{path}: no item {MODEL_YML}; expected a model that carries its options")
    return parse_model_options(text, path)


def parse_model_options(text: str, path: str) -> ModelOptions:
    """The options in ``text``, the YAML of ``special:model.yml`` in the model file ``path``.

    It may come from anywhere: only scalars and lists of them are read, no anchors, aliases or
    tags, at most ``MAX_CHARACTERS``. Each value is read as its option wants it, so that no word
    turns into something else; an option without a value has its default. Raises ModelFileError
    with path, option, what was expected and what was got.
    """
    known: dict[str, typing.Any] = {}
    extra: dict[str, Value] = {}
    try:
        for name, node in _read_map(text).items():
            if name not in _FIELDS:
                extra[name] = _natural(node)
            elif not _is_null(node):
                known[_FIELDS[name]] = _converted(node, _TYPES[_FIELDS[name]], name)
    except (_Unreadable, yaml.YAMLError, ValueError, OverflowError) as error:
        raise ModelFileError(f"{path}: {MODEL_YML}: {' '.join(str(error).split())}") from None
    given = frozenset(name for name, field_name in _FIELDS.items() if field_name in known)
    return ModelOptions(**known, extra=MappingProxyType(extra), text=text, given=given)


def _tied_places(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The layers whose parameters the layers of a ``transformer-new`` have, from 1.

    A number of ``transformer-tied-layers`` is there the place of a layer, which may be tied itself, so that
    1, 1, 2 is one layer three times; in a ``transformer`` it is the name of one.
    """
    places: list[int] = []
    for place, number in enumerate(numbers, 1):
        places.append(places[number - 1] if 1 <= number < place else number)
    return tuple(places)


def yaml_of(options: ModelOptions) -> str:
    """``options`` as the text of ``special:model.yml``, laid out as Marian does."""
    return "\n".join(entry(name, options[name]) for name in sorted(options))


def text_of(options: ModelOptions) -> str:
    """The text that the options were read from, if they are still the same; else their own."""
    if options.text and parse_model_options(options.text, MODEL_YML) == options:
        return options.text
    return yaml_of(replace(options, version=options.version or f"mgraph {__version__}"))


class _Unreadable(Exception):
    """Why the text is no map of options; the message is for the user."""


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A word of YAML and whether it stood there without quotes."""

    value: str
    plain: bool


_Node = _Scalar | list["_Node"]


def _read_map(text: str) -> dict[str, _Node]:
    """The nodes of the first YAML document in ``text``, which must be a map from names."""
    if len(text) > MAX_CHARACTERS:
        raise _Unreadable(f"{len(text)} characters (at most {MAX_CHARACTERS} are read)")
    nodes: dict[str, _Node] = {}
    events = _content(text)
    if not isinstance(next(events, None), yaml.MappingStartEvent):
        raise _Unreadable("expected a map of options, name: value")
    for event in events:
        if isinstance(event, yaml.MappingEndEvent):
            return nodes
        name = _node(event, events, MAX_DEPTH)
        if not isinstance(name, _Scalar) or not name.value:
            raise _Unreadable(f"expected the name of an option, got {_shown(name)}")
        if name.value in nodes:
            raise _Unreadable(f"option {name.value} is there twice")
        try:
            nodes[name.value] = _node(next(events), events, MAX_DEPTH)
        except _Unreadable as error:
            raise _Unreadable(f"option {name.value}: {error}") from None
    raise _Unreadable("expected a map of options, name: value")


def _content(text: str) -> Iterator[yaml.Event]:
    """The events of a YAML text from its first node on."""
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise _Unreadable("anchors, aliases and tags are not read")
        if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
            yield event


def _node(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> _Node:
    """The node that begins with ``event``; ``depth`` more lists may lie in it."""
    if isinstance(event, yaml.ScalarEvent):
        return _Scalar(event.value, event.style is None)
    if not isinstance(event, yaml.SequenceStartEvent):
        raise _Unreadable("expected a value or a list of values, got a map")
    if depth == 0:
        raise _Unreadable(f"more than {MAX_DEPTH} lists in one another")
    nodes: list[_Node] = []
    for element in events:
        if isinstance(element, yaml.SequenceEndEvent):
            break
        nodes.append(_node(element, events, depth - 1))
    return nodes


def _is_null(node: _Node) -> bool:
    return isinstance(node, _Scalar) and node.plain and node.value in _NULLS


def _converted(node: _Node, wanted: typing.Any, name: str) -> Value:
    """``node`` as ``wanted``, the type of a field of ``ModelOptions``."""
    arguments = typing.get_args(wanted)
    if arguments and isinstance(node, list):
        return tuple(_converted(element, arguments[0], name) for element in node)
    if isinstance(node, _Scalar):
        if wanted is str:
            return node.value
        if wanted is int and _INT.fullmatch(node.value):
            return int(node.value)
        if wanted is bool and node.value in _BOOLS:
            return _BOOLS[node.value]
    raise _Unreadable(f"option {name}: expected {_EXPECTED[wanted]}, got {_shown(node)}")


def _natural(node: _Node) -> Value:
    """The value of an option of which nothing is known: what an unquoted word looks like."""
    if isinstance(node, list):
        return tuple(map(_natural, node))
    if not node.plain:
        return node.value
    if _is_null(node):
        return None
    if node.value in ("true", "false"):
        return node.value == "true"
    if _INT.fullmatch(node.value):
        return int(node.value)
    return float(node.value) if _FLOAT.fullmatch(node.value) else node.value


def _shown(node: _Node) -> str:
    return repr(node.value[:80]) if isinstance(node, _Scalar) else f"a list of {len(node)}"
