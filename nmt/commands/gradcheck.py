"""``mgraph gradcheck``: compare hand-written gradients of operators or of a model with jax.grad."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from nmt.commands.common import Json, Operands, greet, require_distinct
from nmt.runtime.counting import counting
from nmt.runtime.log import logging_as
from nmt.settings import (
    Command,
    OptionError,
    Options,
    option,
    require_files,
    require_readable,
    require_writable,
)
from nmt.settings.model_options import described_model
from nmt.settings.sections import DescribedModel, Devices, Logging
from nmt.text.lines import STANDARD_OUTPUT, open_input

logger = logging.getLogger(__name__)


class CheckedOperators(Options):
    """The operators to check."""

    title = "Operators"

    module: str = option("", "your own operators: a Python file or the name of a module")
    compiled: bool = option(
        False, "check the compiler: operators and compositions over many rows, compiled and not"
    )
    budgets: bool = option(
        False, "measure rounding errors in float32, bfloat16 and float16, next to those of jax.grad"
    )
    mutants: bool = option(False, "change the rules in many small ways; report changes that no check notices")
    quick: bool = option(
        False, "the short form: first derivatives, two cases; with --compiled few sizes, one case"
    )
    no_shrink: bool = option(False, "do not search for the smallest failure of each wrong operator")


class CheckedModel(Options):
    """The model to check, and the texts."""

    title = "Model"

    model: str = option("", "check the training loss of this model: .npz, .bin or .safetensors", short="m")
    vocabs: tuple[str, ...] = option((), "vocabularies of each source and the target", short="v")
    train_sets: tuple[str, ...] = option((), "files: each source, then the target", short="t")
    lines: int = option(8, "number of lines to use", least=1)
    max_length: int = option(100, "most words per line, </s> included; skip longer lines", least=1)
    label_smoothing: float = option(0.0, "label smoothing of the loss", least=0)
    float64: bool = option(False, "compare in float64 only")
    marian_exact: bool = option(False, "check Marian's own formulas where they are not exact")
    layers: bool = option(False, "examine each operator instead of the whole program; for large models")
    all: bool = option(False, "print all parameters and operators, not only the ten worst")


class GradcheckOutput(Json, Logging):
    """The report and the log."""

    html: str = option("", "write the report as a page to this file")


class GradcheckOptions(CheckedOperators, CheckedModel, DescribedModel, GradcheckOutput, Devices, Operands):
    """The options of ``mgraph gradcheck``."""


COMMAND = Command(
    "gradcheck",
    "compare hand-written gradients with jax.grad; the exit code is 1 if one is wrong",
    GradcheckOptions,
    operands="OPERATOR",
    examples=(
        ("mgraph gradcheck", "every operator"),
        ("mgraph gradcheck layer_norm softmax", "these two"),
        ("mgraph gradcheck --module user_ops.py", "your own"),
        ("mgraph gradcheck --quick", "every operator, first derivatives only"),
        ("mgraph gradcheck --html report.html", "every operator, as a page"),
        ("mgraph gradcheck --mutants layer_norm", "errors in its rule that the checks would not notice"),
        ("mgraph gradcheck --compiled --quick", "the compiler: values and gradients over many rows"),
        ("mgraph gradcheck --budgets softmax", "rounding errors, on usual and extreme inputs"),
        ("mgraph gradcheck -m model.npz -v vocab.spm vocab.spm -t text.en text.de", "a whole model"),
        (
            "mgraph gradcheck -m model.npz -v V V -t text.en text.de --layers --html layers.html",
            "its operators one by one, as a page too",
        ),
    ),
)


def run(options: GradcheckOptions, argv: Sequence[str]) -> int | None:
    """Print the report; the exit code is 1 if a gradient is wrong, or a mutant of a rule survives."""
    of_model = bool(options.model)
    _check_combination(options, of_model)
    with logging_as(options):
        from nmt.runtime import devices

        greet(COMMAND, argv, options)
        names = () if of_model else _operators(options)
        devices.start(options.cpu_threads, options.devices)
        report = _model_gradients(options) if of_model else _operator_gradients(options, names)
    if options.html:
        _write_page(options.html, report)
    if options.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print(report.table() if options.all else report)
        _print_failures(report)
    return None if report.ok else 1


def _check_combination(options: GradcheckOptions, of_model: bool) -> None:
    """OptionError for conflicting options: operators and a model cannot be checked together."""
    sections = COMMAND.sections
    foreign = sections["Operators"] if of_model else [*sections["Model"], *sections["Model options"]]
    others = [f"--{name}" for name in ("compiled", "budgets", "mutants") if getattr(options, name)]
    if len(others) > 1:
        raise OptionError(f"{' '.join(others)}: expected one of them")
    if options.html and others:
        raise OptionError(f"--html cannot go with {others[0]}")
    if options.quick and others and not options.compiled:
        raise OptionError(f"--quick cannot go with {others[0]}")
    if options.html in STANDARD_OUTPUT:
        raise OptionError(f"--html: a file is needed, got {options.html}, where the report is printed")
    require_writable("--html", options.html)
    given = [f"--{option.name}" for option in foreign if getattr(options, option.attribute) != option.default]
    if of_model:
        given += options.operands
    if given:
        problem = "cannot go with" if of_model else "needs"
        raise OptionError(f"{' '.join(given)} {problem} --model")
    inputs = {"--module": [options.module], "--model": [options.model], "--vocabs": options.vocabs}
    require_distinct({**inputs, "--train-sets": options.train_sets}, options.html, "--html")
    if of_model:
        require_files("--model", [options.model], options.vocabs)
        if not options.train_sets:
            raise OptionError("--train-sets: the sources and the target are needed, got none")
        require_readable("--model", [options.model])
        require_readable("--vocabs", options.vocabs)
        require_readable("--train-sets", options.train_sets)
    elif options.module.endswith(".py"):
        require_readable("--module", [options.module])


def _operators(options: GradcheckOptions) -> Sequence[str]:
    """The given operators; those of a module are validated when it is imported."""
    from mgraph.gradcheck import chosen_operators
    from nmt.commands.catalogue import operations

    if options.module:
        return list(options.operands)
    names = [operation for name in options.operands for operation in operations(name)]
    chosen_operators(names)
    return names


def _operator_gradients(options: GradcheckOptions, names: Sequence[str]) -> Any:
    from mgraph.gradcheck import (
        check_budgets,
        check_compiled,
        check_mutants,
        check_operators,
        chosen_operators,
        with_failures,
    )
    from mgraph.names import counted

    if options.budgets:
        return check_budgets(
            names,
            options.module or None,
            on_operator=lambda cls: logger.info("%s: %s", cls.__name__, counted(len(cls.cases), "case")),
            on_budget=lambda row: logger.info("%s: %s", row.title, row.verdict),
        )
    if options.mutants:
        return check_mutants(
            names,
            options.module or None,
            on_row=lambda row: logger.info(
                "%s: %d mutants, %s", row.operator, len(row.verdicts), row.verdict
            ),
        )
    if options.compiled:
        return check_compiled(
            names,
            options.module or None,
            quick=options.quick,
            on_row=lambda row: logger.info("%s %s: %s", row.operator, row.case, row.verdict),
        )
    count = None if options.module else len(chosen_operators(names))
    with counting(logger, "operators", count, quiet=options.quiet) as done:
        report = check_operators(
            names,
            options.module or None,
            quick=options.quick,
            on_row=lambda row: done(f"{row.operator}: {row.verdict}"),
        )
    if report.ok or options.no_shrink:
        return report
    logger.info("searching the smallest failure of each wrong operator")
    return with_failures(report)


def _print_failures(report: Any) -> None:
    """Print the smallest failures that a report on operators has, each as a test."""
    for row in getattr(report, "rows", ()):
        if failure := getattr(row, "failure", None):
            print(f"\n{row.operator}, the smallest failure that was found, as a test:\n\n{failure}")


def _write_page(path: str, report: Any) -> None:
    from mgraph.gradcheck import write_page

    write_page(report, path)
    logger.info("wrote %s", path)


def _model_gradients(options: GradcheckOptions) -> Any:
    from nmt.files import load_model
    from nmt.text.sentences import LineEncoder
    from nmt.text.vocabs.loading import load_vocabs
    from nmt.training.gradients import check_model_gradients, check_model_layers, read_samples

    model = load_model(
        options.model,
        options=described_model(options),
        ignore_config=options.ignore_model_config,
        vocabs=options.vocabs,
    )
    types = model.options.stream_types
    vocabs = load_vocabs(options.vocabs, model.dim_vocabs, owner=options.model, input_types=types)
    if len(options.train_sets) != len(vocabs):
        raise OptionError(
            f"--train-sets: this model needs {len(vocabs)} texts, got {len(options.train_sets)}"
        )
    encoder = LineEncoder(vocabs, options.max_length, False, model.options.right_left)
    with ExitStack() as stack:
        texts = [stack.enter_context(open_input(path)) for path in options.train_sets]
        samples = read_samples(texts, encoder, options.lines)
    settings: dict[str, Any] = {
        "label_smoothing": options.label_smoothing,
        "float32": not options.float64,
        "rule_set": "marian" if options.marian_exact else "rules",
    }
    if options.layers or options.html:
        return check_model_layers(model, samples, **settings)
    report = check_model_gradients(model, samples, **settings)
    if report.ok:
        return report
    logger.info("%d gradients are wrong; each operator is examined", sum(not c.ok for c in report.checks))
    found = check_model_layers(model, samples, **settings)
    alone = "each operator alone agrees with JAX; what is compiled together does not (see --compiled)"
    return replace(report, title=f"{report.title}\n{alone}") if found.ok else found
