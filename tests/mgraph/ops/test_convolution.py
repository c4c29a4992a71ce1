"""Convolution and pooling: compared with windows cut out one by one, and Marian's conventions."""

from __future__ import annotations

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mgraph import ArgumentError, ExpressionGraph, Node, ShapeError, relu, transpose
from mgraph.ops.convolution import convert2cudnn_format, convert_from_cudnn_format, convolution
from mgraph.ops.pooling import avg_pooling, max_pooling, pooling_with_masking
from tests.helpers.leaves import constant, gradient, param, value


def windows(x: Any, window: tuple[int, int], pads: Any, strides: Any, fill: float) -> Any:
    """Every window of x: (batch, channels, h, w, height, width)."""
    x = jnp.pad(x, [(0, 0), (0, 0), *((p, p) for p in pads)], constant_values=fill)
    tops, lefts = (range(0, n - k + 1, s) for n, k, s in zip(x.shape[2:], window, strides, strict=True))
    rows = [[x[:, :, i : i + window[0], j : j + window[1]] for j in lefts] for i in tops]
    return jnp.stack([jnp.stack(row, 2) for row in rows], 2)


def plain_convolution(pads: Any, strides: Any) -> Any:
    def apply(x: Any, kernel: Any, bias: Any) -> Any:
        cut = windows(x, kernel.shape[2:], pads, strides, 0)
        return jnp.einsum("ncijab,coab->noij", cut, kernel) + bias

    return apply


GEOMETRIES = [((1, 0), (1, 2)), ((2, 1), (3, 2))]


def check(apply: Any, plain: Any, *arrays: np.ndarray) -> None:
    """Assert that values, gradients and curvature equal those of plain code, one by one and under vmap."""
    graph = ExpressionGraph()
    nodes = [param(graph, a, f"x{i}", "float64") for i, a in enumerate(arrays)]
    y = apply(*nodes)
    function = graph.function(y, nodes)

    def derivatives(f: Any) -> Any:
        gradient = jax.grad(lambda values: jnp.sum(jnp.sin(f(*values))))
        curvature = jax.grad(lambda values: sum(jnp.vdot(g, g) for g in gradient(values)))
        return jax.vmap(lambda values: (gradient(values), curvature(values)))

    @jax.jit
    def both(values: Any) -> Any:
        return derivatives(lambda *v: function.pure({}, v))(values), derivatives(plain)(values)

    with jax.enable_x64(True):
        values = [jnp.asarray(a) for a in arrays]
        np.testing.assert_allclose(function.pure({}, values), plain(*values), rtol=1e-12, atol=1e-12)
        assert y.shape == plain(*values).shape
        found, expected = both([jnp.stack([v, -0.5 * v + 0.1]) for v in values])
        chex.assert_trees_all_close(found, expected, rtol=1e-10, atol=1e-10)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape)


@pytest.mark.parametrize(("pads", "strides"), GEOMETRIES)
def test_convolution(pads: tuple[int, int], strides: tuple[int, int]) -> None:
    def apply(x: Node, kernel: Node, bias: Node) -> Node:
        return convolution(x, kernel, bias, *pads, *strides)

    check(apply, plain_convolution(pads, strides), random(2, 3, 6, 5), random(3, 2, 3, 2), random(1, 2, 1, 1))


@pytest.mark.parametrize(("pads", "strides"), GEOMETRIES)
def test_average_pooling_counts_padding(pads: tuple[int, int], strides: tuple[int, int]) -> None:
    check(
        lambda x: avg_pooling(x, 3, 2, *pads, *strides),
        lambda x: jnp.mean(windows(x, (3, 2), pads, strides, 0), (4, 5)),
        random(2, 3, 6, 5),
    )


@pytest.mark.parametrize(("pads", "strides"), GEOMETRIES)
def test_max_pooling_never_takes_padding(pads: tuple[int, int], strides: tuple[int, int]) -> None:
    check(
        lambda x: max_pooling(x, 3, 2, *pads, *strides),
        lambda x: jnp.max(windows(x, (3, 2), pads, strides, -jnp.inf), (4, 5)),
        random(2, 3, 6, 5) - 3,
    )


def test_max_pooling_gives_ties_to_the_first(graph: ExpressionGraph) -> None:
    x = param(graph, [[[[2.0, 2.0, 1.0], [2.0, 0.0, 2.0]]]])
    assert gradient(max_pooling(x, 2, 2), x).tolist() == [[[[1, 1, 0], [0, 0, 0]]]]


@pytest.mark.parametrize("is_even", [False, True])
def test_pooling_with_masking(is_even: bool) -> None:
    def plain(x: Any, mask: Any) -> Any:
        masked = x[:, :, :7, 0] * mask[:, :, :, 0]
        parts = [masked[:, :, i : i + 3] for i in (0, 3, 6)]
        return jnp.stack([jnp.max(part, 2) for part in parts], 2)

    check(
        lambda x, mask: pooling_with_masking(x, mask, 3, is_even),
        plain, random(2, 4, 7 + is_even, 1), np.abs(random(2, 1, 7, 1)) + 0.2,
    )  # fmt: skip


