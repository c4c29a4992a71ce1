"""Options: what there is, how each is read, and what each command takes."""

from __future__ import annotations

from nmt.options.decoding import DECODE as DECODE
from nmt.options.files import require_files as require_files
from nmt.options.files import require_folder as require_folder
from nmt.options.files import require_readable as require_readable
from nmt.options.files import require_readable_files as require_readable_files
from nmt.options.files import require_tempdir as require_tempdir
from nmt.options.files import require_writable as require_writable
from nmt.options.option import Command as Command
from nmt.options.option import Option as Option
from nmt.options.option import OptionError as OptionError
from nmt.options.option import Support as Support
from nmt.options.option import ignored as ignored
from nmt.options.option import later as later
from nmt.options.option import nearest as nearest
from nmt.options.scoring import SCORE as SCORE
from nmt.options.training import TRAIN as TRAIN
