"""Trains the two small models with Marian, lays them out as OPUS-MT and Mozilla do, and translates with each.

    python make_references.py           (needs the command ``pymarian``; made with 1.12.42)

The texts are the number words of ``nmt.numbers``. ``normalized.txt`` is ``raw.txt``, normalized by hand;
Marian gets its lines split by SentencePiece, each after its language token.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

from nmt.numbers import english, german

HERE = Path(__file__).parent
OPUS = HERE / "opus-mt"
FIREFOX = HERE / "firefox"
NAME = "opus.spm60-spm60"
MODEL = f"{NAME}.transformer-align.model1.npz.best-perplexity.npz"
LINES = 2000
SINGLY = "--mini-batch 1 --maxi-batch 1 --cpu-threads 1 -w 200 --quiet".split()
SHAPE = """--type transformer --transformer-dim-ffn 64 --transformer-heads 4 --enc-depth 1
    --tied-embeddings-all --learn-rate 0.004 --lr-warmup 200 --mini-batch 64 --maxi-batch 10
    --seed 5 --cpu-threads 2 -w 400 --quiet""".split()
# Marian crashes on intgemm8 models whose rows are no multiple of 64 (on processors with AVX-512).
STUDENT = """--dim-emb 64 --dec-depth 2 --transformer-decoder-autoreg rnn --dec-cell ssru
    --transformer-tied-layers 1 1 --after-batches 2000""".split()
TEACHER = "--dim-emb 32 --dec-depth 1 --after-batches 3000".split()
TAG = re.compile(r"^>>\S+<< ?")


def marian(command: str, *words: str | Path, text: str = "", cwd: Path | None = None) -> str:
    call = ["pymarian", command, *map(str, words)]
    return subprocess.run(call, input=text, text=True, capture_output=True, check=True, cwd=cwd).stdout


def sentences() -> list[tuple[str, str]]:
    """Pairs of lines of one or two numbers, English and German."""
    dice = random.Random(1)
    pairs = []
    for _ in range(LINES):
        numbers = [dice.randrange(100) for _ in range(dice.randint(1, 2))]
        mark = dice.choice((", ", " - ", "! ", ": "))
        pairs.append((mark.join(map(english, numbers)), mark.join(map(german, numbers))))
    return pairs


def learn_pieces(path: Path, lines: list[str], size: int) -> SentencePieceProcessor:
    """A SentencePiece model with Marian's ids; it has no normalizer, which would be most of its bytes."""
    with path.open("wb") as stream:
        SentencePieceTrainer.Train(
            sentence_iterator=iter(lines),
            model_writer=stream,
            vocab_size=size,
            normalization_rule_name="identity",
            eos_id=0,
            unk_id=1,
            bos_id=-1,
            minloglevel=2,
        )
    return SentencePieceProcessor(model_file=str(path))


def split(pieces: SentencePieceProcessor, line: str) -> str:
    """What ``preprocess.sh`` makes of a normalized line: the token and then the pieces."""
    token = TAG.match(line)
    text = line[token.end() :] if token else line
    return " ".join([*([token[0].strip()] if token else []), *pieces.encode(text, out_type=str)])


def joined(line: str) -> str:
    """What ``postprocess.sh`` makes of Marian's output."""
    return line.replace(" ", "").replace("▁", " ").lstrip(" ")


