"""The command ``mgraph``: Marian's programs as sub-commands, with Marian's options."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from jax.errors import JaxRuntimeError

from mgraph import MGraphError, __version__
from nmt.config import help_text, notices, parse
from nmt.lines import open_input, open_output, silence_standard_output
from nmt.log import logging_as
from nmt.options import (
    DECODE,
    DIFF,
    GRADCHECK,
    OPERATORS,
    SCORE,
    Command,
    OptionError,
    nearest,
    require_files,
)

logger = logging.getLogger(__name__)

USAGE_ERROR = 2
RUN_TIME_ERROR = 1
INTERRUPTED = 130  # what a shell reports for a program that SIGINT ended
PIPE_CLOSED = 141  # and for SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``mgraph COMMAND [options]`` and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0] if words else ""
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"mgraph {__version__}")
        return 0
    if name not in COMMANDS:
        what = f"unknown command {nearest(name, COMMANDS, prefix='')}" if name else "which command?"
        print(f"mgraph: error: {what} (commands: {', '.join(COMMANDS)})", file=sys.stderr)
        return USAGE_ERROR
    try:
        return COMMANDS[name](words[1:]) or 0
    except OptionError as error:
        return _failed(name, str(error), USAGE_ERROR)
    except BrokenPipeError:
        silence_standard_output()
        return PIPE_CLOSED
    except OSError as error:
        reason = error.strerror or str(error)
        return _failed(name, f"{error.filename}: {reason}" if error.filename else reason)
    except MGraphError as error:
        return _failed(name, str(error))
    except JaxRuntimeError as error:
        return _failed(name, str(error).partition("\n")[0])
    except KeyboardInterrupt:
        return INTERRUPTED


def decode(argv: Sequence[str]) -> int | None:
    """``mgraph decode``: translate a file, as marian-decoder does."""
    if _asks_for_help(DECODE, argv):
        return None
    values = parse(DECODE, argv)
    require_files(values)
    if len(values["input"]) != 1:
        raise OptionError(
            f"--input: one file is needed, got {len(values['input'])}; "
            "models with several sources are not supported yet"
        )
    with logging_as(values):
        _greet(DECODE, argv, values)
        from nmt.translator import Translator

        began = time.perf_counter()
        translator = Translator(**_started(DECODE, values))
        with open_input(values["input"][0]) as lines, open_output(values["output"]) as output:
            for translation in translator.translations(lines):
                if not values["quiet_translation"]:
                    logger.info("Best translation %d : %s", translation.line, translation.text)
                _write(output, translator.format(translation))
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)
    return None


def score(argv: Sequence[str]) -> int | None:
    """``mgraph score``: score given translations, as marian-scorer does."""
    if _asks_for_help(SCORE, argv):
        return None
    values = parse(SCORE, argv)
    require_files(values)
    _require_texts(values)
    if values["summary"]:
        for name in ("normalize", "word_scores"):
            if values[name]:
                raise OptionError(f"--{name.replace('_', '-')} cannot go with --summary")
    with logging_as(values):
        _greet(SCORE, argv, values)
        from nmt.scorer import Scorer, Total

        began = time.perf_counter()
        scorer = Scorer(**_started(SCORE, values))
        source, target = values["train_sets"]
        total = Total()
        with (
            open_input(source) as sources,
            open_input(target) as targets,
            open_output(values["output"]) as output,
        ):
            for result in scorer.scores(sources, targets):
                total.add(result)
                if not values["summary"]:
                    _write(output, scorer.format(result))
            logger.info(
                "Total log probs %s : Total sentences %d : Total words %d",
                total.summary("ce-sum"),
                total.sentences,
                total.words,
            )
            if values["summary"]:
                _write(output, total.summary(values["summary"]))
        logger.info("Total time: %.5fs wall", time.perf_counter() - began)
    return None


def gradcheck(argv: Sequence[str]) -> int | None:
    """``mgraph gradcheck``: hold hand-written gradients of operators or of a model against jax.grad."""
    if _asks_for_help(GRADCHECK, argv):
        return None
    values = parse(GRADCHECK, argv)
    of_model = bool(values["model"])
    _check_combination(values, of_model)
    with logging_as(values):
        from nmt import devices

        _greet(GRADCHECK, argv, values)
        devices.start(values["cpu_threads"], values["devices"])
        report = _model_gradients(values) if of_model else _operator_gradients(values)
    if values["json"]:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print(report.table() if values["all"] else report)
    return None if report.ok else RUN_TIME_ERROR


def _check_combination(values: Mapping[str, Any], of_model: bool) -> None:
    """OptionError for what cannot go together: operators and a model are checked one at a time."""
    foreign = GRADCHECK.sections["Operators" if of_model else "Model"]
    given = [f"--{option.name}" for option in foreign if values[option.attribute] != option.default]
    if of_model:
        given += values["operands"]
    if given:
        problem = "cannot go with" if of_model else "needs"
        raise OptionError(f"{' '.join(given)} {problem} --model")
    if of_model:
        require_files(values)
        _require_texts(values)


def _operator_gradients(values: Mapping[str, Any]) -> Any:
    from mgraph.catalogue import operations
    from mgraph.gradcheck import check_operators

    names = values["operands"]
    if not values["module"]:
        names = [operation for name in names for operation in operations(name)]
    return check_operators(
        names,
        values["module"] or None,
        on_row=lambda row: logger.info("%s: %s", row.operator, row.verdict),
    )


def _model_gradients(values: Mapping[str, Any]) -> Any:
    from nmt.gradients import check_model_gradients, read_pairs
    from nmt.models import load_model
    from nmt.samples import LineEncoder, load_vocabs

    model = load_model(values["model"])
    vocabs = load_vocabs(values["vocabs"], model.dim_vocabs)
    encoder = LineEncoder(vocabs, values["max_length"], max_length_crop=False)
    source, target = values["train_sets"]
    with open_input(source) as sources, open_input(target) as targets:
        pairs = read_pairs(sources, targets, encoder, values["lines"])
    return check_model_gradients(
        model,
        pairs,
        label_smoothing=values["label_smoothing"],
        float32=not values["float64"],
        rule_set="marian" if values["marian_exact"] else "rules",
    )


def operators(argv: Sequence[str]) -> int | None:
    """``mgraph operators``: list every operator with its Marian name, shape rule and gradient."""
    if _asks_for_help(OPERATORS, argv):
        return None
    values = parse(OPERATORS, argv)
    from mgraph import catalogue

    if values["json"]:
        print(json.dumps(catalogue.as_json(), indent=2))
    else:
        print(catalogue.markdown(), end="")
    return None


def diff(argv: Sequence[str]) -> int | None:
    """``mgraph diff``: compare two dumps or models and name the first node that differs."""
    if _asks_for_help(DIFF, argv):
        return None
    values = parse(DIFF, argv)
    if len(values["operands"]) != 2:
        raise OptionError(f"two files are needed, got {len(values['operands'])}")
    from mgraph.files.dumps import print_diff

    first, second = values["operands"]
    return print_diff(first, second, values["rtol"], values["atol"])


def demo(argv: Sequence[str]) -> int | None:
    """``mgraph demo``: a graph, its gradients and a translation, in two minutes."""
    from nmt.demo import main as run

    return run(argv)


COMMANDS: Mapping[str, Callable[[Sequence[str]], int | None]] = {
    "decode": decode,
    "score": score,
    "gradcheck": gradcheck,
    "operators": operators,
    "diff": diff,
    "demo": demo,
}


def _require_texts(values: Mapping[str, Any]) -> None:
    if len(values["train_sets"]) != 2:
        raise OptionError(
            f"--train-sets: a source and a target file are needed, got {len(values['train_sets'])}"
        )


def _started(command: Command, values: Mapping[str, Any]) -> dict[str, Any]:
    """Start the device, and give back the options that are left for the Python class."""
    from nmt import devices

    devices.start(values["cpu_threads"], values["devices"])
    left = command.python_options().keys() - {"cpu_threads", "devices"}
    return {name: values[name] for name in left}


def _write(output: BinaryIO, text: str) -> None:
    output.write(text.encode("utf-8", "surrogateescape") + b"\n")
    output.flush()


def _greet(command: Command, argv: Sequence[str], values: Mapping[str, Any]) -> None:
    logger.info("[mgraph] %s %s %s", __version__, command.name, shlex.join(argv))
    for notice in notices(command, values):
        logger.warning("%s", notice)


def _asks_for_help(command: Command, argv: Sequence[str]) -> bool:
    if "-h" in argv or "--help" in argv:
        print(help_text(command))
        return True
    if "--version" in argv:
        print(f"mgraph {__version__}")
        return True
    return False


def _failed(name: str, reason: str, code: int = RUN_TIME_ERROR) -> int:
    print(f"mgraph {name}: error: {' '.join(reason.split())}", file=sys.stderr)
    return code


def _overview() -> str:
    entries = [
        f"  {name:10}  {(run.__doc__ or '').partition(': ')[2].splitlines()[0]}"
        for name, run in COMMANDS.items()
    ]
    return "\n".join(
        [
            "usage: mgraph COMMAND [options]",
            "",
            *entries,
            "",
            "mgraph COMMAND --help lists the options of a command",
        ]
    )
