"""``mgraph export``: a model as ONNX files, an encoder and one step of the decoder."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nmt.commands.common import greet
from nmt.runtime.log import logging_as
from nmt.settings import Command, Options, option, require_folder, require_readable
from nmt.settings.model_options import described_model
from nmt.settings.sections import DescribedModel, Logging

logger = logging.getLogger(__name__)


class ExportedModel(Options):
    """The model to export, and how."""

    title = "Model"

    model: str = option("model.npz", "the model: .npz, .bin or .safetensors", short="m")
    to: str = option("onnx", "the folder for the files", short="t")
    beam_size: int = option(1, "hypotheses per sentence in a step", short="b", least=1)
    opset: int = option(18, "version of ONNX's operator set", least=1)


class ExportOptions(ExportedModel, DescribedModel, Logging):
    """The options of ``mgraph export``."""


COMMAND = Command(
    "export",
    "write encoder.onnx and decoder.onnx, which onnxruntime runs without JAX",
    ExportOptions,
    examples=(("mgraph export -m model.npz -t folder", "needs pip install 'mgraph-jax[onnx]'"),),
)


def run(options: ExportOptions, argv: Sequence[str]) -> None:
    """Write the files of ``--model`` into the folder ``--to``."""
    require_readable("--model", [options.model])
    require_folder("--to", options.to)
    with logging_as(options):
        greet(COMMAND, argv, options)
        from nmt.files import load_model
        from nmt.files.export import DECODER, ENCODER, check_export, export_model

        check_export(options.beam_size, options.opset)
        model = load_model(
            options.model,
            options=described_model(options),
            ignore_config=options.ignore_model_config,
        )
        export_model(model, options.to, beam=options.beam_size, opset=options.opset)
        logger.info("%s and %s written to %s", ENCODER, DECODER, options.to)
