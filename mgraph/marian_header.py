"""What Marian's ``graph/expression_operators.h`` declares, and under which names mgraph has it."""

from __future__ import annotations

import re
from collections.abc import Mapping

VERSION = "1.12"

OVERLOADS: Mapping[str, int] = {
    name: int(count or 1)
    for name, _, count in (
        word.partition(":")
        for word in """
        abs affine affineWithReluDropout argmax argmin atleast_1d atleast_2d atleast_3d atleast_4d
        atleast_nd avg_pooling bdot bdot_legacy callback cast checkpoint choose clip clipGradient cols:2
        concatenate constant_like:3 convert2cudnnFormat convertFromcudnnFormat cos cross_entropy csr_dot
        cumsum debug dot dot_csr dropout:4 dropoutReluInplace:4 eq:3 exp flatten flatten_2d gather ge:3
        gelu:2 get gt:3 highway:2 index_select:2 lambda:2 layerNorm le:3 leakyrelu:2 log logaddexp
        logcumsumexp logsoftmax logsumexp lt:3 max max_pooling maximum:3 mean min minimum:3 narrow ne:3
        operator*:3 operator+:3 operator-:4 operator/:3 plus pooling_with_masking pow:3 prelu:2 prod
        relu:2 removeAsRoot repeat reshape rmsNorm rows:2 scalar_product scatter shift sigmoid:2 sin
        slice:2 softmax:2 sort sparsemax sqrt square std stopGradient sum swapAxes swish:2 tan tanh:2
        topk topkIndices topkValues transpose:2 unlikelihood var weighted_average
        """.split()
    )
}
"""Every name with the number of its overloads."""

RENAMED: Mapping[str, str] = {
    "lambda": "lambda_node",
    "operator+": "a + b",
    "operator-": "a - b",
    "operator*": "a * b",
    "operator/": "a / b",
    "convertFromcudnnFormat": "convert_from_cudnn_format",
}
"""Names that Python does not allow or that hide a word, and what stands for them."""

ABSENT: Mapping[str, str] = {}
"""Names that mgraph has nothing for, each with the reason."""


def in_python(name: str) -> str:
    """mgraph's name for one of Marian's: ``layer_norm`` for ``layerNorm``."""
    return RENAMED.get(name) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
