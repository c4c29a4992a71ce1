"""The options of Marian's metric models: COMET and BLEURT."""

from __future__ import annotations

from typing import Any

from nmt.settings.model_options import ModelOptions
from nmt.settings.option import Options, option, options_of

METRICS = {"comet-qe": 2, "comet": 3, "bleurt": 2, "comet-unified": 0}
"""The types of metric models, with the number of texts that each compares; 0 for as many as are given."""
POOLS = ("avg", "cls", "max")


class MetricOptions(Options):
    """Options of a metric model, besides those of its encoder."""

    input_join_fields: bool = option(False, "the texts of a line are one sequence, not one each")
    comet_final_sigmoid: bool = option(False, "the score is a sigmoid")
    comet_mix: bool = option(False, "a sentence is a mixture of the states of all layers")
    comet_mix_norm: bool = option(False, "normalize the states of a sentence before they are pooled")
    comet_pool: str = option("avg", "how the states of words become one: mean, first, largest", choices=POOLS)
    comet_mix_transformation: str = option(
        "softmax", "what makes weights of layers", choices=("softmax", "sparsemax")
    )
    comet_pooler_ffn: tuple[int, ...] = option((2048, 1024), "sizes of the layers that score", least=1)
    comet_prepend_zero: bool = option(False, "a start symbol, id 0, before each sequence")
    comet_use_separator: bool = option(False, "--separator-symbol between joined texts")


def metric_options(options: ModelOptions, command: Any) -> MetricOptions:
    """The metric's options in a model file; for those that it lacks, the command's, as in Marian.

    command: has the fields of ``MetricOptions``.

    OptionError for an invalid value in the file.
    """
    values: dict[str, Any] = {}
    for declared in options_of(MetricOptions).values():
        value: Any = getattr(command, declared.attribute)
        if declared.name in options.extra:
            value = declared.accept(options.extra[declared.name])
        values[declared.attribute] = value
    return MetricOptions(**values)
