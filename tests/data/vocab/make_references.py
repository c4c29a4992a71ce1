"""Asks Marian how it reads the vocabularies in ``cases.txt``; writes ``references.json`` and two ``.spm``
files.

    python make_references.py           (needs the command ``pymarian``; made with 1.12.42)

``score --word-scores`` shows how Marian reads a word: all weights of the model are zero except an
output bias of -STEP * id, so the score of a word tells its id. ``decode --force-decode``, with pieces as
the forced translation, shows what Marian prints for an id. ``corpus.txt`` has words that YAML would turn
into something else, or that break lines, words or decoders elsewhere.
The JSON file has bytes as the characters U+0000 to U+00FF.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from mgraph.files.items import MODEL_YML, model_yml, read_npz, with_model_yml, write_npz

HERE = Path(__file__).parent
STEP = 0.03
ROOM = 220
SPECIAL = b"</s>: 0\n<unk>: 1\n"
SINGLY = ("--mini-batch", "1", "--maxi-batch", "1", "--cpu-threads", "1")

WORDS = """the a sea see ship shore shell she sells saw salt some same seven eleven and on of to in"""
LINES = (
    *("the sea", "", "  the   sea  ", "a\tb\u00a0c\u2028d\x0ce", "Hello 日本 sea 日本語", "\ufeffthe"),
    *("</s> the <unk>", "\u0085 é", "ﬁ①e\u0301", "▁the ▁", "😀😀 a", "a\x00b", "\x01\x7f", "<0x41> a"),
    *(b"a\xffb", b"\xff\xfe", b"the \xe2\x82 sea", b"\xed\xa0\x80 x"),
)
SPELT = (
    *("▁the", "<unk>", "<unk> <unk>", "▁ <unk> ▁s e a", "▁ s ▁", "<0xC3> <0xA9>", "<0xC3> <0x28> s"),
    *("<0xF0> <0x9F> <0x98>", "▁ <0x41> <0x00> s"),
)

NO_SPM = ("--no-spm-encode", "--no-spm-decode")
PLAIN = ("the sea", "  she  sells é", "shore")
PIECES = ("▁the ▁se a", "▁the  <unk> zz ll", "▁ \xe9 s", "the sea")
# Words that are frequent, equally frequent, or like special ones; then words that YAML must or cannot quote.
COUNTED = (
    b"the sea the a  sea the \nb a c </s> </s> </s> <unk> x: :x - -- ? #a a#b \t a\tb\n\n",
    b"caf\xe9 \xe9: \xff: \xc2: \x7f: \x0c: \r \r: \x00 \xc2\x85 \xef\xbb\xbfz \xef\xbf\xbf: \xed\xa0\x80:\n",
    b'\xc3\xa9 \xf0\x9f\x98\x80 \xc2\xa0 \xc2\xa0: \xe2\x80\xa8 null ~ no a&b &a "q" \\ \\: \b: 1 0x1 end',
)


def marian(*words: str, text: bytes = b"", cwd: str | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["pymarian", *words], input=text, cwd=cwd, capture_output=True, check=False)


def biased_model(path: Path, dim: int) -> None:
    """Write the smallest model with ``dim`` target words, whose log-probabilities fall by STEP."""
    items = {
        name: np.zeros_like(array) for name, array in read_npz(HERE.parent / "items" / "model.npz").items()
    }
    options = model_yml(read_npz(HERE.parent / "items" / "model.npz")) or ""
    items["decoder_Wemb"] = items["decoder_ff_logit_l2_Wt"] = np.zeros((dim, 2), np.float32)
    items["decoder_ff_logit_l2_b"] = -STEP * np.arange(dim, dtype=np.float32)[None]
    items[MODEL_YML] = with_model_yml(options.replace("  - 4\n  - 4\n", f"  - 4\n  - {dim}\n"))
    write_npz(path, items)


def with_model(
    command: str, vocab: bytes | Path, ending: str, lines: list[bytes], dim: int, *words: str
) -> Any:
    """Run ``score`` or ``decode`` on ``lines`` as the target side."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        if isinstance(vocab, bytes):
            (here / f"vocab.{ending}").write_bytes(vocab)
            vocab = here / f"vocab.{ending}"
        biased_model(here / "model.npz", dim)
        (here / "s.yml").write_bytes(SPECIAL + b"a: 2\nb: 3\n")
        (here / "s").write_bytes(b"a\n" * len(lines))
        (here / "t").write_bytes(b"".join(line + b"\n" for line in lines))
        files = ("-t" if command == "score" else "-i", f"{here}/s", f"{here}/t")
        vocabs = ("-v", f"{here}/s.yml", str(vocab))
        return marian(command, "-m", f"{here}/model.npz", *vocabs, *files, *SINGLY, *words)


