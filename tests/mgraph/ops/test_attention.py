"""Attention by dot products: one node in place of four, by a kernel where there is one."""

from __future__ import annotations

from functools import partial
from typing import Any

import chex
import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import mgraph
from layers import MultiHeadAttention
from layers.attention import log_mask
from mgraph import ArgumentError, ExpressionGraph, Node, ShapeError, dot_product_attention
from mgraph.operators import make_operator
from mgraph.ops.attention import FLASH_LENGTH, DotProductAttentionNodeOp
from mgraph.platforms import flash_attention
from mgraph.rules import evaluate
from tests.helpers.leaves import constant, drawn, param

QUERY, KEYS, VALUES = (2, 2, 4, 8), (2, 2, 6, 8), (2, 2, 6, 8)
KEPT = np.float32([[1, 1, 1, 1, 1, 0], [1, 1, 0, 0, 0, 0]])[:, None, None]


OPERANDS = [drawn(*shape, seed=i) for i, shape in enumerate((QUERY, KEYS, VALUES))]
DROPPED = np.float32(np.random.default_rng(3).random((2, 2, 4, 6)) < 0.8) / np.float32(0.8)


def composed(q: Node, k: Node, v: Node, mask: Node | None, dropout: Any) -> Node:
    scores = mgraph.bdot(q, k, False, True, 8**-0.5)
    weights = mgraph.softmax(scores if mask is None else scores + mask)
    return mgraph.bdot(mgraph.dropout(weights, dropout), v)


def value_and_slopes(attend: Any, masked: bool, dropout: Any) -> tuple[np.ndarray, ...]:
    """The value, and the gradients of a weighted sum of it with respect to queries, keys and values."""
    graph = ExpressionGraph(seed=5)
    operands = [param(graph, x, name) for x, name in zip(OPERANDS, "qkv", strict=True)]
    mask = log_mask(constant(graph, KEPT)) if masked else None
    y = attend(*operands, mask, constant(graph, dropout) if isinstance(dropout, np.ndarray) else dropout)
    mgraph.sum(mgraph.flatten(y * constant(graph, drawn(*y.shape, seed=9))))
    graph.backprop()
    return tuple(np.asarray(x) for x in (y.val(), *(node.grad() for node in operands)))


