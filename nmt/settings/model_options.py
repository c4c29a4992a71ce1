"""The options stored in a model (``special:model.yml``), with Marian's defaults and bounds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import yaml

from layers import CELLS, FactorGroups, UnsupportedOptionError
from mgraph import __version__
from mgraph.errors import ModelFileError
from mgraph.files.items import MODEL_YML, model_yml
from nmt.settings.absent import NO_ALIBI, NO_BERT, NO_CONCATENATION, NO_LEMMA_DEPENDENCY, NO_ULR, TYPES
from nmt.settings.option import Option, Options, ignored, option, options_of, refused
from nmt.settings.yaml_text import MAX_CHARACTERS, entry

MAX_DEPTH = 8

_ONE = {bool: "true or false", int: "an integer", str: "a word"}
_SEVERAL = {int: "integers", str: "words"}

Value = None | bool | int | float | str | tuple["Value", ...]

_WORDS = {"true": True, "yes": True, "on": True, "y": True}
_WORDS |= {"false": False, "no": False, "off": False, "n": False}
# As in yaml-cpp: lower case, upper case or capitalized.
_BOOLS = {write(word): value for word, value in _WORDS.items() for write in (str, str.upper, str.capitalize)}
_INT = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_NULLS = ("", "~", "null", "Null", "NULL")

MODEL_TYPES = {
    "s2s": 1,
    "amun": 1,
    "nematus": 1,
    "multi-s2s": 2,
    "shared-multi-s2s": 2,
    "lm": 0,
    "transformer": 1,
    "transformer-new": 1,
    "multi-transformer": 2,
    "shared-multi-transformer": 2,
    "lm-transformer": 0,
    "transformer_s2s": 1,
}
"""The types of models, with the number of sources that each reads."""
MOST_LAYERS = 256
LARGEST = 1 << 20
STREAM_TYPES = ("sequence", "class")
"""What a stream of a model holds (``input-types``): words and ``</s>``, or one label of a class."""
ACTIVATIONS = ("swish", "relu", "gelu", "sigmoid", "tanh", "leakyrelu", "prelu", "linear", "")
PRE, POST = "dnr", "danrh"
"""The operations before and after a sub-layer."""


def _layers(default: int, help: str, least: int = 1) -> Any:
    return option(default, help, least=least, greatest=MOST_LAYERS)


def _size(default: int, help: str, least: int = 1) -> Any:
    return option(default, help, least=least, greatest=LARGEST)


class ModelDescription(Options):
    """The options of a model in its file."""

    type: str = option("amun", "the model type", choices=tuple(MODEL_TYPES), open=True, absent=TYPES)
    dim_vocabs: tuple[int, ...] = option((0, 0), "the sizes of the vocabularies, the target's last")
    dim_emb: int = _size(512, "features of embeddings, and of a transformer's layers")
    factors_dim_emb: int = ignored(0, NO_CONCATENATION, "features of the embeddings of factors")
    factors_combine: str = option(
        "sum",
        "how the embeddings of factors are combined",
        choices=("sum",),
        absent={"concat": NO_CONCATENATION},
    )
    lemma_dependency: str = refused("", NO_LEMMA_DEPENDENCY, help="how factors depend on lemmas")
    lemma_dim_emb: int = refused(0, NO_LEMMA_DEPENDENCY, help="features of lemmas that predict factors")
    dim_rnn: int = _size(1024, "features of the states of recurrent cells")
    enc_type: str = option(
        "bidirectional",
        "how a recurrent encoder reads: both ways, both and then forward, or alternating by layer",
        choices=("bidirectional", "bi-unidirectional", "alternating"),
    )
    enc_cell: str = option("gru", "the encoder's recurrent cell", choices=tuple(CELLS))
    enc_cell_depth: int = _layers(1, "cells one after another in each layer of a recurrent encoder")
    enc_depth: int = _layers(1, "layers of the encoder")
    dec_cell: str = option("gru", "the decoder's recurrent cell", choices=tuple(CELLS))
    dec_cell_base_depth: int = _layers(
        2, "cells in the first layer of a recurrent decoder, around its attention"
    )
    dec_cell_high_depth: int = _layers(1, "cells in each other layer of a recurrent decoder")
    dec_depth: int = _layers(1, "layers of the decoder")
    skip: bool = option(False, "residual connections around recurrent layers, except the first")
    layer_normalization: bool = option(False, "layer normalization in recurrent models")
    right_left: bool = option(False, "generate the target from right to left")
    input_types: tuple[str, ...] = option(
        (), "what each file or field holds; none: sequences", choices=(*STREAM_TYPES, "alignment", "weight")
    )
    tied_embeddings: bool = option(False, "the output layer multiplies by the decoder's embedding table")
    tied_embeddings_src: bool = option(False, "one embedding table for all sides")
    tied_embeddings_all: bool = option(False, "one embedding table for all sides and the output layer")
    output_omit_bias: bool = option(False, "the output layer has no bias")
    transformer_heads: int = _size(8, "heads of each attention")
    transformer_no_projection: bool = option(False, "no projection after an attention")
    transformer_rnn_projection: bool = option(False, "a projection after a recurrent autoregression")
    transformer_pool: bool = option(False, "the first source state instead of attention")
    transformer_dim_ffn: int = _size(2048, "features between the feed-forward layers")
    transformer_decoder_dim_ffn: int = _size(0, "the same in the decoder; 0: as in the encoder", least=0)
    transformer_ffn_depth: int = _layers(2, "affine layers of a feed-forward block")
    transformer_decoder_ffn_depth: int = _layers(0, "the same in the decoder; 0: as in the encoder", least=0)
    transformer_ffn_activation: str = option(
        "swish", "the activation between the feed-forward layers", choices=ACTIVATIONS
    )
    transformer_dim_aan: int = _size(2048, "features between the affine layers of average attention")
    transformer_aan_depth: int = _layers(
        2, "affine layers of average attention; the last only if sizes differ without it", least=0
    )
    transformer_aan_activation: str = option(
        "swish", "the activation between the layers of average attention", choices=ACTIVATIONS
    )
    transformer_aan_nogate: bool = option(False, "average attention without gates")
    transformer_decoder_autoreg: str = option(
        "self-attention",
        "how the decoder reads the previous words",
        choices=("self-attention", "average-attention", "rnn"),
    )
    transformer_tied_layers: tuple[int, ...] = option(
        (),
        "the number in the parameter names of each decoder layer: layers with equal numbers share parameters",
    )
    transformer_guided_alignment_layer: str = option(
        "last", "the decoder layer whose attention gives alignments: `last` or a number"
    )
    transformer_preprocess: str = option(
        "", "operations before each sub-layer (dropout, norm, RMS norm)", letters=PRE
    )
    transformer_postprocess_emb: str = option("d", "operations on embeddings", letters=PRE)
    transformer_postprocess: str = option(
        "dan", "operations after each sub-layer (dropout, addition, norm, RMS norm, highway)", letters=POST
    )
    transformer_postprocess_top: str = option("", "operations after the last layer", letters=POST)
    transformer_train_position_embeddings: bool = option(
        False, "trained position embeddings; ignored by `transformer`"
    )
    transformer_attention_mask: str = option(
        "default", "the kind of attention mask", choices=("default",), absent={"alibi": NO_ALIBI}
    )
    transformer_alibi_shift: bool = option(False, "shift the mask `alibi`")
    separator_symbol: str = option("[eos]", "the word between the parts of a joined input")
    transformer_disable_position_embeddings: bool = option(False, "no position embeddings")
    transformer_alibi_trainable: bool = option(False, "train the mask `alibi`")
    transformer_no_bias: bool = option(False, "no biases in affine layers; ignored by `transformer`")
    transformer_no_affine: bool = option(False, "no gains in norms; ignored by `transformer`")
    bert_train_type_embeddings: bool = ignored(True, NO_BERT, "trained embeddings of BERT's segments")
    bert_type_vocab_size: int = ignored(2, NO_BERT, "the number of BERT's segments")


class Universal(Options):
    """Universal embeddings in a model file."""

    ulr: bool = refused(False, NO_ULR, help="embeddings mixed from universal ones")
    ulr_trainable_transformation: bool = ignored(False, NO_ULR, "universal embeddings are transformed")
    ulr_dim_emb: int = ignored(0, NO_ULR, "features of universal embeddings")


class ModelOptions(ModelDescription, Universal):
    """Marian's model options, as fields in snake_case.

    ``options.dim_emb`` and ``options["dim-emb"]`` are the same. Options missing in the model have the default
    of Marian's command line. ``extra`` has the options without a field here, under Marian's names; ``text``
    is the text that was read, to save the model unchanged, and ``given`` the names of the options in it.
    ``factors`` has the factor groups of each stream with a factored vocabulary; the file lacks them.
    ``check_values`` validates the values.
    """

    version: str = option("", "the version of Marian that wrote the model", after="type")
    extra: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))
    text: str = ""
    given: frozenset[str] = field(default=frozenset(), compare=False)
    factors: tuple[FactorGroups | None, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.type == "transformer-new":
            object.__setattr__(self, "transformer_tied_layers", _tied_places(self.transformer_tied_layers))

    def __getstate__(self) -> dict[str, Any]:
        # called by copy and pickle, which cannot handle a proxy
        return {**vars(self), "extra": dict(self.extra)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, extra=MappingProxyType(state["extra"]))

    @property
    def stream_types(self) -> tuple[str, ...]:
        """What each stream holds: ``input-types`` without alignments and weights; empty for sequences."""
        return tuple(kind for kind in self.input_types if kind in STREAM_TYPES)

    def __getitem__(self, name: str) -> Value:
        if name in OPTIONS:
            value: Value = getattr(self, OPTIONS[name].attribute)
            return value
        if name in self.extra:
            return self.extra[name]
        raise KeyError(f"{name} is not an option of this model")

    def __iter__(self) -> Iterator[str]:
        """The names of all options, as Marian writes them."""
        yield from OPTIONS
        yield from self.extra

    def __contains__(self, name: object) -> bool:
        return name in OPTIONS or name in self.extra


OPTIONS = options_of(ModelOptions)
"""The options of models, by name."""


def described_model(options: Any) -> ModelOptions | None:
    """The model that a command's options describe, for a model file without a configuration. ``given`` has
    the options not at their defaults; None if there are none, and no ``--ignore-model-config``."""
    described = [*options_of(ModelDescription).values(), *options_of(Universal).values()]
    values = {option.attribute: getattr(options, option.attribute) for option in described}
    given = frozenset(o.name for o in described if values[o.attribute] != o.default)
    if not given and not options.ignore_model_config:
        return None
    return ModelOptions(**values, given=given)


def check_values(options: ModelOptions) -> None:
    """``UnsupportedOptionError`` for the first option with an invalid value."""
    for name, declared in OPTIONS.items():
        problem = "" if declared.open else declared.problem(options[name])
        if problem:
            raise UnsupportedOptionError(f"{name}: {problem}")


def model_options(items: Mapping[str, np.ndarray], path: str) -> ModelOptions:
    """The options in the ``items`` of the model file ``path``; ModelFileError if it has none."""
    try:
        text = model_yml(items)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    if text is None:
        raise ModelFileError(
            f"{path}: no item {MODEL_YML}; expected a model that contains its options, "
            "or these with the command (--type, --dim-emb, ...)"
        )
    return parse_model_options(text, path)


def parse_model_options(text: str, path: str) -> ModelOptions:
    """Parse ``text``, the YAML of ``special:model.yml`` in the model file ``path``.

    The text is untrusted: only scalars and lists of them are accepted, no anchors, aliases or tags, at most
    ``MAX_CHARACTERS``. Values are parsed by the type of their option; an option without a value has its
    default. Raises ModelFileError with path, option, what was expected and what was got.
    """
    known: dict[str, Any] = {}
    extra: dict[str, Value] = {}
    try:
        for name, node in _read_map(text).items():
            if name not in OPTIONS:
                extra[name] = _natural(node)
            elif not _is_null(node):
                known[OPTIONS[name].attribute] = _converted(node, OPTIONS[name])
    except (_Unreadable, yaml.YAMLError, ValueError, OverflowError) as error:
        raise ModelFileError(f"{path}: {MODEL_YML}: {' '.join(str(error).split())}") from None
    given = frozenset(name for name, declared in OPTIONS.items() if declared.attribute in known)
    return ModelOptions(**known, extra=MappingProxyType(extra), text=text, given=given)


def _tied_places(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The layers, from 1, whose parameters the layers of a ``transformer-new`` use.

    There a number of ``transformer-tied-layers`` refers to a layer that may itself be tied, so 1, 1, 2 is one
    layer three times; in a ``transformer`` it is part of the parameter names.
    """
    places: list[int] = []
    for place, number in enumerate(numbers, 1):
        places.append(places[number - 1] if 1 <= number < place else number)
    return tuple(places)


