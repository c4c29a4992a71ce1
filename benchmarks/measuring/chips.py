"""The peak rates of chips, and the options that choose one."""

from __future__ import annotations

import argparse
import re
from typing import NamedTuple

import jax

TERA = 1e12


class Peak(NamedTuple):
    """A chip's peak rates for dense products, in TFLOP/s; None for a type that it does not multiply.

    float32: for operands that are not rounded. tensor_float32: for float32 rounded to TensorFloat-32.
    """

    bfloat16: float | None
    float16: float | None
    tensor_float32: float | None
    float32: float | None

    @classmethod
    def of_tpu(cls, bfloat16: float) -> Peak:
        """A TPU multiplies bfloat16; a product of float32 takes six of bfloat16."""
        return cls(bfloat16, None, None, bfloat16 / 6)


PEAKS: dict[str, Peak] = {
    r"A100": Peak(312, 312, 156, 19.5),
    r"H100 PCIe": Peak(756, 756, 378, 51),
    r"(H100|H200) NVL": Peak(835, 835, 417, 60),
    r"(H100|H200)": Peak(989, 989, 494, 67),
    r"L4": Peak(121, 121, 60, 30.3),
    r"T4": Peak(None, 65, None, 8.1),
    r"V100S": Peak(None, 130, None, 16.4),
    r"V100-PCIE": Peak(None, 112, None, 14),
    r"V100-SXM\d": Peak(None, 125, None, 15.7),
    r"TPU v4": Peak.of_tpu(275),
    r"TPU v5 ?(lite|e)": Peak.of_tpu(197),
    r"TPU (v5|v5p)": Peak.of_tpu(459),
    r"TPU v6 ?(lite|e)": Peak.of_tpu(918),
}
"""By a pattern of JAX's ``device_kind``; the first match counts. Sources: data sheets of NVIDIA's A100, H100
(SXM, PCIe, NVL), H200 (SXM, NVL), L4, T4, V100 and V100S, without sparsity; Google Cloud's pages of TPU v4,
v5e, v5p and v6e. A part of a GPU (MIG) has no entry."""


def peak_of(kind: str, compute: str, precision: str | None = None) -> float | None:
    """The peak of a device of this kind, in TFLOP/s; None for an unknown one.

    compute: the element type, ``float32``, ``bfloat16`` or ``float16``. precision: that of float32 products,
    ``jax_default_matmul_precision``: unless it is ``highest``, operands are rounded to a type that the chip
    multiplies faster.
    """
    found = (peak for pattern, peak in PEAKS.items() if re.search(rf"\b{pattern}(?!\w| lite)", kind))
    peak = None if "MIG" in kind else next(found, None)
    if peak is None or compute != "float32":
        return getattr(peak, compute, None)
    if precision in ("highest", "float32"):
        return peak.float32
    if "TPU" not in kind:
        return peak.tensor_float32 or peak.float32
    thrice = precision in ("high", "bfloat16_3x", "tensorfloat32")
    return peak.bfloat16 / 3 if thrice and peak.bfloat16 else peak.bfloat16


def add_chip(parser: argparse.ArgumentParser) -> None:
    """The options that say in which type a chip computes, and its peak."""
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="in which ours computes (%(default)s)",
    )
    parser.add_argument(
        "--peak",
        type=_above_0,
        metavar="TFLOPS",
        help="the most TFLOP/s of a device in that precision (of its data sheet, for those that are known)",
    )


def peak_here(given: argparse.Namespace) -> float | None:
    """The peak of JAX's first device in TFLOP/s, or the one given as ``--peak``."""
    own = peak_of(jax.devices()[0].device_kind, given.precision, jax.config.jax_default_matmul_precision)
    return given.peak or own


def _above_0(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return number