@pytest.mark.parametrize("dropout", [None, 0.3, DROPPED], ids=["kept", "drawn", "given"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.sampled("True-kept", "False-given", "False-drawn")
def test_one_node_computes_what_four_do(masked: bool, dropout: Any) -> None:
    """The random numbers are the same, too."""
    one = value_and_slopes(dot_product_attention, masked, dropout)
    four = value_and_slopes(composed, masked, dropout)
    chex.assert_trees_all_close(one, four, rtol=2e-5, atol=2e-6)


def kinds_behind(node: Node) -> set[str]:
    return {node.type}.union(*map(kinds_behind, node.children))


def test_layers_attend_by_one_node_and_show_weights_by_others(graph: ExpressionGraph) -> None:
    attention = MultiHeadAttention("a", 8, 2)
    x, mask = constant(graph, drawn(2, 6, 8)), log_mask(constant(graph, KEPT))
    keys, values = attention.keys(x), attention.values(x)
    y = attention.attend(x, keys, values, mask)
    assert "dot_product_attention" in kinds_behind(y) and "softmax" not in kinds_behind(y)
    shown = attention.gathered(attention.weights(x, keys, mask), values)
    np.testing.assert_allclose(*graph.function([y, shown])(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_sixteen_bits_are_rounded_before_and_after_the_weighted_sum_only(kind: str) -> None:
    short = [jnp.asarray(x, kind) for x in (*OPERANDS, DROPPED)]
    found = operator_of(dropped=True).forward_ops(*short)
    exact = operator_of(dropped=True).forward_ops(*(x.astype(jnp.float32) for x in short))
    assert found.dtype == kind
    bound = 3 * float(jnp.finfo(kind).eps) * float(jnp.max(jnp.abs(exact)))
    np.testing.assert_allclose(np.float32(found), exact, atol=bound)


def operator_of(**fields: Any) -> Any:
    return make_operator(DotProductAttentionNodeOp, {"scale": 8**-0.5, **fields})


@pytest.mark.parametrize(
    ("children", "message"),
    [
        ("q, w, v", r"expected keys as deep as queries"),
        ("q, k, k[:, :, 1:]", r"a value for each key"),
        ("q, k, v, x", r"expected a mask that fits the weights \(2, 2, 4, 6\), got \(5,\)"),
        ("q, k, narrow(v, 0, 0, 1), None, x", r"expected a mask that fits"),
        ("q, concatenate([k, k], 1), v", r"the axes before the last two do not fit"),
        ("x, k, v", r"expected batches of matrices"),
    ],
)
def test_errors_say_what_does_not_fit(graph: ExpressionGraph, children: str, message: str) -> None:
    q, k, v = (constant(graph, x) for x in OPERANDS)
    names = {"q": q, "k": k, "v": v, "w": constant(graph, drawn(2, 2, 6, 7)), "x": constant(graph, drawn(5))}
    with pytest.raises(ShapeError, match=message):
        eval(f"dot_product_attention({children})", vars(mgraph) | names)


def test_other_errors(graph: ExpressionGraph) -> None:
    q, k, v = (constant(graph, x) for x in OPERANDS)
    with pytest.raises(ShapeError, match="^cached_attention: expected batches of matrices"):
        mgraph.cached_attention(graph.ones((3,)), graph.indices([0]), [k], [v], [v])
    with pytest.raises(ArgumentError, match="expects a number for scale, got 'big'"):
        dot_product_attention(q, k, v, scale="big")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="probability 0 <= p < 1 or a mask, got 1.5"):
        dot_product_attention(q, k, v, dropout=1.5)
    with pytest.raises(ArgumentError, match="expected 1 masks after query, keys and values"):
        DotProductAttentionNodeOp(q, k, v, scale=1.0, masked=True)


# ---------------------------------------------------------------- cuDNN's kernel

XLAS = jax.nn.dot_product_attention


def stand_in(q: Any, k: Any, v: Any, *, mask: Any, scale: float, implementation: str) -> Any:
    """XLA's attention in place of cuDNN's, as strict about arguments, in a named scope."""
    if implementation != "cudnn" or q.dtype.itemsize != 2 or (mask is not None and mask.dtype != bool):
        raise NotImplementedError
    if mask is not None and mask.shape[2:] != (q.shape[1], k.shape[1]):
        raise ValueError
    with jax.named_scope("cudnn"):
        return XLAS(q, k, v, mask=mask, scale=scale, implementation="xla")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX has cuDNN's kernel here, and it pays even for short sentences."""
    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    monkeypatch.setattr("mgraph.ops.attention.FLASH_LENGTH", KEYS[-2])


def arguments(*, batch: int = 2, kind: str = "bfloat16", mask: bool = True) -> list[jax.Array]:
    q, k, v = (jnp.asarray(x, kind) for x in OPERANDS)
    return [q[:batch], k, v, *([jnp.asarray((1 - KEPT) * -1e8, kind)] if mask else [])]


def lowered(platform: str, operator: Any, values: list[jax.Array]) -> tuple[str, str]:
    """The lowered programs of the value and of the gradients."""
    attend = partial(evaluate, operator, "rules", (True,) * 3 + (False,) * (len(values) - 3))

    def slopes(*values: jax.Array) -> Any:
        y, pull = jax.vjp(lambda *v: attend(v), *values)
        return pull(y)

    def value(*values: jax.Array) -> Any:
        return attend(values)

    def text(f: Any) -> str:
        return jax.export.export(jax.jit(f), platforms=[platform])(*values).mlir_module()

    return text(value), text(slopes)


HIDING = {"masked": True, "hiding": True}
CASES: dict[str, tuple[dict[str, Any], dict[str, bool]]] = {
    "as it should be": ({}, HIDING),
    "without a mask": ({"mask": False}, {}),
    "a mask that adds": ({}, {"masked": True}),
    "float32": ({"kind": "float32"}, HIDING),
    "one query for all": ({"batch": 1}, HIDING),
    "dropout": ({}, {"dropped": True}),
}


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("case", CASES)
def test_cuda_takes_the_kernel_where_it_applies(case: str) -> None:
    given, fields = CASES[case]
    applies = case in ("as it should be", "without a mask")
    for platform in ("cuda", "cpu", "tpu"):
        for text in lowered(platform, operator_of(**fields), arguments(**given)):
            assert ("cudnn" in text) is (applies and platform == "cuda"), platform


def test_short_sentences_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.nn, "dot_product_attention", stand_in)
    for places in (FLASH_LENGTH - 1, FLASH_LENGTH):
        query, keys = (jnp.zeros((1, 1, length, 8), "bfloat16") for length in (1, places))
        for text in lowered("cuda", operator_of(), [query, keys, keys]):
            assert ("cudnn" in text) is (places == FLASH_LENGTH)


def test_cuda_does_without_where_jax_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgraph.ops.attention.FLASH_LENGTH", 0)
    operator = operator_of(**HIDING)
    for text in lowered("cuda", operator, arguments()):
        assert "custom_call" not in text


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("mask", [True, False])
def test_the_kernel_gets_what_it_needs_to_compute_the_same(mask: bool) -> None:
    """The axes of heads and of time change places; the mask is broadcast."""
    q, k, v, *rest = values = arguments(mask=mask)
    plain = operator_of(masked=mask)
    adj = jnp.asarray(drawn(*QUERY, seed=8), "bfloat16")
    shown = rest[0] == 0 if mask else None
    y, pull = jax.vjp(lambda q, k, v: flash_attention(q, k, v, shown, 8**-0.5), q, k, v)
    close(y, plain.forward_ops(*values))
    for mine, theirs in zip(pull(adj), plain.backward_ops(adj, y, *values)[:3], strict=True):
        close(mine, theirs)


def close(x: Any, y: Any) -> None:
    largest = float(jnp.max(jnp.abs(y.astype("float32"))))
    np.testing.assert_allclose(np.float32(x), np.float32(y), atol=0.02 * largest)


@pytest.mark.usefixtures("kernel")
def test_batches_of_batches_do_without() -> None:
    """JAX's rule for a batch of cuDNN's calls fails on a mask that heads share."""
    values, operator = arguments(), operator_of(**HIDING)
    attend = jax.jit(jax.vmap(operator.forward_ops, (0, 0, 0, None)))
    stacked = [*(jnp.stack([x, 2 * x]) for x in values[:3]), values[3]]
    assert "cudnn" not in jax.export.export(attend, platforms=["cuda"])(*stacked).mlir_module()
    close(attend(*stacked)[1], operator.forward_ops(*(2 * x for x in values[:3]), values[3]))


@pytest.mark.usefixtures("kernel")
def test_derivatives_beside_the_rule_are_those_of_plain_jax() -> None:
    """Forward mode, and the gradient of the gradient: a kernel may have neither."""
    values, operator = arguments(mask=False), operator_of()
    tangents = [jnp.ones_like(x) for x in values]
    _, found = jax.jit(partial(jax.jvp, operator.forward_ops))(values, tangents)
    _, expected = jax.jit(partial(jax.jvp, operator._attend))(values, tangents)
    np.testing.assert_array_equal(found, expected)

    def norm(*values: jax.Array) -> Any:
        y, pull = jax.vjp(lambda *v: evaluate(operator, "rules", (True,) * 3, v), *values)
        return sum(jnp.sum(jnp.square(g.astype("float32"))) for g in pull(y))

    assert all(bool(jnp.all(jnp.isfinite(g))) for g in jax.jit(jax.grad(norm, (0, 1, 2)))(*values))
