"""Train a model from scratch, as Marian would: number words from English to German, in a minute or two.

At least 98 % of the held-out numbers come out right, letter for letter.
"""

import argparse
import tempfile
import time
from pathlib import Path

from nmt import Trainer, Translator
from nmt.numbers import corpus

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--after", default="1500u", help="how long to train (default: 1500u, 1500 updates)")
arguments.add_argument("--lines", type=int, default=60_000, help="training lines (default: 60000)")
arguments.add_argument("--folder", type=Path, help="where to keep data and model")
given = arguments.parse_args()
folder = given.folder or Path(tempfile.mkdtemp())
folder.mkdir(parents=True, exist_ok=True)

# Training lines, and a vocabulary of pieces for both languages.
texts = corpus.write(corpus.training(given.lines), folder / "train")
vocab = folder / "vocab.spm"
corpus.train_vocabulary(texts, vocab)

# Marian's options, by Marian's names: what `mgraph train --type transformer --dim-emb 64 ...` would do.
since = time.monotonic()
Trainer(
    model=str(folder / "model.npz"),
    train_sets=[str(text) for text in texts],
    vocabs=[str(vocab), str(vocab)],
    type="transformer",
    dim_emb=64,
    enc_depth=2,
    dec_depth=2,
    transformer_heads=4,
    transformer_dim_ffn=256,
    transformer_ffn_activation="relu",
    tied_embeddings_all=True,
    mini_batch=128,
    maxi_batch=50,
    learn_rate=0.004,
    lr_warmup="200",
    lr_decay_inv_sqrt=["200"],
    optimizer_params=[0.9, 0.98, 1e-9],
    exponential_smoothing=0.005,
    cost_type="ce-mean-words",
    after=given.after,
    disp_freq="250u",
    seed=1,
    overwrite=True,
).train()
print(f"trained for {time.monotonic() - since:.0f} seconds: {folder / 'model.npz'}")

# Numbers that were held out of training.
heldout = corpus.heldout(600 if given.after == "1500u" else 6)
translator = Translator(str(folder / "model.npz"), [str(vocab), str(vocab)], beam_size=1)
translations = translator.translate([english for _, english, _ in heldout])
right = [german == found for (_, _, german), found in zip(heldout, translations, strict=True)]
print(f"{sum(right)} of {len(right)} held-out numbers are right")
assert sum(right) >= 0.98 * len(right) or given.after != "1500u"