def test_the_gradient_of_masked_elements_is_zero() -> None:
    """Marian, and therefore the rule set "marian", passes the gradient to x anyway."""
    graph = ExpressionGraph()
    x = param(graph, [[[-1.0, -2.0, 5.0, 4.0, 3.0, 3.0]]])
    mask = constant(graph, np.array([[[1, 0, 0, 1, 1, 1]]], np.float32))
    y = pooling_with_masking(x, mask, 2)
    assert value(y).tolist() == [[[0, 4, 3]]]
    assert gradient(y, x).tolist() == [[[0, 0, 0, 1, 1, 0]]]
    marian = graph.function(y, [x], derivatives="marian")
    found = jax.grad(lambda v: jnp.sum(marian.pure({}, [v])))(x.leaf_value())
    assert found.tolist() == [[[0, 1, 0, 1, 1, 0]]]


def test_formats_are_inverse(graph: ExpressionGraph) -> None:
    sentences = np.arange(24.0).reshape(3, 2, 4)
    x = param(graph, sentences)
    images = convert2cudnn_format(x)
    assert images.shape == (2, 1, 3, 4)
    assert value(images)[:, 0].tolist() == sentences.transpose(1, 0, 2).tolist()
    assert value(convert_from_cudnn_format(images)).tolist() == sentences.tolist()


@pytest.mark.parametrize("kernel_width", [3, 4])
def test_the_steps_of_a_character_encoder(graph: ExpressionGraph, kernel_width: int) -> None:
    """As in Marian's ``CharConvPooling``: kernels over a few characters each, then the maximum per stride."""
    time, batch, embedding, kernels, stride = 7, 2, 4, 5, 3
    x = param(graph, random(time, batch, embedding))
    mask = constant(graph, np.ones((time, batch, 1), np.float32))
    kernel = param(graph, random(1, kernels, kernel_width, embedding), "kernel")
    bias = param(graph, random(1, kernels, 1, 1), "bias")
    output = relu(convolution(convert2cudnn_format(x * mask), kernel, bias, kernel_width // 2))
    assert output.shape == (batch, kernels, time + (kernel_width % 2 == 0), 1)
    pooled = pooling_with_masking(output, convert2cudnn_format(mask), stride, kernel_width % 2 == 0)
    assert pooled.shape == (batch, kernels, 3)
    assert transpose(pooled, (2, 0, 1)).shape == (3, batch, kernels)
    assert np.isfinite(gradient(pooled, kernel)).all()


@pytest.mark.parametrize("element_type", ["float16", "bfloat16"])
def test_sums_of_short_types_are_kept_in_float32(graph: ExpressionGraph, element_type: str) -> None:
    """Windows of 3000 ones: a float16 sum of ones would stop at 2048, a bfloat16 one at 256."""
    x = param(graph, np.ones((1, 1, 1, 3000)), "x", element_type)
    kernel = param(graph, np.ones((1, 1, 1, 3000)), "kernel", element_type)
    bias = param(graph, np.zeros((1, 1, 1, 1)), "bias", element_type)
    found = convolution(x, kernel, bias)
    assert found.value_type == element_type
    assert float(value(found)[0, 0, 0, 0]) == pytest.approx(3000, rel=4e-3)
    assert float(value(avg_pooling(x, 1, 3000))[0, 0, 0, 0]) == 1


def test_errors(graph: ExpressionGraph) -> None:
    x = param(graph, random(2, 3, 6, 5))
    kernel, bias = param(graph, random(3, 2, 3, 2), "kernel"), param(graph, random(1, 2, 1, 1), "bias")
    mask = param(graph, random(2, 1, 6), "mask")
    with pytest.raises(ShapeError, match="takes 3 channels, x has 1"):
        convolution(param(graph, random(1, 1, 4, 4), "grey"), kernel, bias)
    with pytest.raises(ShapeError, match=r"bias of shape \(1, 2, 1, 1\)"):
        convolution(x, kernel, mask)
    with pytest.raises(ShapeError, match="expected a kernel as"):
        convolution(x, mask, bias)
    with pytest.raises(
        ShapeError, match=r"expected x as \(batch, channels, height, width\), got \(2, 1, 6\)"
    ):
        max_pooling(mask, 1, 1)
    with pytest.raises(ShapeError, match=r"window of \(9, 1\) does not fit into \(8, 5\), padding included"):
        avg_pooling(x, 9, 1, 1)
    with pytest.raises(ArgumentError, match="paddings smaller than the window"):
        max_pooling(x, 2, 2, 2)
    with pytest.raises(ArgumentError, match="strides must be at least 1"):
        convolution(x, kernel, bias, 0, 0, 0, 1)
    with pytest.raises(ArgumentError, match="max_pooling: width must be a whole number, got 2.5"):
        max_pooling(x, 2, 2.5)
    with pytest.raises(ShapeError, match=r"expected a mask of \(2, 1, 5\), got \(2, 1, 6\)"):
        pooling_with_masking(param(graph, random(2, 3, 6), "sentences"), mask, 2, is_even=True)
    with pytest.raises(ShapeError, match=r"expected x as \(batch, channels, time\)"):
        pooling_with_masking(x, mask, 2)
    with pytest.raises(ArgumentError, match="at least 1 element"):
        pooling_with_masking(mask, mask, 0)
    with pytest.raises(ShapeError, match="convert2cudnn_format: expected a node of"):
        convert2cudnn_format(x)
    with pytest.raises(ShapeError, match="convert_from_cudnn_format: expected a node of"):
        convert_from_cudnn_format(x)
