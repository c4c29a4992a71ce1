"""The stages of a long job, each done once, recorded in a file."""

from __future__ import annotations

import itertools
import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgraph.errors import MGraphError
from nmt.settings import OptionError
from nmt.text.lines import Fingerprint, changes, from_text

logger = logging.getLogger(__name__)

RECORD = "stages.json"


class StagesError(MGraphError, ValueError):
    """The record of the stages cannot be read, or the inputs have changed since it was written."""


class StoppedError(MGraphError):
    """The job was stopped; it can be continued."""


class Stages:
    """Runs the stages that are not done yet.

    folder: where the record is. uses: for each stage, in order, the options that it is the first to use;
    later stages depend on them, too. options: the values of all options by name. inputs: the files that an
    option names, for options that name files. continued: for stages that can go on, the files in ``folder``
    from which they do; the others begin anew.

    Options and inputs may change until a stage that uses them is done, or has left a file from which it goes
    on, so that a mistake that a stage finds can be corrected. Raises OptionError if an option of these stages
    has changed, StagesError if an input has changed or the record is damaged.
    """

    def __init__(
        self,
        folder: Path,
        uses: Mapping[str, Sequence[str]],
        options: Mapping[str, Any],
        inputs: Mapping[str, Sequence[str]],
        continued: Mapping[str, Sequence[str]],
    ) -> None:
        self._path, self._number, self._run = folder / RECORD, len(uses), 0
        files = [path for paths in inputs.values() for path in paths]
        self._record = {
            "options": json.loads(json.dumps(options)),
            "inputs": list(map(list, map(Fingerprint.of, files))),
            "seconds": {},
        }
        if self._path.exists():
            before = self._read()
            waiting = [name for name in uses if name not in before["seconds"]]
            if waiting and any((folder / left).exists() for left in continued.get(waiting[0], ())):
                del waiting[0]
            used = [name for stage in uses if stage not in waiting for name in uses[stage]]
            self._compare(before, used, [path for name in used for path in inputs.get(name, ())])
            self._record["seconds"] = before["seconds"]
        self._write()

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds that each stage took, without interrupted runs."""
        return dict(self._record["seconds"])

    def run(self, name: str, what: str, work: Callable[[], None]) -> None:
        """Do the work of stage ``name`` unless it is done. what: a description for the log."""
        self._run += 1
        place = f"{self._run} of {self._number}, {name}"
        if name in self._record["seconds"]:
            logger.info("[distill] %s: done before", place)
            return
        logger.info("[distill] %s: %s", place, what)
        began = time.perf_counter()
        work()
        self._record["seconds"][name] = round(time.perf_counter() - began, 2)
        self._write()
        logger.info("[distill] %s: done in %.1f s", place, self._record["seconds"][name])

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            inputs = from_text(json.dumps(found["inputs"]))
            if not isinstance(found["options"], dict) or not isinstance(found["seconds"], dict):
                raise TypeError("options and seconds must be maps")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StagesError(f"{self._path}: expected the record of the stages: {error}") from None
        return {**found, "inputs": list(map(list, inputs))}

    def _compare(self, before: Mapping[str, Any], used: Sequence[str], files: Sequence[str]) -> None:
        """Compare the options and the files that stages have used with the record ``before``."""
        for name in used:
            value, old = self._record["options"][name], before["options"].get(name)
            if old != value:
                raise OptionError(
                    f"--{name}: {value!r}, but {self._path} was made with {old!r}; "
                    "choose another --output, or delete the folder"
                )
        known, found = (
            {each.path: each for each in itertools.starmap(Fingerprint, one["inputs"])}
            for one in (before, self._record)
        )
        changed = changes([known[path] for path in files if path in known], [found[path] for path in files])
        if changed:
            raise StagesError(
                f"{'; '.join(changed)}: {self._path.parent} was made before; choose another --output, or "
                "delete the folder"
            )

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._record, indent=1) + "\n", encoding="utf-8")
        os.replace(new, self._path)
