"""``Model``: a network with the parameters of a model file, and its pure functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar

import jax
import numpy as np

from layers.products import MULTIPLIER, SCALE
from mgraph import ExpressionGraph, Type
from mgraph.shape import Sizes, as_shape
from mgraph.types import as_type
from nmt.models.functions import Encoder, Listing, PackedEncoder, PairScorer, Stepper
from nmt.models.network import Network
from nmt.models.parts import NO_DROPOUT, Dropouts
from nmt.settings.model_options import ModelOptions, text_of

T = TypeVar("T")

_MOST_FUNCTIONS = 256


class Model(Network):
    """A ``Network`` with the parameters of one model file.

    ``Network``'s methods record it in a graph, which should come from ``new_graph`` or be a training graph.
    ``encoder``, ``stepper`` and ``scorer`` return them as pure functions of arrays, for fixed shapes.
    Their derivatives are the hand-written rules, or with ``derivatives="jax"`` JAX's own, which forward mode
    (``jax.jvp``, ``jax.hessian``) needs.

    params: the parameters by name. Other arguments: see ``Network``.

    ``UnsupportedOptionError`` for a type that is unknown or not supported.
    """

    def __init__(
        self,
        options: ModelOptions,
        params: Mapping[str, Any],
        dropouts: Dropouts = NO_DROPOUT,
        *,
        marian_exact: bool = False,
    ) -> None:
        self.params: dict[str, jax.Array] = {name: jax.device_put(params[name]) for name in sorted(params)}
        """The parameters, sorted by name, on JAX's default device."""
        shapes = {name: value.shape for name, value in self.params.items()}
        super().__init__(options, shapes, dropouts, marian_exact)
        self._functions: dict[Hashable, Any] = {}
        self._recording = threading.RLock()

    @cached_property
    def key(self) -> Hashable:
        """Equal for models that compute the same function of their parameters."""
        options = tuple((name, self.options[name]) for name in self.options if name != "version")
        shapes = tuple((name, value.shape, str(value.dtype)) for name, value in self.params.items())
        return self.marian_exact, options, self.options.factors, shapes

    @property
    def element_type(self) -> Type:
        """The type of the floating-point parameters: float32 or a type of 16 bits."""
        kinds = (as_type(value.dtype) for value in self.params.values())
        return next((kind for kind in kinds if kind.is_float), Type.float32)

    def without_values(self) -> Model:
        """The same model with shapes and types in place of its parameters' values: enough to record it."""
        other = object.__new__(type(self))
        specs = {name: jax.ShapeDtypeStruct(value.shape, value.dtype) for name, value in self.params.items()}
        vars(other).update(vars(self), params=specs, _functions={}, _recording=threading.RLock())
        return other

    def new_graph(self, inference: bool = True, *, seed: int = 1) -> ExpressionGraph:
        """A graph with this model's parameters only."""
        graph = ExpressionGraph(inference, seed=seed)
        graph.set_default_element_type(self.element_type)
        for name, value in self.params.items():
            graph.param(name, value.shape, type=value.dtype).set_value(value)
        graph.reloaded = True
        graph.model_yml = text_of(self.options)
        return graph

    def blank_graph(self, derivatives: str = "rules") -> ExpressionGraph:
        """A graph for inference, without values, in which parameters have the types of this model's."""
        graph = super().blank_graph(derivatives)
        graph.set_default_element_type(self.element_type)
        for name, value in self.params.items():
            if value.dtype == np.int8 or name.endswith((SCALE, MULTIPLIER)):
                graph.param(name, value.shape, type=value.dtype)
        return graph

    # -- pure functions

    def encoder(self, batch: int, lengths: Sizes, *, derivatives: str = "rules") -> Encoder:
        """``encode`` for sentences padded to ``lengths``, one length per source stream."""
        key = (batch, as_shape(lengths), derivatives)
        return self._recorded(("encoder", *key), lambda: Encoder(self, *key))

    def packed_encoder(
        self,
        batch: int,
        some: int,
        lengths: Sizes,
        bins: int,
        width: int,
        *,
        derivatives: str = "rules",
    ) -> PackedEncoder:
        """The encoder of packed sources: see ``PackedEncoder``."""
        key = (batch, some, as_shape(lengths), bins, width, derivatives)
        return self._recorded(("packed_encoder", *key), lambda: PackedEncoder(self, *key))

    def stepper(
        self,
        batch: int,
        beam: int,
        lengths: Sizes,
        places: Sizes,
        *,
        attention: bool = False,
        candidates: int = 0,
        by_sentence: bool = False,
        listed: int = 0,
        derivatives: str = "rules",
    ) -> Stepper:
        """``start`` and ``step`` for sentences padded to ``lengths``, with ``places`` for the target words
        of each (see ``start``), and shortlists of ``candidates`` words (0 without). by_sentence: whether
        every sentence has a position of its own. listed: see ``Stepper``."""
        sizes = (batch, beam, as_shape(lengths), as_shape(places))
        key = (*sizes, attention, candidates, by_sentence, listed, derivatives)
        return self._recorded(("stepper", *key), lambda: Stepper(self, *key))

    def listing(self, listed: int, *, derivatives: str = "rules") -> Listing:
        """The further parameters of steps if ``listed`` words are listed."""
        key = (listed, derivatives)
        return self._recorded(("listing", *key), lambda: Listing(self, *key))

    def scorer(
        self,
        batch: int,
        lengths: Sizes,
        trg_length: int,
        *,
        attention: bool = False,
        best: bool = False,
        derivatives: str = "rules",
    ) -> PairScorer:
        """Log-probabilities of target words, for sentences padded to these lengths, one per source stream,
        and the target's. best: whether to return the most probable words, too."""
        key = (batch, as_shape(lengths), trg_length, attention, best, derivatives)
        return self._recorded(("scorer", *key), lambda: PairScorer(self, *key))

    def _recorded(self, key: Hashable, record: Callable[[], T]) -> T:
        with self._recording:
            if key not in self._functions:
                if len(self._functions) >= _MOST_FUNCTIONS:
                    del self._functions[next(iter(self._functions))]
                self._functions[key] = record()
            found: T = self._functions[key]
        return found

    def __reduce__(self) -> Any:
        # called by copy and pickle: functions are recorded again
        params = {name: np.asarray(value) for name, value in self.params.items()}
        make = partial(type(self), marian_exact=self.marian_exact)
        return make, (self.options, params, self.dropouts)

    def __repr__(self) -> str:
        size = sum(int(np.prod(value.shape)) for value in self.params.values())
        return f"Model({self.type}, {len(self.params)} parameters, {size:,} numbers)"
