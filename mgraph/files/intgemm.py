"""Matrices of 8-bit and 16-bit integers in Marian's binary models, back to float32.

A matrix ``w`` of shape ``(k, n)`` is kept as ``round(w * m)``, transposed to ``(n, k)``, with the float32
multiplier ``m`` behind the last integer: ``m = 127 / max|w|`` for 8 bits, 1024 for 16 bits. What is made
for one kind of processor is also cut into registers: eight rows of the transposed matrix side by side, one
register of each in turn.

Marian v1.12 garbles what it quantises if ``k`` or ``n`` is not a multiple of 16; such a matrix is read as
it stands. Source: Marian, ``common/types.h``, ``tensors/cpu/integer_common.h``; intgemm, ``interleave.h``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import ModelFileError
from ..shape import Shape

_ROWS = 8


@dataclass(frozen=True)
class Packing:
    """One way of storing a quantised matrix; ``register`` is the size in bytes, 0 for any processor."""

    name: str
    width: int
    register: int = 0
    keeps_embeddings: bool = False
    """Whether matrices with ``Wemb`` in their names are not transposed."""

    def size(self, shape: Shape) -> int:
        """Bytes of a matrix with its multiplier."""
        return math.prod(shape) * self.width + 4

    def dequantize(self, data: np.ndarray, name: str, shape: Shape) -> np.ndarray:
        """The float32 matrix of ``shape`` in the bytes ``data``; ``ModelFileError`` if there is none."""
        count = math.prod(shape)
        integers = data[: count * self.width].view(f"<i{self.width}")
        if self.keeps_embeddings and "Wemb" in name:
            matrix = integers.reshape(shape)
        else:
            matrix = self._transposed(integers, shape).T.reshape(shape)
        multiplier = data[count * self.width :][:4].view("<f4")[0]
        if not multiplier > 0:
            raise ModelFileError(f"its quantisation multiplier is {multiplier}, expected more than 0")
        with np.errstate(over="ignore"):
            return np.divide(matrix, multiplier, dtype=np.float32, order="C")

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
    # Bergamot's Marian (Firefox Translations) has codes of its own and leaves embeddings as they lie.
    0x4101: Packing("intgemm8", 1, keeps_embeddings=True),
    0x4102: Packing("intgemm16", 2, keeps_embeddings=True),
}
"""By the code of the type in a binary model."""
