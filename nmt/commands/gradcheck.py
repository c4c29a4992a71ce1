"""``mgraph gradcheck``: hold hand-written gradients of operators or of a model against jax.grad."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from nmt.commands.common import JSON, asks_for_help, greet, require_distinct
from nmt.runtime.log import logging_as
from nmt.settings import Command, Option, OptionError, require_files, require_readable, require_readable_files
from nmt.settings.config import parse
from nmt.settings.shared import DEVICES, LOGGING
from nmt.text.lines import STANDARD_OUTPUT, open_input

logger = logging.getLogger(__name__)

COMMAND = Command(
    "gradcheck",
    "hold hand-written gradients against jax.grad; the exit code is 1 if one is wrong",
    {
        "Operators": (
            Option("module", str, "", "your own operators: a Python file or the name of a module"),
            Option(
                "compiled",
                help="examine the compiler: operators and compositions over many rows, compiled and not",
            ),
            Option("quick", help="with --compiled: few sizes, one case of each operator"),
        ),
        "Model": (
            Option(
                "model",
                str,
                "",
                "check the training loss of this model: .npz, .bin or .safetensors",
                short="m",
            ),
            Option("vocabs", str, (), "vocabularies of each source and the target", short="v", many=True),
            Option("train-sets", str, (), "files: each source, then the target", short="t", many=True),
            Option("lines", int, 8, "lines to take", least=1),
            Option(
                "max-length",
                int,
                100,
                "most words of a line, </s> counted; longer ones are passed over",
                least=1,
            ),
            Option("label-smoothing", float, 0.0, "of the loss, as in training", least=0),
            Option("float64", help="compare in float64 only"),
            Option("marian-exact", help="judge Marian's own formulas where they differ from the right ones"),
            Option("all", help="print every parameter, not only the ten worst"),
        ),
        "Output": (
            JSON,
            *LOGGING,
        ),
        "Device": DEVICES,
    },
    operands="OPERATOR",
    examples=(
        ("mgraph gradcheck", "every operator"),
        ("mgraph gradcheck layer_norm softmax", "these two"),
        ("mgraph gradcheck --module user_ops.py", "your own"),
        ("mgraph gradcheck --compiled --quick", "the compiler: values and gradients over many rows"),
        ("mgraph gradcheck -m model.npz -v vocab.spm vocab.spm -t text.en text.de", "a whole model"),
    ),
)


def run(argv: Sequence[str]) -> int | None:
    """Print the report; the exit code is 1 if a gradient is wrong."""
    if asks_for_help(COMMAND, argv):
        return None
    values = parse(COMMAND, argv)
    of_model = bool(values["model"])
    _check_combination(values, of_model)
    with logging_as(values):
        from nmt.runtime import devices

        greet(COMMAND, argv, values)
        names = () if of_model else _operators(values)
        devices.start(values["cpu_threads"], values["devices"])
        report = _model_gradients(values) if of_model else _operator_gradients(values, names)
    if values["json"]:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print(report.table() if values["all"] else report)
    return None if report.ok else 1


def _check_combination(values: Mapping[str, Any], of_model: bool) -> None:
    """OptionError for what cannot go together: operators and a model are checked one at a time."""
    foreign = COMMAND.sections["Operators" if of_model else "Model"]
    if values["quick"] and not values["compiled"]:
        raise OptionError("--quick needs --compiled")
    given = [f"--{option.name}" for option in foreign if values[option.attribute] != option.default]
    if of_model:
        given += values["operands"]
    if given:
        problem = "cannot go with" if of_model else "needs"
        raise OptionError(f"{' '.join(given)} {problem} --model")
    if of_model:
        require_files(values)
        if not values["train_sets"]:
            raise OptionError("--train-sets: the sources and the target are needed, got none")
        require_distinct("--train-sets", values["train_sets"], STANDARD_OUTPUT[0])
        require_readable_files(values)
        require_readable("--train-sets", values["train_sets"])
    elif values["module"].endswith(".py"):
        require_readable("--module", [values["module"]])


def _operators(values: Mapping[str, Any]) -> Sequence[str]:
    """The operators that are named; whether a module has them is known when it is imported."""
    from mgraph.gradcheck import chosen_operators
    from nmt.commands.catalogue import operations

    if values["module"]:
        return list(values["operands"])
    names = [operation for name in values["operands"] for operation in operations(name)]
    chosen_operators(names)
    return names


def _operator_gradients(values: Mapping[str, Any], names: Sequence[str]) -> Any:
    from mgraph.gradcheck import check_compiled, check_operators

    if values["compiled"]:
        return check_compiled(
            names,
            values["module"] or None,
            quick=values["quick"],
            on_row=lambda row: logger.info("%s %s: %s", row.operator, row.case, row.verdict),
        )
    return check_operators(
        names,
        values["module"] or None,
        on_row=lambda row: logger.info("%s: %s", row.operator, row.verdict),
    )


def _model_gradients(values: Mapping[str, Any]) -> Any:
    from nmt.files import load_model
    from nmt.text.sentences import LineEncoder
    from nmt.text.vocabs.loading import load_vocabs
    from nmt.training.gradients import check_model_gradients, read_samples

    model = load_model(values["model"])
    vocabs = load_vocabs(values["vocabs"], model.dim_vocabs, owner=values["model"])
    if len(values["train_sets"]) != len(vocabs):
        raise OptionError(
            f"--train-sets: this model needs {len(vocabs)} texts, got {len(values['train_sets'])}"
        )
    encoder = LineEncoder(vocabs, values["max_length"], False, model.options.right_left)
    with ExitStack() as stack:
        texts = [stack.enter_context(open_input(path)) for path in values["train_sets"]]
        samples = read_samples(texts, encoder, values["lines"])
    return check_model_gradients(
        model,
        samples,
        label_smoothing=values["label_smoothing"],
        float32=not values["float64"],
        rule_set="marian" if values["marian_exact"] else "rules",
    )
