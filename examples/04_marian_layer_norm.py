"""A gradient that every Marian transformer was trained with, and that is wrong.

Layer normalization is ``y = gamma h + beta``, where h is the row x minus its mean, divided by its deviation
s. With a for the adjoint, Marian's gradient by x is

    gamma (a - mean(a) - h mean(a h)) / s

on CPU and GPU alike. Training works, the loss falls, and nobody notices. Below, the rule is written as a
user's operator, as short as on paper; the checker needs a second to say what is wrong with it, and when.
"""

import jax.numpy as jnp
import numpy as np

from mgraph import NaryNodeOp, check_gradients, layer_norm


def mean(x):
    return jnp.mean(x, -1, keepdims=True)


def standardized(x):
    """h and s of each row."""
    centred = x - mean(x)
    s = jnp.sqrt(mean(centred**2) + 1e-9)
    return centred / s, s


class MarianLayerNorm(NaryNodeOp):
    """Marian's rule: gamma is multiplied in last, after the means over the row were taken without it."""

    type = "marian_layer_norm"

    def forward_ops(self, x, gamma, beta):
        h, _ = standardized(x)
        return gamma * h + beta

    def backward_ops(self, adj, val, x, gamma, beta):
        h, s = standardized(x)
        dx = gamma * (adj - mean(adj) - h * mean(adj * h)) / s
        return dx, adj * h, adj


class LayerNorm(MarianLayerNorm):
    """The right rule: gamma is part of h's adjoint, and so goes into the means."""

    type = "layer_norm"

    def backward_ops(self, adj, val, x, gamma, beta):
        h, s = standardized(x)
        dh = gamma * adj
        dx = (dh - mean(dh) - h * mean(dh * h)) / s
        return dx, adj * h, adj


# A fresh model: gamma is one everywhere. Both rules are right, and a test at this point finds nothing.
random = np.random.default_rng(1)
x, beta = random.normal(size=(4, 8)), random.normal(size=(1, 8))
fresh = check_gradients(MarianLayerNorm, values=[x, np.ones((1, 8)), beta])
print(f"Before training gamma is constant (the children are x, gamma, beta).\n{fresh}\n")

# A trained model: gamma differs from element to element.
point = [x, random.uniform(0.5, 1.5, (1, 8)), beta]
trained = check_gradients(MarianLayerNorm, values=point)
print(f"After some steps it varies.\n{trained}\n")

# Gamma where it belongs.
right = check_gradients(LayerNorm, values=point)
print(f"The same with gamma inside of the means.\n{right}")

by_x, by_gamma, by_beta = trained.checks
assert fresh.ok and right.ok
assert not by_x.ok and by_gamma.ok and by_beta.ok
assert by_x.jax_difference > 0.1  # not rounding: more than a tenth of the largest gradient

# The built-in operator has the right rule; "marian" is for those who must repeat Marian's training.
assert check_gradients(layer_norm, values=point).ok
assert not check_gradients(layer_norm, values=point, rule_set="marian").ok
