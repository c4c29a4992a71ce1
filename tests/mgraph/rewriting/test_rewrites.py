"""The rewrites that come with mgraph: equal values and gradients, exact conditions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from mgraph import ExpressionGraph, Node, Slice, inits
from mgraph.rewriting import DEFAULT, Rule, optimize
from tests.helpers.rewritten import (
    ONEHOT,
    Build,
    b,
    check,
    computed,
    constant,
    labels,
    left,
    logits,
    numbers,
    param,
    w,
    x2,
)


def by_hand(graph: ExpressionGraph, stop: bool) -> Node:
    """A stable logsoftmax spelled out."""
    x = logits(graph)
    top = mgraph.max(x, -1)
    z = x - (mgraph.stop_gradient(top) if stop else top)
    return z - mgraph.log(mgraph.sum(mgraph.exp(z), -1))


def smoothed(graph: ExpressionGraph, form: int) -> Node:
    x = logits(graph)
    y = mgraph.logsoftmax(x)
    if form == 3:
        return mgraph.cross_entropy(x, labels(graph)) * 0.7 + (-mgraph.mean(y, -1)) * 0.3
    picked = mgraph.gather(y, -1, labels(graph))
    if form == 0:
        return -picked * 0.9 - mgraph.mean(y, -1) * 0.1
    if form == 1:
        return -(picked * 0.9 + mgraph.mean(y, -1) * 0.1)
    return -picked * 0.9 + mgraph.sum(y, -1) * (-0.1 / 4)


REWRITES: dict[str, tuple[Build, str]] = {
    # scalar chains and signs
    "two factors": (lambda g: x2(g) * 2.0 * 3.0, "scalar_mult"),
    "many factors": (lambda g: x2(g) * 2.0 * 3.0 * -0.5 * 7.0, "scalar_mult"),
    "two terms": (lambda g: x2(g) + 1.0 + 2.0, "scalar_add"),
    "terms that cancel": (lambda g: mgraph.tanh(x2(g) + 1.5 - 1.5), "tanh"),
    "factors that cancel": (lambda g: mgraph.tanh(x2(g) * 2.0 * 0.5), "tanh"),
    "times one": (lambda g: mgraph.tanh(g.ones((1,)) * x2(g)), "tanh"),
    "plus zero": (lambda g: mgraph.tanh(x2(g) + g.zeros((1, 1))), "tanh"),
    "minus zero over one": (lambda g: mgraph.tanh((x2(g) - g.zeros((1,))) / g.ones(())), "tanh"),
    "times minus one": (lambda g: mgraph.exp(x2(g)) * -1.0 + x2(g), "exp -"),
    "twice negative": (lambda g: mgraph.tanh(0 - (-x2(g))), "tanh"),
    "negative product": (lambda g: -(x2(g) * 2.0), "scalar_mult"),
    "product of a negative": (lambda g: (-x2(g)) * -2.0, "scalar_mult"),
    "negative difference": (lambda g: -(mgraph.exp(x2(g)) - x2(g)), "exp -"),
    "plus a negative": (lambda g: -mgraph.exp(x2(g)) + x2(g), "exp -"),
    "minus a negative": (lambda g: x2(g) - (-mgraph.exp(x2(g))), "exp +"),
    # reshapes and transposes
    "reshapes": (lambda g: mgraph.reshape(mgraph.flatten(x2(g)), (2, 6)), "reshape"),
    "reshape there and back": (lambda g: mgraph.tanh(mgraph.reshape(mgraph.flatten(x2(g)), (4, 3))), "tanh"),
    "flattened vector": (lambda g: mgraph.tanh(mgraph.flatten(param(g, "x", 6))), "tanh"),
    "transposes": (
        lambda g: mgraph.transpose(mgraph.transpose(logits(g), (1, 2, 0)), (2, 1, 0)),
        "transpose",
    ),
    "transpose there and back": (
        lambda g: mgraph.tanh(mgraph.transpose(mgraph.transpose(logits(g), (1, 2, 0)), (2, 0, 1))),
        "tanh",
    ),
    "idle transpose": (lambda g: mgraph.tanh(mgraph.transpose(logits(g), (0, 1, 2))), "tanh"),
    # products
    "affine": (lambda g: mgraph.dot(x2(g), w(g)) + b(g), "affine"),
    "affine, bias first": (lambda g: param(g, "b", 5) + mgraph.dot(x2(g), w(g), scale=0.5), "affine"),
    "affine over rows": (lambda g: mgraph.dot(param(g, "x", 2, 4, 3), w(g)) + b(g), "affine"),
    "affine with all": (
        lambda g: mgraph.dot(mgraph.transpose(param(g, "x", 3, 4)), w(g)) * 2.0 + b(g),
        "affine",
    ),
    "left transpose": (lambda g: mgraph.dot(mgraph.transpose(param(g, "x", 3, 4)), w(g)), "dot"),
    "right transpose": (lambda g: mgraph.dot(x2(g), mgraph.transpose(param(g, "w", 5, 3))), "dot"),
    "transposes taken back": (
        lambda g: mgraph.dot(
            mgraph.transpose(x2(g)), mgraph.transpose(param(g, "w", 3, 5)), trans_a=True, trans_b=True
        ),
        "dot",
    ),
    "affine of transposes": (
        lambda g: mgraph.affine(x2(g), mgraph.transpose(param(g, "w", 5, 3)), b(g)),
        "affine",
    ),
    "product transposed": (lambda g: mgraph.transpose(mgraph.dot(x2(g), w(g))), "dot"),
    "product transposed, of transposes": (
        lambda g: mgraph.transpose(mgraph.dot(param(g, "x", 3, 4), param(g, "w", 5, 3), True, True)),
        "dot",
    ),
    "batch transposes": (
        lambda g: mgraph.bdot(param(g, "q", 2, 3, 4), mgraph.transpose(param(g, "k", 2, 5, 4))),
        "bdot",
    ),
    "batch product transposed": (
        lambda g: mgraph.transpose(
            mgraph.bdot(param(g, "q", 2, 1, 3, 4), param(g, "k", 5, 6, 4), trans_b=True), (0, 1, 3, 2)
        ),
        "bdot",
    ),
    "attention scores": (
        lambda g: mgraph.bdot(param(g, "q", 2, 3, 4), mgraph.swap_axes(param(g, "k", 2, 5, 4), -1, -2)) / 2.0,
        "bdot",
    ),
    # softmax from its parts
    "logsumexp": (lambda g: mgraph.log(mgraph.sum(mgraph.exp(logits(g)), 1)), "logSumExp"),
    "log of exp": (lambda g: mgraph.tanh(mgraph.log(mgraph.exp(logits(g)))), "tanh"),
    "softmax": (lambda g: mgraph.exp(logits(g)) / mgraph.sum(mgraph.exp(logits(g)), 1), "softmax"),
    "shifted softmax": (lambda g: mgraph.softmax(logits(g) - mgraph.max(logits(g), 1), 1), "softmax"),
    "logsoftmax of logsumexp": (lambda g: logits(g) - mgraph.logsumexp(logits(g), -1), "logsoftmax"),
    "logsoftmax plus": (lambda g: -mgraph.logsumexp(logits(g), 2) + logits(g), "logsoftmax"),
    "log of softmax": (lambda g: mgraph.log(mgraph.softmax(logits(g))), "logsoftmax"),
    "logsoftmax by hand": (lambda g: by_hand(g, stop=False), "logsoftmax"),
    "logsoftmax by hand, stopped": (lambda g: by_hand(g, stop=True), "logsoftmax"),
    "logsumexp by hand": (
        lambda g: (
            mgraph.max(logits(g), 1)
            + mgraph.log(mgraph.sum(mgraph.exp(logits(g) - mgraph.max(logits(g), 1)), 1))
        ),
        "logSumExp",
    ),
    "log of rows": (
        lambda g: mgraph.log(mgraph.rows(mgraph.flatten_2d(mgraph.softmax(logits(g))), [4, 1, 1])),
        "logsoftmax reshape rows",
    ),
    "log of a part": (
        lambda g: mgraph.log(mgraph.transpose(mgraph.slice(mgraph.softmax(logits(g)), 2, Slice(1, 3)))),
        "logsoftmax sliceView transpose",
    ),
    # cross entropy
    "-log(gather(softmax))": (
        lambda g: -mgraph.log(mgraph.gather(mgraph.softmax(logits(g)), -1, labels(g))),
        "x-ent",
    ),
    "-gather(log(softmax))": (
        lambda g: -mgraph.gather(mgraph.log(mgraph.softmax(logits(g))), -1, labels(g)),
        "x-ent",
    ),
    "-gather(logsoftmax)": (lambda g: -mgraph.gather(mgraph.logsoftmax(logits(g)), -1, labels(g)), "x-ent"),
    "gather * -2": (
        lambda g: mgraph.gather(mgraph.logsoftmax(logits(g)), -1, labels(g)) * -2.0,
        "x-ent scalar_mult",
    ),
    "signed labels that are none": (
        lambda g: -mgraph.gather(mgraph.logsoftmax(logits(g)), 2, labels(g, type="int32")),
        "x-ent",
    ),
    "lse - gather": (
        lambda g: mgraph.logsumexp(logits(g), -1) - mgraph.gather(logits(g), -1, labels(g)),
        "x-ent",
    ),
    "-(gather - lse)": (
        lambda g: -(mgraph.gather(logits(g), -1, labels(g)) - mgraph.logsumexp(logits(g), -1)),
        "x-ent",
    ),
    "all by hand": (
        lambda g: mgraph.log(mgraph.sum(mgraph.exp(logits(g)), -1)) - mgraph.gather(logits(g), -1, labels(g)),
        "x-ent",
    ),
    "-log(exp / sum)": (
        lambda g: (
            -mgraph.log(
                mgraph.gather(mgraph.exp(logits(g)) / mgraph.sum(mgraph.exp(logits(g)), -1), -1, labels(g))
            )
        ),
        "x-ent",
    ),
    "flat rows": (
        lambda g: -mgraph.gather(mgraph.flatten_2d(mgraph.logsoftmax(logits(g))), 1, labels(g, 6, 1)),
        "reshape x-ent",
    ),
    "mean of the batch": (
        lambda g: -mgraph.mean(mgraph.flatten(mgraph.gather(mgraph.logsoftmax(logits(g)), -1, labels(g)))),
        "x-ent reshape mean",
    ),
    "weighted mean": (
        lambda g: (
            mgraph.sum(
                constant(g, numbers(2, 3, 1)) * mgraph.gather(mgraph.logsoftmax(logits(g)), -1, labels(g)), 1
            )
            * (-1 / 6)
        ),
        "* scalar_mult sum x-ent",
    ),
    "average": (
        lambda g: (
            -mgraph.weighted_average(
                mgraph.gather(mgraph.logsoftmax(logits(g)), -1, labels(g)),
                constant(g, numbers(2, 3, 1) ** 2),
                1,
            )
        ),
        "/ scalar-product x-ent",
    ),
    "subtracted": (
        lambda g: (
            mgraph.sum(mgraph.exp(logits(g)), -1) - mgraph.gather(mgraph.logsoftmax(logits(g)), -1, labels(g))
        ),
        "+ exp sum x-ent",
    ),
    "square": (
        lambda g: -mgraph.square(mgraph.gather(mgraph.logsoftmax(logits(g)), -1, labels(g))),
        "gather logsoftmax negate square",
    ),
    "one hot": (lambda g: -mgraph.sum(constant(g, ONEHOT) * mgraph.logsoftmax(logits(g)), -1), "x-ent"),
    "one hot, smoothed": (
        lambda g: -mgraph.sum(mgraph.logsoftmax(logits(g)) * constant(g, 0.8 * ONEHOT + 0.05), -1),
        "x-ent",
    ),
    "one hot, scalar product": (
        lambda g: -mgraph.scalar_product(mgraph.logsoftmax(logits(g)), constant(g, ONEHOT), -1),
        "x-ent",
    ),
    "one hot for all rows": (
        lambda g: -mgraph.sum(constant(g, ONEHOT[0, 1]) * mgraph.logsoftmax(logits(g)), -1),
        "x-ent",
    ),
    "-log(sum(onehot * softmax))": (
        lambda g: -mgraph.log(mgraph.sum(constant(g, ONEHOT) * mgraph.softmax(logits(g)), -1)),
        "x-ent",
    ),
    "smoothing": (lambda g: smoothed(g, 0), "x-ent"),
    "smoothing, one minus": (lambda g: smoothed(g, 1), "x-ent"),
    "smoothing, sum": (lambda g: smoothed(g, 2), "x-ent"),
    "smoothing, loss": (lambda g: smoothed(g, 3), "x-ent"),
    # constants
    "constants": (
        lambda g: x2(g) * mgraph.exp(g.constant((3,), inits.from_vector([1, 2, 3])) * 2.0 + g.ones((3,))),
        "*",
    ),
}


@pytest.mark.parametrize("name", REWRITES)
@pytest.mark.sampled(every=3)
def test_a_rewrite_changes_no_value_and_no_gradient(name: str) -> None:
    build, operators = REWRITES[name]
    report = check(build, *operators.split())
    assert report or name == "square"


@pytest.mark.parametrize("item", DEFAULT, ids=lambda r: r.name)
def test_every_rule_is_tried(item: Rule) -> None:
    """Some rewrite above needs the rule: without it, other operators are left."""
    others = [r for r in DEFAULT if r is not item]
    assert any(left(build, others) != sorted(types.split()) for build, types in REWRITES.values())


@pytest.mark.parametrize("type", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "name", ["-log(gather(softmax))", "lse - gather", "logsoftmax by hand", "affine with all"]
)
@pytest.mark.sampled(every=3)
def test_16_bit_types_keep_their_type_and_come_closer_to_the_truth(name: str, type: str) -> None:
    build, _ = REWRITES[name]

    def rounded(graph: ExpressionGraph) -> Node:
        """The graph in float64, with parameters rounded to 16 bits."""
        made = build(graph)
        for node in graph.params().values():
            node.set_value(np.asarray(node.val()).astype(jnp.dtype(type)).astype(np.float64))
        return made

    truth = computed(rounded, rewrite=False).value
    before, after = computed(build, False, type).value, computed(build, True, type).value
    assert before.dtype == after.dtype == jnp.dtype(type)
    distance = [np.abs(v.astype(np.float64) - truth).max() for v in (before, after)]
    assert distance[1] <= distance[0]
    assert distance[1] <= np.abs(truth).max() * float(jnp.finfo(jnp.dtype(type)).eps)


def test_the_rewritten_loss_does_not_overflow() -> None:
    for rewrite, finite in ((False, False), (True, True)):
        graph = ExpressionGraph()
        x = graph.param("x", (1, 3), inits.from_vector([0.0, 500.0, -500.0]))
        powers = mgraph.exp(x)
        loss = -mgraph.log(
            mgraph.gather(powers / mgraph.sum(powers, -1), -1, graph.constant((1, 1), type="uint32"))
        )
        if rewrite:
            optimize(graph)
        graph.backprop()
        assert np.isfinite(loss.scalar()) == finite
        assert np.isfinite(x.grad()).all() == finite
    np.testing.assert_allclose(loss.scalar(), 500.0)
    np.testing.assert_allclose(x.grad(), [[-1.0, 1.0, 0.0]], atol=1e-6)
