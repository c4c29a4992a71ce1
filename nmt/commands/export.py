"""``mgraph export``: a model as ONNX files, an encoder and one step of the decoder."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from nmt.commands.common import asks_for_help, greet
from nmt.runtime.log import logging_as
from nmt.settings import Command, Option, require_folder, require_readable
from nmt.settings.config import parse
from nmt.settings.shared import LOGGING

logger = logging.getLogger(__name__)

COMMAND = Command(
    "export",
    "write encoder.onnx and decoder.onnx, which onnxruntime runs without JAX",
    {
        "Model": (
            Option("model", str, "model.npz", "the model: .npz, .bin or .safetensors", short="m"),
            Option("to", str, "onnx", "the folder for the files", short="t"),
            Option("beam-size", int, 1, "hypotheses of a sentence in a step", short="b", least=1),
            Option("opset", int, 18, "version of ONNX's operators", least=1),
        ),
        "Output": LOGGING,
    },
    examples=(("mgraph export -m model.npz -t folder", "needs pip install 'mgraph[onnx]'"),),
)


def run(argv: Sequence[str]) -> int | None:
    """Write the files of ``--model`` into the folder ``--to``."""
    if asks_for_help(COMMAND, argv):
        return None
    values = parse(COMMAND, argv)
    require_readable("--model", [values["model"]])
    require_folder("--to", values["to"])
    with logging_as(values):
        greet(COMMAND, argv, values)
        from nmt.files import load_model
        from nmt.files.export import DECODER, ENCODER, check_export, export_model

        check_export(values["to"], values["beam_size"], values["opset"])
        export_model(
            load_model(values["model"]), values["to"], beam=values["beam_size"], opset=values["opset"]
        )
        logger.info("%s and %s written to %s", ENCODER, DECODER, values["to"])
    return None
