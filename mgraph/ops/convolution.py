"""Convolution over height and width, and the layout it takes sentences in: cuDNN's, as in Marian.

Images are (batch, channels, height, width). A batch of sentences, (time, batch, embedding), becomes images
with one channel, as high as the sentences are long and as wide as an embedding: ``convert2cudnn_format``.
"""

from __future__ import annotations

import jax
from jax import Array

from ..cases import Case
from ..errors import ShapeError
from ..node import Node
from ..specs import Spec, Specs
from .operands import Gradients, accumulable, node, refusal
from .shape import reshape, transpose
from .windows import WindowNodeOp, spatial, whole_numbers


class ConvolutionOp(WindowNodeOp):
    type = "layer_convolution"
    cases = (
        Case((2, 3, 5, 4), (3, 2, 3, 2), (1, 2, 1, 1)),
        Case((2, 1, 6, 3), (1, 4, 3, 3), (1, 4, 1, 1), pad_height=1),
        Case((1, 2, 7, 6), (2, 3, 2, 3), (1, 3, 1, 1), pad_width=2, stride_height=3, stride_width=2),
        Case((2, 1, 2, 3), (1, 2, 1, 1), (1, 2, 1, 1), pad_height=2, pad_width=1, stride_height=2),
    )

    def new_spec(self, x: Spec, kernel: Spec, bias: Spec) -> Specs:
        if len(kernel.shape) != 4:
            raise ShapeError(f"expected a kernel as (channels in, out, height, width), got {kernel.shape}")
        channels, kernels, *window = kernel.shape
        self.check_windows(x, window)
        if x.shape[1] != channels:
            raise ShapeError(f"the kernel takes {channels} channels, x has {x.shape[1]}")
        if bias.shape != (1, kernels, 1, 1):
            raise ShapeError(f"expected a bias of shape {(1, kernels, 1, 1)}, got {bias.shape}")
        return super().new_spec(x, kernel, bias)

    def forward_ops(self, x: Array, kernel: Array, bias: Array) -> Array:
        y = jax.lax.conv_general_dilated(
            accumulable(x), accumulable(kernel), self.strides, self.pads,
            dimension_numbers=("NCHW", "IOHW", "NCHW"),
        )  # fmt: skip
        return (y + accumulable(bias)).astype(x.dtype)

    def backward_ops(self, adj: Array, val: Array, x: Array, kernel: Array, bias: Array) -> Gradients:
        dx = self._by_image(accumulable(adj), accumulable(x), accumulable(kernel))
        dk = self._by_kernel(accumulable(adj), accumulable(x), accumulable(kernel))
        return dx.astype(x.dtype), dk.astype(x.dtype), adj

    def _by_image(self, adj: Array, x: Array, kernel: Array) -> Array:
        """The adjoint, dilated by the strides, convolved with the flipped kernel, channels swapped."""
        return jax.lax.conv_general_dilated(
            adj, jax.lax.rev(kernel, (2, 3)), (1, 1), self.pads_back(x, spatial(kernel), adj),
            lhs_dilation=self.strides, dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )  # fmt: skip

    def _by_kernel(self, adj: Array, x: Array, kernel: Array) -> Array:
        """x convolved with the adjoint as a kernel, dilated by the strides; summed over the batch."""
        pads = [
            (low, k - n - low + (count - 1) * stride)
            for k, n, count, stride, (low, _) in zip(
                spatial(kernel), spatial(x), spatial(adj), self.strides, self.pads, strict=True
            )
        ]
        return jax.lax.conv_general_dilated(
            x, adj, (1, 1), pads,
            rhs_dilation=self.strides, dimension_numbers=("CNHW", "IOHW", "NCHW"),
        )  # fmt: skip


def convolution(
    x: Node,
    kernel: Node,
    bias: Node,
    pad_height: int = 0,
    pad_width: int = 0,
    stride_height: int = 1,
    stride_width: int = 1,
) -> Node:
    """Cross-correlation of images with kernels, plus a bias, as in cuDNN: the kernel is not flipped.

    ``y[n, o, i, j] = bias[o] + sum(kernel[c, o, a, b] x[n, c, i s + a - p, j s + b - p] over c, a, b)``, with
    separate strides s and paddings p for height and width, and zeros outside of x. ``x``: (batch, channels,
    height, width); ``kernel``: (channels, kernels, height, width), as Marian's layer has it; ``bias``: (1,
    kernels, 1, 1). ``ShapeError`` if they do not fit, ``ArgumentError`` for a stride below 1 or a negative
    padding.

    Shape: (batch, kernels, h, w) with ``h = (height + 2 pad_height - kernel height) // stride_height + 1``,
    likewise w.
    Gradient: for x, ``adj`` convolved with the flipped kernel; for the kernel, x convolved with ``adj``; for
    the bias, the sum of ``adj`` over batch, height and width.
    Differs: Marian reads the kernel's memory as (kernels, channels, height, width) whatever its shape says.
    The orders agree if there is one kernel or one channel, as in its models; other kernels must be reordered.
    Source: Marian, ``ConvolutionOp``, in builds with cuDNN.
    """
    children = [node("convolution", child) for child in (x, kernel, bias)]
    fields = whole_numbers(
        "convolution",
        pad_height=pad_height,
        pad_width=pad_width,
        stride_height=stride_height,
        stride_width=stride_width,
    )
    return ConvolutionOp(*children, **fields)


def convert2cudnn_format(x: Node) -> Node:
    """Sentences as images with one channel, for ``convolution``.

    Shape: (time, batch, embedding) to (batch, 1, time, embedding).
    Gradient: ``adj`` moved back.
    Source: Marian, ``convert2cudnnFormat``.
    """
    if len(node("convert2cudnn_format", x).shape) != 3:
        raise refusal("convert2cudnn_format", "expected a node of (time, batch, embedding)", x)
    time, batch, embedding = x.shape
    return reshape(transpose(x, (1, 0, 2)), (batch, 1, time, embedding))


def convert_from_cudnn_format(x: Node) -> Node:
    """Images with one channel as sentences: the inverse of ``convert2cudnn_format``.

    Shape: (batch, 1, time, embedding) to (time, batch, embedding).
    Gradient: ``adj`` moved back.
    Differs: Marian orders the elements like this, but says that their shape is (batch, time, embedding).
    Source: Marian, ``convertFromcudnnFormat``.
    """
    shape = node("convert_from_cudnn_format", x).shape
    if len(shape) != 4 or shape[1] != 1:
        raise refusal("convert_from_cudnn_format", "expected a node of (batch, 1, time, embedding)", x)
    batch, _, time, embedding = shape
    return transpose(reshape(x, (batch, time, embedding)), (1, 0, 2))
