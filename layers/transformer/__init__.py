"""Layers of Marian's transformer: blocks with pre- and post-processing, and layers of blocks.

Sentences are batch-major, ``(batch, time, dim)``. A decoder layer also runs single steps on
``(batch, beam, dim)``, all hypotheses of each sentence.
"""

from __future__ import annotations

from .autoregression import Autoregression as Autoregression
from .autoregression import Cache as Cache
from .autoregression import Now as Now
from .average_attention import AverageAttention as AverageAttention
from .blocks import AttentionBlock as AttentionBlock
from .blocks import Context as Context
from .blocks import FeedForwardBlock as FeedForwardBlock
from .blocks import PoolingBlock as PoolingBlock
from .config import TransformerConfig as TransformerConfig
from .layers import AUTOREGRESSIONS as AUTOREGRESSIONS
from .layers import DecoderLayer as DecoderLayer
from .layers import EncoderLayer as EncoderLayer
from .recurrence import Recurrence as Recurrence
from .self_attention import SelfAttention as SelfAttention
from .self_attention import no_ancestors as no_ancestors
from .self_attention import places_of as places_of
from .self_attention import with_ancestors as with_ancestors
