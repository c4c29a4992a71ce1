import os
import sys

from pymarian import Trainer

source, target, vocab_source, vocab_target, model = sys.argv[1:]
settings = {
    "type": "transformer",
    "dim_emb": 16,
    "transformer_heads": 2,
    "transformer_dim_ffn": 16,
    "enc_depth": 1,
    "dec_depth": 1,
    "tied_embeddings": True,
    "optimizer_params": [0.9, 0.98, "1e-09"],
    "lr_decay_inv_sqrt": [16000],
    "mini_batch_fit": False,
    "after": "3u",
    "train_sets": [source, target],
    "vocabs": [vocab_source, vocab_target],
    "log_level": None,
    "overwrite": "",
    "quiet": True,
    "workspace": 200,
    "cpu_threads": 1,
}
print(Trainer(model=model, **settings).train())
print(sorted(os.listdir(os.path.dirname(model))))
