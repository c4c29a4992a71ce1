"""Models that are finite are not replaced by models that are not."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from mgraph import ModelFileError
from mgraph.files.parameter_files import read_items

logger = logging.getLogger(__name__)


def may_replace(path: str, params: Mapping[str, Any], targets: str) -> bool:
    """Whether ``params`` may be saved where the model file ``path`` is.

    They may not if some are NaN or infinite and the file's are all finite: training cannot go on from them,
    for an update with NaN gives NaN. A warning then says what was not saved, and how to go on; it also says
    so where such parameters are saved because there is no finite model to lose.

    targets: the files that they are for, for the warning.
    """
    bad = _not_finite(params)
    if not bad:
        return True
    found = f"{bad[0]} and {len(bad) - 1} more parameters are" if len(bad) > 1 else f"{bad[0]} is"
    if not _is_finite(path):
        logger.warning(
            "[training] %s not finite; there is no finite model in the place of %s", found, targets
        )
        return True
    logger.warning(
        "[training] %s not finite: not saving %s; %s stays as it is. To go on from it, begin this training "
        "again with --check-gradient-nan, --clip-norm or a smaller --learn-rate. Where no finite model is in "
        "the way, others are saved",
        found,
        targets,
        path,
    )
    return False


def _not_finite(params: Mapping[str, Any]) -> list[str]:
    arrays = {name: np.asarray(value) for name, value in params.items()}
    return [
        name
        for name, array in arrays.items()
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all()
    ]


def _is_finite(path: str) -> bool:
    """Whether there is a model that can be read, all of whose numbers are finite."""
    try:
        return os.path.exists(path) and not _not_finite(read_items(path))
    except ModelFileError:
        return False