def yaml_of(options: ModelOptions) -> str:
    """``options`` as the text of ``special:model.yml``, in Marian's layout."""
    return "\n".join(entry(name, options[name]) for name in sorted(options))


def text_of(options: ModelOptions) -> str:
    """The text that the options were read from if they have not changed; else a new one."""
    if options.text and parse_model_options(options.text, MODEL_YML) == options:
        return options.text
    return yaml_of(replace(options, version=options.version or f"mgraph {__version__}"))


class _Unreadable(Exception):
    """The text is not a map of options; the message is for the user."""


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A YAML scalar, and whether it was unquoted."""

    value: str
    plain: bool


_Node = _Scalar | list["_Node"]


def _read_map(text: str) -> dict[str, _Node]:
    """The nodes of the first YAML document in ``text``, which must be a map."""
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
            raise _Unreadable(f"option {name.value} appears twice")
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
    """The node that begins with ``event``, with at most ``depth`` nested lists."""
    if isinstance(event, yaml.ScalarEvent):
        return _Scalar(event.value, event.style is None)
    if not isinstance(event, yaml.SequenceStartEvent):
        raise _Unreadable("expected a value or a list of values, got a map")
    if depth == 0:
        raise _Unreadable(f"more than {MAX_DEPTH} nested lists")
    nodes: list[_Node] = []
    for element in events:
        if isinstance(element, yaml.SequenceEndEvent):
            break
        nodes.append(_node(element, events, depth - 1))
    return nodes


def _is_null(node: _Node) -> bool:
    return isinstance(node, _Scalar) and node.plain and node.value in _NULLS


def _converted(node: _Node, declared: Option) -> Value:
    """``node`` converted to the type of the option."""
    if not declared.many:
        return _scalar(node, declared)
    if isinstance(node, list):
        return tuple(_scalar(element, declared) for element in node)
    raise _unexpected(node, declared, f"a list of {_SEVERAL[declared.kind]}")


def _scalar(node: _Node, declared: Option) -> bool | int | str:
    if isinstance(node, _Scalar):
        if declared.kind is str:
            return node.value
        if declared.kind is int and _INT.fullmatch(node.value):
            return int(node.value)
        if declared.kind is bool and node.value in _BOOLS:
            return _BOOLS[node.value]
    raise _unexpected(node, declared, _ONE[declared.kind])


def _unexpected(node: _Node, declared: Option, expected: str) -> _Unreadable:
    return _Unreadable(f"option {declared.name}: expected {expected}, got {_shown(node)}")


def _natural(node: _Node) -> Value:
    """The value of an unknown option, by the form of the unquoted word."""
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
