"""Options: what there is, how each is read, and what each command takes."""

from __future__ import annotations

from nmt.settings.decoding import DECODE as DECODE
from nmt.settings.files import require_files as require_files
from nmt.settings.files import require_folder as require_folder
from nmt.settings.files import require_readable as require_readable
from nmt.settings.files import require_readable_files as require_readable_files
from nmt.settings.files import require_tempdir as require_tempdir
from nmt.settings.files import require_writable as require_writable
from nmt.settings.option import Command as Command
from nmt.settings.option import Option as Option
from nmt.settings.option import OptionError as OptionError
from nmt.settings.option import Support as Support
from nmt.settings.option import ignored as ignored
from nmt.settings.option import later as later
from nmt.settings.option import nearest as nearest
from nmt.settings.scoring import SCORE as SCORE
from nmt.settings.training import TRAIN as TRAIN