def make_opus(pairs: list[tuple[str, str]], work: Path) -> None:
    source = learn_pieces(OPUS / "source.spm", [en for en, _ in pairs], 60)
    target = learn_pieces(OPUS / "target.spm", [text for pair in pairs for text in pair], 60)
    data = [(f">>deu<< {split(source, en)}", target.encode(de, out_type=str)) for en, de in pairs]
    data += [(f">>eng<< {split(source, en)}", target.encode(en, out_type=str)) for en, _ in pairs]
    (work / "source").write_text("".join(f"{en}\n" for en, _ in data))
    (work / "target").write_text("".join(f"{' '.join(words)}\n" for _, words in data))
    text = (work / "source").read_text() + (work / "target").read_text()
    vocab = OPUS / f"{NAME}.vocab.yml"
    vocab.write_text(marian("vocab", text=text))
    shutil.copy(vocab, work)
    train = f"-t source target -v {vocab.name} {vocab.name} -m {MODEL}".split()
    marian("train", *train, *SHAPE, *TEACHER, cwd=work)
    shutil.copy(work / MODEL, OPUS)
    # OPUS-MT edits the file that training writes; its packages have these lines.
    (OPUS / "decoder.yml").write_text(
        f"relative-paths: true\nmodels:\n  - {MODEL}\nvocabs:\n  - {vocab.name}\n  - {vocab.name}\n"
        "beam-size: 6\nnormalize: 1\nword-penalty: 0\nmini-batch: 1\nmaxi-batch: 1\nmaxi-batch-sort: none\n"
    )
    lines = (HERE / "normalized.txt").read_text().splitlines()
    text = "".join(f"{split(source, line)}\n" for line in lines)
    output = marian("decode", "-c", OPUS / "decoder.yml", *SINGLY, text=text)
    translations = [joined(line) for line in output.splitlines()]
    (HERE / "opus-mt.txt").write_text("".join(f"{line}\n" for line in translations))
    again = [" ".join(target.encode(line, out_type=str)) for line in translations]
    score_opus(text, "".join(f"{line}\n" for line in again), work)


def score_opus(source: str, target: str, work: Path) -> None:
    """Score translations that are split again."""
    texts = work / "scored.source", work / "scored.target"
    for path, text in zip(texts, (source, target), strict=True):
        path.write_text(text)
    vocab = OPUS / f"{NAME}.vocab.yml"
    scores = marian("score", "-m", OPUS / MODEL, "-v", vocab, vocab, "-t", *texts, *SINGLY)
    (HERE / "opus-mt.scores").write_text(scores)


def make_firefox(pairs: list[tuple[str, str]], work: Path) -> None:
    vocab = FIREFOX / "vocab.ende.spm"
    pieces = learn_pieces(vocab, [text for pair in pairs for text in pair], 64)
    shutil.copy(vocab, work)
    (work / "en").write_text("".join(f"{en}\n" for en, _ in pairs))
    (work / "de").write_text("".join(f"{de}\n" for _, de in pairs))
    train = f"-t en de -v {vocab.name} {vocab.name} -m model.npz".split()
    marian("train", *train, *SHAPE, *STUDENT, cwd=work)
    model = FIREFOX / "model.ende.intgemm8.bin"
    marian("convert", "-f", work / "model.npz", "-t", model, "--gemm-type", "intgemm8")
    counts: dict[tuple[str, str], int] = {}
    for en, de in pairs:
        for one in pieces.encode(en, out_type=str):
            for other in pieces.encode(de, out_type=str):
                counts[other, one] = counts.get((other, one), 0) + 1
    lexicon = "".join(f"{de} {en} {count / LINES}\n" for (de, en), count in sorted(counts.items()))
    (work / "lex.s2t").write_text(lexicon)
    table = FIREFOX / "lex.9.9.ende.s2t.bin"
    spm = ("-v", vocab, vocab)
    numbers = ("9", "9", "0")
    marian("convert", "-s", work / "lex.s2t", *numbers, "-d", table, "--vocabs", vocab, vocab)
    lines = (HERE / "plain.txt").read_text()
    options = ("-m", model, *spm, "-b", "1", "-n", "1.0", "--max-length-factor", "2.0")
    (HERE / "firefox.txt").write_text(marian("decode", *options, *SINGLY, "--shortlist", table, text=lines))


def main() -> None:
    pairs = sentences()
    for folder, make in ((OPUS, make_opus), (FIREFOX, make_firefox)):
        folder.mkdir(exist_ok=True)
        work = Path(os.environ.get("TMPDIR", "/tmp")) / f"directories-{folder.name}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        make(pairs, work)
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
