"""Matrices of 8-bit and 16-bit integers in Marian's binary models, from float32 and back.

A matrix ``w`` of shape ``(k, n)`` is stored as ``round(w * m)``, transposed to ``(n, k)``, with the float32
multiplier ``m`` after the last integer: ``m = 127 / max|w|`` for 8 bits, 1024 for 16 bits. Kinds for one
processor are also interleaved by registers: eight rows of the transposed matrix side by side, one register of
each in turn.

Marian v1.12 garbles a matrix that it quantizes if ``k`` or ``n`` is not a multiple of 16; such a matrix is
read as it stands. Its integer product is wrong unless ``k`` fills whole registers, and does not support
``decoder_ff_logit_out_Wt``, which is transposed. Matrices that Marian would garble, or multiply wrongly, are
written as float32, which Marian reads too. Source: Marian, ``common/types.h``,
``tensors/cpu/integer_common.h``, ``tensors/cpu/expression_graph_packable.h``,
``tensors/cpu/intgemm_interface.h``; intgemm, ``interleave.h``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import ModelFileError
from ..shape import Shape

_ROWS = 8
_TILE = 16
_WIDEST_REGISTER = 64
_FIXED_MULTIPLIER = 1024
_TRANSPOSED = "_Wt"


def is_quantized(name: str) -> bool:
    """Whether Marian quantizes the parameter ``name``: at most one letter follows its first ``_W``."""
    at = name.find("_W")
    return at >= 0 and len(name) - at <= 3


@dataclass(frozen=True)
class IntegerMatrix:
    """A matrix of integers as stored in a file; it stands for ``values / multiplier``."""

    values: np.ndarray
    multiplier: np.float32

    @property
    def shape(self) -> Shape:
        return self.values.shape

    @property
    def ndim(self) -> int:
        return self.values.ndim

    def dequantized(self) -> np.ndarray:
        """The float32 matrix."""
        with np.errstate(over="ignore"):
            return np.divide(self.values, self.multiplier, dtype=np.float32, order="C")


@dataclass(frozen=True)
class Packing:
    """One way of storing a quantized matrix; ``register`` is the size in bytes, 0 for any processor."""

    name: str
    width: int
    register: int = 0
    keeps_embeddings: bool = False
    """Whether matrices with ``Wemb`` in their names are quantized, too, and not transposed."""

    def size(self, shape: Shape) -> int:
        """Bytes of a matrix with its multiplier."""
        return math.prod(shape) * self.width + 4

    def read(self, data: np.ndarray, name: str, shape: Shape) -> np.ndarray | IntegerMatrix:
        """The matrix of ``shape`` in the bytes ``data``: still quantized if it has 8 bits, else as float32.
        ``ModelFileError`` if the bytes hold no such matrix."""
        count = math.prod(shape)
        integers = data[: count * self.width].view(f"<i{self.width}")
        if self._keeps(name):
            matrix = integers.reshape(shape)
        else:
            matrix = self._transposed(integers, shape).T.reshape(shape)
        multiplier = data[count * self.width :][:4].view("<f4")[0]
        if not multiplier > 0:
            raise ModelFileError(f"its quantization multiplier is {multiplier}, expected more than 0")
        found = IntegerMatrix(matrix, multiplier)
        return found if self.width == 1 else found.dequantized()

    def takes(self, name: str) -> bool:
        """Whether the parameter ``name`` is quantized, if its sizes allow it."""
        return is_quantized(name) or self._keeps(name)

    def fits(self, name: str, matrix: np.ndarray) -> bool:
        """Whether Marian would quantize the parameter ``name`` and then use it correctly."""
        if self._keeps(name):
            words, features = matrix.shape if matrix.ndim == 2 else (1, 1)
            return (
                not (words % _ROWS or features % _WIDEST_REGISTER)
                and 0 < np.abs(matrix).max(initial=0) < np.inf
            )
        if not is_quantized(name) or name.endswith(_TRANSPOSED) or matrix.ndim != 2:
            return False
        k, n = matrix.shape
        lanes = (self.register or _WIDEST_REGISTER) // self.width
        return not (k % max(lanes, _TILE) or n % _TILE) and 0 < np.abs(matrix).max(initial=0) < np.inf

    def _keeps(self, name: str) -> bool:
        return self.keeps_embeddings and "Wemb" in name

    def quantize(self, matrix: np.ndarray, name: str = "") -> bytes:
        """The bytes of the float32 matrix ``name`` that ``fits``: integers rounded to the nearest (half to
        even) and clipped to the range of the type, and the multiplier."""
        greatest = 127 if self.width == 1 else 2**15 - 1
        multiplier = (
            np.float32(127) / np.abs(matrix).max() if self.width == 1 else np.float32(_FIXED_MULTIPLIER)
        )
        least = -greatest if self.width == 1 else -greatest - 1
        integers = np.clip(np.rint(matrix * multiplier), least, greatest).astype(f"<i{self.width}")
        integers = integers if self._keeps(name) else integers.T
        if self.register:
            n, k = integers.shape
            lanes = self.register // self.width
            strips = integers.reshape(n // _ROWS, _ROWS, k).swapaxes(0, 1)
            integers = strips.reshape(_ROWS, -1, lanes).swapaxes(0, 1)
        return integers.tobytes() + multiplier.tobytes()

    def _transposed(self, integers: np.ndarray, shape: Shape) -> np.ndarray:
        """The integers as ``(n, k)``, where ``n`` is the last axis and ``k`` all others."""
        n = shape[-1] if shape else 1
        k = len(integers) // n if n else 0
        if not self.register:
            return integers.reshape(n, k)
        lanes = self.register // self.width
        if n % _ROWS or len(integers) % (_ROWS * lanes):
            raise ModelFileError(f"a matrix of shape {shape} cannot be {self.name}")
        strips = integers.reshape(-1, _ROWS, lanes).swapaxes(0, 1)
        return strips.reshape(_ROWS, n // _ROWS, k).swapaxes(0, 1).reshape(n, k)


PACKINGS = {
    0x10001: Packing("intgemm8", 1),
    0x18001: Packing("intgemm8ssse3", 1, 16),
    0x11001: Packing("intgemm8avx2", 1, 32),
    0x12001: Packing("intgemm8avx512", 1, 64),
    0x13001: Packing("intgemm8avx512vnni", 1, 64),
    0x10002: Packing("intgemm16", 2),
    0x14002: Packing("intgemm16sse2", 2, 16),
    0x11002: Packing("intgemm16avx2", 2, 32),
    0x12002: Packing("intgemm16avx512", 2, 64),
    # Bergamot's Marian (Firefox Translations) has its own codes and does not transpose embeddings.
    0x4101: Packing("intgemm8", 1, keeps_embeddings=True),
    0x4102: Packing("intgemm16", 2, keeps_embeddings=True),
}
"""By the type code in a binary model."""

BERGAMOT = "bergamot-intgemm8"
"""The 8-bit type of Bergamot's Marian, which calls it intgemm8."""
GEMM_TYPES = {p.name: code for code, p in PACKINGS.items() if not p.keeps_embeddings} | {BERGAMOT: 0x4101}
"""Codes of the types that can be written, by the values of Marian's option ``gemm-type``, and Bergamot's."""