def ids(vocab: bytes | Path, ending: str, lines: list[bytes], dim: int) -> list[list[int]] | None:
    """The ids of each line, ``</s>`` included; None if Marian refuses the vocabulary."""
    run = with_model("score", vocab, ending, lines, dim, "--word-scores")
    if run.returncode:
        return None
    total = np.log(np.exp(-STEP * np.arange(dim)).sum())
    scores = [line.split(b"WordScores=")[1].split(b"|||")[0] for line in run.stdout.split(b"\n")[:-1]]
    assert len(scores) == len(lines)
    return [[round(-(float(score) + total) / STEP) for score in line.split()] for line in scores]


def texts(vocab: Path, lines: list[bytes], dim: int, *options: str) -> list[bytes]:
    """What Marian prints for each line; the lines are pieces if ``--no-spm-encode`` is given."""
    words = ("--force-decode", "--allow-unk", "--allow-special", "-b", "1", "--max-length-factor", "50")
    return with_model("decode", vocab, "spm", lines, dim, *words, *options).stdout.split(b"\n")[:-1]


def created() -> list[dict[str, Any]]:
    """The vocabularies that Marian makes of texts."""
    found = []
    for text, size in [*((b"".join(COUNTED), size) for size in (0, 1, 2, 5)), (b"", 0), (b"\n \n", 0)]:
        data = marian("vocab", "--max-size", str(size), text=text).stdout
        found.append({"text": text.decode("latin-1"), "size": size, "data": data.decode("latin-1")})
    return found


def train_pieces(path: Path, size: int, *options: str) -> None:
    """Make Marian train a SentencePiece model without a normalizer, which would be most of its bytes."""
    words = WORDS.split()
    lines = (" ".join(words[(i * j + j) % len(words)] for j in range(1, 9)) + "\n" for i in range(400))
    sizes = f"--dim-vocabs {size} {size} --type s2s --dim-emb 2 --dim-rnn 2 --after-batches 1 --mini-batch 2"
    spm = " ".join(["--normalization_rule_name=identity", *options])
    # The .spm file names the files that it was made from: short names keep this machine's paths out of it.
    files = f"-m model.npz -t text text -v {path.name} {path.name} --tempdir ."
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "text").write_text("".join(lines))
        marian(
            "train", *f"{files} {sizes} --cpu-threads 1".split(), "--sentencepiece-options", spm, cwd=folder
        )
        shutil.copy(Path(folder) / path.name, path)


def pieces_references(name: str, size: int, *options: str) -> dict[str, Any]:
    if not (HERE / name).exists():  # SentencePiece learns different pieces each time
        train_pieces(HERE / name, size, *options)
    lines = [line.encode() if isinstance(line, str) else line for line in LINES]
    spelt = [line.encode() for line in SPELT if "byte" in name or "<0x" not in line]
    split, plain = [line.encode() for line in PIECES], [line.encode() for line in PLAIN]
    return {
        "size": size,
        "lines": [line.decode("latin-1") for line in lines],
        "ids": ids(HERE / name, "spm", lines, size),
        "spelt": [line.decode() for line in spelt],
        "texts": [text.decode("latin-1") for text in texts(HERE / name, spelt, size, NO_SPM[0])],
        "pieces": [text.decode("latin-1") for text in texts(HERE / name, split, size, *NO_SPM)],
        "encoded": [text.decode("latin-1") for text in texts(HERE / name, plain, size, NO_SPM[1])],
    }


def main() -> None:
    corpus = (HERE / "corpus.txt").read_bytes()
    written = marian("vocab", text=corpus).stdout
    rows = (HERE / "cases.txt").read_text().split("\n")
    cases = [ast.literal_eval(f"({row})") for row in rows if row and not row.startswith("#")]
    cases.append(("yml", 0, written, corpus.split(b"\n")[:-1]))
    files = []
    for ending, dim, data, lines in cases:
        data = SPECIAL * ending.startswith("+") + data
        ending = ending.removeprefix("+")
        files.append(
            {
                "ending": ending,
                "dim": dim,
                "data": data.decode("latin-1"),
                "lines": [line.decode("latin-1") for line in lines],
                "ids": ids(data, ending, lines, dim or ROOM),
            }
        )
    references = {
        "marian": marian("--version").stdout.decode().strip(),
        "files": files,
        "created": created(),
        "words.spm": pieces_references("words.spm", 36),
        "bytes.spm": pieces_references("bytes.spm", 292, "--byte_fallback=true"),
    }
    (HERE / "references.json").write_text(json.dumps(references, indent=1) + "\n")


if __name__ == "__main__":
    main()
