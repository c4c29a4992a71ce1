"""mgraph: Marian's expression graph in Python on JAX.

Build a graph with Marian's vocabulary, run it forward and backward as compiled programs, check its
hand-written gradients. See ``ExpressionGraph`` to start.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import drawing as drawing
from . import expression as expression
from . import functional as functional
from . import inits as inits
from .errors import ArgumentError as ArgumentError
from .errors import DeviceError as DeviceError
from .errors import ElementTypeError as ElementTypeError
from .errors import GradientError as GradientError
from .errors import GraphError as GraphError
from .errors import MGraphError as MGraphError
from .errors import ModelFileError as ModelFileError
from .errors import NonFiniteError as NonFiniteError
from .errors import OutOfMemoryError as OutOfMemoryError
from .errors import ParameterError as ParameterError
from .errors import ShapeError as ShapeError
from .errors import WordVectorsError as WordVectorsError
from .errors import WrongGradientError as WrongGradientError
from .files.dumps import DumpDiff as DumpDiff
from .files.dumps import NodeDifference as NodeDifference
from .files.dumps import diff as diff
from .function import Function as Function
from .graph import ExpressionGraph as ExpressionGraph
from .leaves import ConstantNode as ConstantNode
from .leaves import Parameters as Parameters
from .leaves import ParamNode as ParamNode
from .loggers import create_loggers as create_loggers
from .node import NaryNodeOp as NaryNodeOp
from .node import Node as Node
from .node import UnaryNodeOp as UnaryNodeOp
from .ops.arithmetic import logaddexp as logaddexp
from .ops.arithmetic import maximum as maximum
from .ops.arithmetic import minimum as minimum
from .ops.arithmetic import plus as plus
from .ops.attention import cached_attention as cached_attention
from .ops.attention import dot_product_attention as dot_product_attention
from .ops.cells import att_ops as att_ops
from .ops.cells import gru_ops as gru_ops
from .ops.cells import highway as highway
from .ops.cells import lstm_ops_c as lstm_ops_c
from .ops.cells import lstm_ops_o as lstm_ops_o
from .ops.comparison import eq as eq
from .ops.comparison import ge as ge
from .ops.comparison import gt as gt
from .ops.comparison import le as le
from .ops.comparison import logical_and as logical_and
from .ops.comparison import logical_not as logical_not
from .ops.comparison import logical_or as logical_or
from .ops.comparison import logical_xor as logical_xor
from .ops.comparison import lt as lt
from .ops.comparison import ne as ne
from .ops.convolution import convert2cudnn_format as convert2cudnn_format
from .ops.convolution import convert_from_cudnn_format as convert_from_cudnn_format
from .ops.convolution import convolution as convolution
from .ops.cumulative import cumsum as cumsum
from .ops.cumulative import logcumsumexp as logcumsumexp
from .ops.dropout import affine_with_relu_dropout as affine_with_relu_dropout
from .ops.dropout import dropout as dropout
from .ops.dropout import dropout_relu_inplace as dropout_relu_inplace
from .ops.elementwise import abs as abs
from .ops.elementwise import clip as clip
from .ops.elementwise import cos as cos
from .ops.elementwise import exp as exp
from .ops.elementwise import gelu as gelu
from .ops.elementwise import leakyrelu as leakyrelu
from .ops.elementwise import log as log
from .ops.elementwise import prelu as prelu
from .ops.elementwise import relu as relu
from .ops.elementwise import sigmoid as sigmoid
from .ops.elementwise import sin as sin
from .ops.elementwise import sqrt as sqrt
from .ops.elementwise import square as square
from .ops.elementwise import swish as swish
from .ops.elementwise import tan as tan
from .ops.elementwise import tanh as tanh
from .ops.functors import callback as callback
from .ops.functors import lambda_node as lambda_node
from .ops.functors import remove_as_root as remove_as_root
from .ops.index import cols as cols
from .ops.index import gather as gather
from .ops.index import index_select as index_select
from .ops.index import insert as insert
from .ops.index import relocate as relocate
from .ops.index import rows as rows
from .ops.index import scatter as scatter
from .ops.mapping import map as map
from .ops.mapping import reduce as reduce
from .ops.norm import layer_norm as layer_norm
from .ops.norm import rms_norm as rms_norm
from .ops.order import argmax as argmax
from .ops.order import argmin as argmin
from .ops.order import sort as sort
from .ops.order import topk as topk
from .ops.order import topk_indices as topk_indices
from .ops.order import topk_values as topk_values
from .ops.output_loss import affine_cross_entropy as affine_cross_entropy
from .ops.pooling import avg_pooling as avg_pooling
from .ops.pooling import max_pooling as max_pooling
from .ops.pooling import pooling_with_masking as pooling_with_masking
from .ops.power import pow as pow
from .ops.product import affine as affine
from .ops.product import bdot as bdot
from .ops.product import bdot_legacy as bdot_legacy
from .ops.product import dot as dot
from .ops.quantized import affine_int8 as affine_int8
from .ops.quantized import fake_quantize as fake_quantize
from .ops.reduce import logsumexp as logsumexp
from .ops.reduce import max as max
from .ops.reduce import mean as mean
from .ops.reduce import min as min
from .ops.reduce import prod as prod
from .ops.reduce import scalar_product as scalar_product
from .ops.reduce import std as std
from .ops.reduce import sum as sum
from .ops.reduce import var as var
from .ops.reduce import weighted_average as weighted_average
from .ops.regions import broadcast_to as broadcast_to
from .ops.regions import pad as pad
from .ops.regions import replace_slice as replace_slice
from .ops.regions import reverse as reverse
from .ops.scan import scan as scan
from .ops.selection import one_hot as one_hot
from .ops.selection import select as select
from .ops.shape import atleast_1d as atleast_1d
from .ops.shape import atleast_2d as atleast_2d
from .ops.shape import atleast_3d as atleast_3d
from .ops.shape import atleast_4d as atleast_4d
from .ops.shape import atleast_nd as atleast_nd
from .ops.shape import concatenate as concatenate
from .ops.shape import flatten as flatten
from .ops.shape import flatten_2d as flatten_2d
from .ops.shape import narrow as narrow
from .ops.shape import repeat as repeat
from .ops.shape import reshape as reshape
from .ops.shape import shift as shift
from .ops.shape import slice as slice
from .ops.shape import swap_axes as swap_axes
from .ops.shape import transpose as transpose
from .ops.softmax import cross_entropy as cross_entropy
from .ops.softmax import logsoftmax as logsoftmax
from .ops.softmax import softmax as softmax
from .ops.softmax import softmax_cross_entropy as softmax_cross_entropy
from .ops.softmax import sparsemax as sparsemax
from .ops.softmax import unlikelihood as unlikelihood
from .ops.sparse import csr_dot as csr_dot
from .ops.sparse import dot_csr as dot_csr
from .ops.structure import TupleViewNodeOp as TupleViewNodeOp
from .ops.structure import cast as cast
from .ops.structure import checkpoint as checkpoint
from .ops.structure import choose as choose
from .ops.structure import clip_gradient as clip_gradient
from .ops.structure import constant_like as constant_like
from .ops.structure import debug as debug
from .ops.structure import get as get
from .ops.structure import stop_gradient as stop_gradient
from .partial import PartialFunction as PartialFunction
from .partial import PartialShape as PartialShape
from .rules import derivative as derivative
from .running.compilations import CompileStats as CompileStats
from .running.profile import Profile as Profile
from .running.programs import Compiled as Compiled
from .running.programs import Plan as Plan
from .running.programs import callers_settings as callers_settings
from .running.programs import clear_programs as clear_programs
from .running.programs import compile_stats as compile_stats
from .running.programs import compiled as compiled
from .running.programs import set_program_capacity as set_program_capacity
from .running.stored import register_arrays as register_arrays
from .running.stored import register_tuple as register_tuple
from .saved_function import SavedFunction as SavedFunction
from .saved_function import load_function as load_function
from .shape import NodeShape as NodeShape
from .shape import Slice as Slice
from .types import Type as Type

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .bridges import BridgeError as BridgeError
    from .bridges import UnsupportedOperatorError as UnsupportedOperatorError
    from .bridges import UnsupportedPrimitiveError as UnsupportedPrimitiveError
    from .bridges import export_onnx as export_onnx
    from .bridges import from_jax as from_jax
    from .bridges import import_onnx as import_onnx
    from .gradcheck import GradientReport as GradientReport
    from .gradcheck import OperatorReport as OperatorReport
    from .gradcheck import assert_gradients as assert_gradients
    from .gradcheck import check_budgets as check_budgets
    from .gradcheck import check_compiled as check_compiled
    from .gradcheck import check_gradients as check_gradients
    from .gradcheck import check_mutants as check_mutants
    from .gradcheck import check_operators as check_operators
    from .optimizers import Adagrad as Adagrad
    from .optimizers import Adam as Adam
    from .optimizers import Optax as Optax
    from .optimizers import Optimizer as Optimizer
    from .optimizers import Sgd as Sgd
    from .optimizers import optimizer_from_options as optimizer_from_options

_HOMES = {
    "BridgeError": "bridges",
    "UnsupportedOperatorError": "bridges",
    "UnsupportedPrimitiveError": "bridges",
    "export_onnx": "bridges",
    "from_jax": "bridges",
    "import_onnx": "bridges",
    "GradientReport": "gradcheck",
    "OperatorReport": "gradcheck",
    "assert_gradients": "gradcheck",
    "check_budgets": "gradcheck",
    "check_compiled": "gradcheck",
    "check_gradients": "gradcheck",
    "check_mutants": "gradcheck",
    "check_operators": "gradcheck",
    "Optax": "optimizers",
    "Adagrad": "optimizers",
    "Adam": "optimizers",
    "Optimizer": "optimizers",
    "Sgd": "optimizers",
    "optimizer_from_options": "optimizers",
}
"""Subpackages of the public names that many programs do not need: they are loaded on first use."""


if not TYPE_CHECKING:  # so that type checkers report misspelt names
    __all__ = sorted(
        {"drawing", "expression", "functional", "inits", *_HOMES}
        | {name for name, value in globals().items() if name[0] != "_" and not isinstance(value, ModuleType)}
        - {"Any", "ModuleType", "TYPE_CHECKING", "annotations"}
    )

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(
                f"module 'mgraph' has no attribute '{name}'", name=name, obj=sys.modules[__name__]
            )
        found = globals()[name] = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
