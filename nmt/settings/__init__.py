"""Options: their declarations, parsing and printing, and the options of each command."""

from __future__ import annotations

from nmt.settings.config import Command as Command
from nmt.settings.option import Option as Option
from nmt.settings.option import OptionError as OptionError
from nmt.settings.option import Options as Options
from nmt.settings.option import Support as Support
from nmt.settings.option import ignored as ignored
from nmt.settings.option import nearest as nearest
from nmt.settings.option import option as option
from nmt.settings.option import refused as refused
from nmt.settings.option import whole_number as whole_number
from nmt.settings.requirements import require_files as require_files
from nmt.settings.requirements import require_folder as require_folder
from nmt.settings.requirements import require_readable as require_readable
from nmt.settings.requirements import require_tempdir as require_tempdir
from nmt.settings.requirements import require_writable as require_writable
from nmt.settings.sections import DECODE as DECODE
from nmt.settings.sections import SCORE as SCORE
from nmt.settings.sections import DecodeOptions as DecodeOptions
from nmt.settings.sections import ScoreOptions as ScoreOptions
from nmt.settings.sections import products_in as products_in
from nmt.settings.train import TRAIN as TRAIN
from nmt.settings.training import TrainOptions as TrainOptions
