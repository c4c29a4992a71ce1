"""mgraph: Marian's expression graph in Python on JAX.

Build a graph with Marian's vocabulary, run it forward and backward as compiled programs, check its
hand-written gradients. See ``ExpressionGraph`` to start.
"""

from __future__ import annotations

from . import inits as inits
from .errors import DeviceError as DeviceError
from .errors import ElementTypeError as ElementTypeError
from .errors import GradientError as GradientError
from .errors import GraphError as GraphError
from .errors import MGraphError as MGraphError
from .errors import ModelFileError as ModelFileError
from .errors import ParameterError as ParameterError
from .errors import ShapeError as ShapeError
from .function import Function as Function
from .gradcheck import GradientReport as GradientReport
from .gradcheck import check_gradients as check_gradients
from .graph import ExpressionGraph as ExpressionGraph
from .leaves import ConstantNode as ConstantNode
from .leaves import Parameters as Parameters
from .leaves import ParamNode as ParamNode
from .node import NaryNodeOp as NaryNodeOp
from .node import Node as Node
from .node import UnaryNodeOp as UnaryNodeOp
from .optimizers import Adagrad as Adagrad
from .optimizers import Adam as Adam
from .optimizers import Optimizer as Optimizer
from .optimizers import Sgd as Sgd
from .programs import CompileStats as CompileStats
from .programs import clear_programs as clear_programs
from .programs import compile_stats as compile_stats
from .programs import set_program_capacity as set_program_capacity
from .rules import derivative as derivative
from .shape import Slice as Slice
from .types import Type as Type

__version__ = "0.1.0"
