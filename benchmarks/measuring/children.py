"""Python processes that answer questions: each with its own threads and memory, prepared once."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .processes import ProcessError


class Child:
    """A Python module that runs in a process of its own and answers there: see ``answering``.

    environment: variables besides those of this process. python: the start of a command that runs the module
    as a script, if not by this Python's ``-m``.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        python: Sequence[str] = (sys.executable, "-m"),
    ) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [*python, module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            text=True,
        )

    def ask(self, question: str, **details: Any) -> dict[str, Any]:
        """The answer. ProcessError if the process has ended; its output on stderr says why."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps({"question": question, **details}), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise ProcessError(f"{self._module} ended when asked for '{question}'; what it said is above")
        found: dict[str, Any] = json.loads(answer)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def answering(answers: Mapping[str, Callable[..., Mapping[str, Any]]]) -> None:
    """In the child: answer each question by the function of that name, until there are no more questions.

    Standard output is for the answers; what is printed elsewhere goes to standard error.
    """
    answer = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for details in _questions():
            found = answers[details.pop("question")](**details)
            print(json.dumps(dict(found)), file=answer, flush=True)


def _questions() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)
