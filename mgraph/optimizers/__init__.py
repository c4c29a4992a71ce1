"""Optimizers: Marian's, and any optax optimizer by name."""

from __future__ import annotations

from .base import Optimizer as Optimizer
from .base import OptimizerState as OptimizerState
from .base import moved as moved
from .marian import Adagrad as Adagrad
from .marian import Adam as Adam
from .marian import Sgd as Sgd
from .of_optax import Optax as Optax
from .options import optimizer_from_options as optimizer_from_options
