"""Raw text as OPUS-MT normalizes it before SentencePiece splits it.

The scripts ``preprocess.sh`` of OPUS-MT's model directories do this to every line that a model is
trained on (they took it from Moses), so a model knows nothing else.
"""

from __future__ import annotations

import re
import unicodedata

_FULL_WIDTH = 0xFEE0  # from a character of ASCII to its full-width form
_PLAIN: dict[int, str] = {ord(c) + _FULL_WIDTH: c for c in "!%(),0123456789:;?~"}
_PLAIN |= zip(map(ord, "\u3001\u2236\u2019\u2501\u3008\u3009\u3010\u3011"), ",:'-<>[]", strict=True)
_PLAIN |= dict.fromkeys(map(ord, "\u201c\u201d\u300a\u300b\u300c\u300d"), '"')
_PLAIN |= {ord("\u2026"): "..."}
# A slip in Moses' script, which the models have learnt: the full-width one is a quotation mark.
_PLAIN |= {ord("\uff11"): '"'}
_FULL_STOP = re.compile("[\u3002\uff0e] *")


def normalized(line: str) -> str:
    """``line`` with plain punctuation, without control and format characters and needless spaces."""
    text = _FULL_STOP.sub(". ", line).translate(_PLAIN)
    if not text.isascii() or not text.isprintable():
        text = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in text)
    return " ".join(word for word in text.split(" ") if word)
