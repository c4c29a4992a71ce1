"""Layers under Marian's parameter names, over the expression graph of ``mgraph``.

Make a layer with a prefix for its parameters' names and its sizes, then call it with nodes of any graph:
``layers.Dense("hidden", 32, 64, activation="tanh")(x)``.
"""

from __future__ import annotations

from .activations import ACTIVATIONS as ACTIVATIONS
from .activations import activation as activation
from .attention import MultiHeadAttention as MultiHeadAttention
from .attention import join_heads as join_heads
from .attention import log_mask as log_mask
from .attention import split_heads as split_heads
from .cells import CELLS as CELLS
from .cells import GRU as GRU
from .cells import LSTM as LSTM
from .cells import MGRU as MGRU
from .cells import MLSTM as MLSTM
from .cells import SRU as SRU
from .cells import SSRU as SSRU
from .cells import Cell as Cell
from .cells import CellInput as CellInput
from .cells import GRUNematus as GRUNematus
from .cells import ReLU as ReLU
from .cells import StackedCell as StackedCell
from .cells import Tanh as Tanh
from .cells import find_cell as find_cell
from .choices import UnsupportedOptionError as UnsupportedOptionError
from .choices import choose as choose
from .dense import Affine as Affine
from .dense import Dense as Dense
from .embedding import Embedding as Embedding
from .embedding import NoPositionEmbedding as NoPositionEmbedding
from .embedding import PositionEmbedding as PositionEmbedding
from .embedding import Positions as Positions
from .embedding import TrainedPositionEmbedding as TrainedPositionEmbedding
from .factored import FactoredEmbedding as FactoredEmbedding
from .factored import FactoredOutput as FactoredOutput
from .factored import FactorGroups as FactorGroups
from .layer import Layer as Layer
from .layer import Parameter as Parameter
from .norm import LayerNorm as LayerNorm
from .norm import NormConfig as NormConfig
from .norm import RMSNorm as RMSNorm
from .output import Columns as Columns
from .output import Output as Output
from .packing import PackedWords as PackedWords
from .packing import at_positions as at_positions
from .packing import carried_states as carried_states
from .packing import in_tiers as in_tiers
from .packing import laid_out as laid_out
from .packing import taken_up as taken_up
from .processing import PostProcess as PostProcess
from .processing import PreProcess as PreProcess
from .rnn import RNN as RNN
from .rnn import Transduced as Transduced
from .rnn_attention import AttendedContext as AttendedContext
from .rnn_attention import GlobalAttention as GlobalAttention
from .transformer import AttentionBlock as AttentionBlock
from .transformer import AverageAttention as AverageAttention
from .transformer import Context as Context
from .transformer import DecoderLayer as DecoderLayer
from .transformer import EncoderLayer as EncoderLayer
from .transformer import FeedForwardBlock as FeedForwardBlock
from .transformer import PoolingBlock as PoolingBlock
from .transformer import Recurrence as Recurrence
from .transformer import SelfAttention as SelfAttention
from .transformer import TransformerConfig as TransformerConfig
