"""From a teacher to a student: number words, from the shipped model down to files in 8 bits.

The student's file is a quarter as large, and at least 95 % of the held-out numbers come out right.
"""

import argparse
import tempfile
from pathlib import Path

from nmt import Translator, distill, numbers
from nmt.numbers import corpus

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--lines", type=int, default=20_000, help="lines for the teacher (default: 20000)")
arguments.add_argument("--after", default="2000u", help="how long to train the student (default: 2000u)")
arguments.add_argument("--tune-after", default="300u", help="how long to fine-tune it (default: 300u)")
arguments.add_argument("--heldout", type=int, default=300, help="held-out numbers (default: 300)")
arguments.add_argument("--folder", type=Path, help="where to keep everything; a second run goes on there")
given = arguments.parse_args()
folder = given.folder or Path(tempfile.mkdtemp())
folder.mkdir(parents=True, exist_ok=True)

# A text without translations for the teacher, and held-out pairs.
text, _ = corpus.write(corpus.training(given.lines), folder / "text")
valid = corpus.write(corpus.heldout(given.heldout), folder / "heldout")
vocab = str(numbers.model_dir() / "vocab.spm")

# What differs from the default student, which is much larger: options of `mgraph train`.
student = folder / "student.yml"
student.write_text(
    """\
seed: 1
dim-emb: 64
enc-depth: 2
dec-depth: 2
transformer-heads: 4
transformer-dim-ffn: 256
mini-batch: 128
learn-rate: 0.004
lr-warmup: 200
lr-decay-inv-sqrt: [200]
exponential-smoothing: 0.005
valid-freq: 500u
save-freq: 500u
disp-freq: 250u
"""
)

# mgraph distill -m model.npz -v vocab.spm vocab.spm -i text.en --valid-sets heldout.en heldout.de ...
report = distill(
    models=[str(numbers.model_dir() / "model.npz")],
    vocabs=[vocab, vocab],
    beam_size=2,
    normalize=0.6,
    input=str(text),
    valid_sets=[str(path) for path in valid],
    output=str(folder / "student"),
    student=str(student),
    after=given.after,
    tune_after=given.tune_after,
    tune_learn_rate=0.0003,
    first=20,
    best=30,
)
print(report)

# An int8 model, a vocabulary, a binary shortlist; for Bergamot and Firefox they are in student/bergamot.
translator = Translator.from_dir(str(folder / "student" / "marian"), precision="int8")
heldout = corpus.heldout(given.heldout)
translations = translator.translate([english for _, english, _ in heldout])
right = sum(german == found for (_, _, german), found in zip(heldout, translations, strict=True))
print(f"{right} of {len(heldout)} held-out numbers are right")
assert right >= 0.95 * len(heldout) or given.after != "2000u"
