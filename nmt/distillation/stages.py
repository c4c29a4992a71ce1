"""The stages of a long job, each done once, recorded in a file."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgraph.errors import MGraphError
from nmt.settings import OptionError
from nmt.text.lines import Fingerprint, changes

logger = logging.getLogger(__name__)

RECORD = "stages.json"


class StagesError(MGraphError, ValueError):
    """The record of the stages cannot be read, or the inputs have changed since."""


class StoppedError(MGraphError):
    """The job was stopped; it can be continued."""


class Stages:
    """Runs stages that are not done yet.

    folder: of the record. options: by name, what the result depends on. inputs: files that it depends on.
    number: how many stages there will be, for the log.

    Raises OptionError if the folder was begun with other options, StagesError for other inputs or a damaged
    record.
    """

    def __init__(self, folder: Path, options: Mapping[str, Any], inputs: Sequence[str], number: int) -> None:
        self._path, self._number, self._run = folder / RECORD, number, 0
        now = {
            "options": json.loads(json.dumps(options)),
            "inputs": list(map(list, map(Fingerprint.of, inputs))),
        }
        self._record = {**now, "seconds": {}}
        if self._path.exists():
            self._record = self._read()
            self._compare(now)
        else:
            self._write()

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds that each stage took, without those of interrupted runs."""
        return dict(self._record["seconds"])

    def run(self, name: str, what: str, work: Callable[[], None]) -> None:
        """Do the work of stage ``name`` unless it is done. what: for the log."""
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
            inputs = [Fingerprint(*fields) for fields in found["inputs"]]
            if not isinstance(found["options"], dict) or not isinstance(found["seconds"], dict):
                raise TypeError("options and seconds are maps")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StagesError(f"{self._path}: expected the record of the stages: {error}") from None
        return {**found, "inputs": list(map(list, inputs))}

    def _compare(self, now: Mapping[str, Any]) -> None:
        before = self._record["options"]
        for name, value in now["options"].items():
            if before.get(name) != value:
                raise OptionError(
                    f"--{name}: {value!r}, but {self._path} was made with {before.get(name)!r}; "
                    "choose another --output, or delete it"
                )
        files = ([Fingerprint(*fields) for fields in each["inputs"]] for each in (self._record, now))
        changed = changes(*files)
        if changed:
            raise StagesError(
                f"{'; '.join(changed)}: {self._path.parent} was made before; choose another --output, or "
                "delete it"
            )

    def _write(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._record, indent=1) + "\n", encoding="utf-8")
        os.replace(new, self._path)
