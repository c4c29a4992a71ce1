"""Marian's translation models, by type: load one, run it as nodes of a graph or as pure functions."""

from __future__ import annotations

from nmt.models.functions import Encoder as Encoder
from nmt.models.functions import PairScorer as PairScorer
from nmt.models.functions import Stepper as Stepper
from nmt.models.model import Model as Model
from nmt.models.parts import Decoded as Decoded
from nmt.models.parts import Dropouts as Dropouts
from nmt.models.parts import PackedSource as PackedSource
from nmt.models.parts import PackedText as PackedText
from nmt.models.parts import Source as Source
from nmt.models.parts import Step as Step
from nmt.models.types import TYPES as TYPES
