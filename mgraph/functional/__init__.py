"""Marian's functional operators, for porting node operators line by line.

A functor is an expression of the placeholders ``_1`` to ``_9``; ``element``, ``add`` and ``aggregate`` apply
it to arrays, ``prod`` multiplies matrices. Where Marian has ::

    NodeOps forwardOps()  { return {NodeOp(Element(_1 = sin(_2), val_, child(0)->val()))}; }
    NodeOps backwardOps() { return {NodeOp(Add(_1 * cos(_2), child(0)->grad(), adj_, child(0)->val()))}; }

a rule has ::

    def forward_ops(self, x):
        return element(sin(_1), x)

    def backward_ops(self, adj, val, x):
        return (add(_1 * cos(_2), x.shape, adj, x),)

It is a thin layer over ``jax.numpy``, without side effects, and works under ``jit``, ``grad`` and ``vmap``.
One thing to keep in mind: nothing is assigned, so the functor of ``element`` counts its inputs from ``_1``,
whereas Marian's counts the output first. ``add`` and ``aggregate`` count as Marian's do.

Source: Marian, ``functional/operators.h`` and ``tensors/tensor_operators.h``.
"""

from __future__ import annotations

from .functions import PReLU as PReLU
from .functions import PReLUback as PReLUback
from .functions import ReLU as ReLU
from .functions import ReLUback as ReLUback
from .functions import Sigma as Sigma
from .functions import abs as abs
from .functions import bump as bump
from .functions import ceil as ceil
from .functions import clip as clip
from .functions import cos as cos
from .functions import erf as erf
from .functions import exp as exp
from .functions import floor as floor
from .functions import if_then_else as if_then_else
from .functions import log as log
from .functions import logaddexp as logaddexp
from .functions import max as max
from .functions import min as min
from .functions import prelu as prelu
from .functions import prelu_back as prelu_back
from .functions import relu as relu
from .functions import relu_back as relu_back
from .functions import round as round
from .functions import sgn as sgn
from .functions import sigmoid as sigmoid
from .functions import sin as sin
from .functions import sqr as sqr
from .functions import sqrt as sqrt
from .functions import tan as tan
from .functions import tanh as tanh
from .functors import Functor as Functor
from .functors import _1 as _1
from .functors import _2 as _2
from .functors import _3 as _3
from .functors import _4 as _4
from .functors import _5 as _5
from .functors import _6 as _6
from .functors import _7 as _7
from .functors import _8 as _8
from .functors import _9 as _9
from .functors import and_ as and_
from .functors import eq as eq
from .functors import geq as geq
from .functors import gt as gt
from .functors import leq as leq
from .functors import lt as lt
from .functors import neg as neg
from .functors import negate as negate
from .functors import neq as neq
from .functors import or_ as or_
from .functors import pow as pow
from .tensors import add as add
from .tensors import aggregate as aggregate
from .tensors import element as element
from .tensors import prod as prod
