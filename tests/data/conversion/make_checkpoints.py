"""For ``make_references.sh``: HuggingFace makes checkpoints, and scores and translates with ours.

    python make_checkpoints.py FOLDER        (needs torch, transformers, safetensors)

Random checkpoints go to ``hf-*``, as ``save_pretrained`` writes them; what HuggingFace computes goes to
``references.json``. FOLDER gets the random checkpoints as Marian's models, with texts and vocabularies for
Marian to score. All results are computed with Marian's positions and, unless they are called "as it is", with
Marian's epsilon in layer norms; "as it is" means PyTorch's epsilon.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
import transformers
from transformers import MarianConfig, MarianMTModel

sys.path.insert(0, str(Path(__file__).parents[3]))

from nmt.files.huggingface import export_huggingface, import_huggingface
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.checkpoints import MODELS, RANDOM, digest, marian_positions, pairs_of, vocabs_of

HERE = Path(__file__).parent
EPSILON = 1e-6
POSITIONS = 64
SIZES = {
    "hf-all": {"vocab_size": 24, "pad_token_id": 23},
    "hf-source": {"vocab_size": 24, "pad_token_id": 23, "tie_word_embeddings": False},
    "hf-target": {
        **{"vocab_size": 26, "decoder_vocab_size": 23, "pad_token_id": 22},
        **{"share_encoder_decoder_embeddings": False, "activation_function": "relu"},
    },
    "hf-separate": {
        **{"vocab_size": 21, "pad_token_id": 20, "tie_word_embeddings": False, "decoder_ffn_dim": 12},
        **{"share_encoder_decoder_embeddings": False, "activation_function": "gelu"},
    },
}


def random_checkpoint(name: str) -> MarianMTModel:
    sizes = SIZES[name]
    common = {
        "activation_function": "swish", "d_model": 16, "encoder_layers": 1, "decoder_layers": 2,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": POSITIONS, "scale_embedding": True, "init_std": 0.3, "eos_token_id": 0,
        "forced_eos_token_id": 0, "decoder_start_token_id": sizes["pad_token_id"],
    }  # fmt: skip
    torch.manual_seed(1)
    model = MarianMTModel(MarianConfig(**(common | sizes))).eval()
    model.final_logits_bias.normal_()
    for layer in model.modules():
        if isinstance(layer, torch.nn.LayerNorm):
            torch.nn.init.normal_(layer.weight, 1.0, 0.2)
            torch.nn.init.normal_(layer.bias, 0.0, 0.2)
        elif isinstance(layer, torch.nn.Linear) and layer.bias is not None:
            torch.nn.init.normal_(layer.bias, 0.0, 0.1)
    return model


def use_marian(model: MarianMTModel, epsilon: float) -> None:
    """Give the model Marian's positions, and ``epsilon`` in its layer norms."""
    for side in (model.model.encoder, model.model.decoder):
        table = side.embed_positions.weight
        table.data = torch.tensor(marian_positions(*table.shape))
    for layer in model.modules():
        if isinstance(layer, torch.nn.LayerNorm):
            layer.eps = epsilon


@torch.no_grad()
def scores(model: MarianMTModel, pairs: Any, words: int) -> list[list[float]]:
    """Log-probabilities of the target words, normalized over the first ``words`` words."""
    found = []
    for source, target in pairs:
        labels = torch.tensor([target])
        logits = model(input_ids=torch.tensor([source]), labels=labels).logits[0, :, :words]
        found.append(logits.log_softmax(-1).gather(1, labels[0, :, None])[:, 0].tolist())
    return found


def computed(model: MarianMTModel, pairs: Any, words: int) -> dict[str, Any]:
    use_marian(model, EPSILON)
    facts = {"scores": scores(model, pairs, words)}
    use_marian(model, torch.nn.LayerNorm(1).eps)
    return facts | {"scores as it is": scores(model, pairs, words)}


def from_marian(name: str) -> dict[str, Any]:
    """What HuggingFace computes with a model that Marian trained, exported by mgraph."""
    vocabs = vocabs_of(name)
    source, target = (load_vocab(path) for path in vocabs)
    with tempfile.TemporaryDirectory() as folder:
        export_huggingface(HERE / f"{name}.npz", folder, [str(path) for path in vocabs])
        model, info = MarianMTModel.from_pretrained(folder, output_loading_info=True)
        assert not any(info.values()), info
        facts = {"digest": digest({name: value.numpy() for name, value in model.state_dict().items()})}
    pairs = pairs_of(name)
    greedy = []
    for words, _ in pairs:
        ids = model.generate(torch.tensor([words]), num_beams=1, do_sample=False, max_length=24)[0].tolist()
        greedy.append(
            " ".join(target[i] for i in ids[1:] if i not in (target.eos_id, model.config.pad_token_id))
        )
    assert source.eos_id == target.eos_id == model.config.eos_token_id
    return {**facts, **computed(model, pairs, len(target)), "greedy": greedy}


def to_marian(name: str, work: Path) -> dict[str, Any]:
    """What HuggingFace computes with a random checkpoint; ``work`` gets what Marian needs to do the same."""
    model = random_checkpoint(name)
    folder = HERE / name
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    import_huggingface(folder, work / f"{name}.npz")
    generator = np.random.default_rng(1)
    sizes = RANDOM[name]
    pairs = [
        [[*generator.integers(2, size, generator.integers(1, 9)).tolist(), 0] for size in sizes]
        for _ in range(6)
    ]
    for side, (size, vocab, text) in enumerate(zip(sizes, ("src", "trg"), ("source", "target"), strict=True)):
        words = ["</s>", "<unk>", *(f"w{i}" for i in range(2, size))]
        (work / f"{name}.{vocab}").write_text("".join(f"{word}\n" for word in words))
        lines = (" ".join(words[i] for i in pair[side][:-1]) for pair in pairs)
        (work / f"{name}.{text}").write_text("".join(f"{line}\n" for line in lines))
    return {"pairs": pairs, **computed(model, pairs, sizes[1])}


def write_small_files() -> None:
    """Write files of a few arrays, for tests of the readers."""
    kinds = "f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8".split()
    arrays = {
        f"{kind} \u00e9": np.arange(i, i + 6).reshape(2, 3).astype(kind) for i, kind in enumerate(kinds)
    }
    arrays |= {"scalar": np.array(3, np.float32), "empty": np.zeros((0, 5), np.float32)}
    safetensors.numpy.save_file(arrays, HERE / "library.safetensors", {"about": 'an "e\u0301"\n'})
    table = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    tensors = {"table": table, "turned": table.T, "part": table[1:, 1:3], "half": table.half()}
    tensors |= {"bfloat16": table.bfloat16(), "ids": torch.arange(3), "parameter": torch.nn.Parameter(table)}
    torch.save(tensors, HERE / "torch.bin")
    torch.save(tensors, HERE / "torch-legacy.bin", _use_new_zipfile_serialization=False)


def main(work: Path) -> None:
    torch.set_num_threads(1)
    write_small_files()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    marian = {name: from_marian(name) for name in MODELS}
    random = {name: to_marian(name, work) for name in RANDOM}
    references = {"versions": versions, "marian": marian, "huggingface": random}
    (HERE / "references.json").write_text(json.dumps(references, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
