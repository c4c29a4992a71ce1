"""HuggingFace's MarianMT and Marian: what each computes with the other's models; conversion both ways."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from layers import UnsupportedOptionError
from mgraph import ArgumentError, ModelFileError, ParameterError, Type
from mgraph.files.parameter_files import load_parameters, save_parameters
from mgraph.files.safetensors import read_safetensors, write_safetensors
from nmt import Translator, load_model, load_vocab
from nmt.cli import main
from nmt.files.huggingface import (
    ConversionError,
    TorchCheckpoint,
    export_huggingface,
    folders,
    from_huggingface,
    import_huggingface,
    to_huggingface,
)
from nmt.files.huggingface.checkpoint import (
    BIAS,
    LAYERS,
    MARIAN_BIAS,
    MARIAN_OLD_OUTPUT,
    MARIAN_OUTPUT,
    MARIAN_TABLES,
    OUTPUT,
    POSITIONS,
    SHARED,
    TABLES,
    Kind,
    huggingface_positions,
)
from nmt.search.scoring import score
from nmt.settings import DECODE
from nmt.settings.model_options import parse_model_options
from tests.helpers.checkpoints import MODELS, RANDOM, digest, marian_positions, pairs_of, vocabs_of
from tests.helpers.places import DATA, ROOT

HERE = DATA / "conversion"
NUMBERS = ROOT / "nmt" / "numbers" / "model"
REFERENCES = json.loads((HERE / "references.json").read_text())
MARIAN, HUGGINGFACE = REFERENCES["marian"], REFERENCES["huggingface"]


def word_scores(path: Path) -> list[list[float]]:
    """Marian's scores, with five decimals."""
    lines = path.read_text().splitlines()
    return [[float(word) for word in line.split("WordScores=")[1].split()] for line in lines]


def compare(scores: Sequence[Any], others: Sequence[Sequence[float]], tolerance: float) -> None:
    assert len(scores) == len(others)
    for row, other in zip(scores, others, strict=True):
        np.testing.assert_allclose(row, other, rtol=0, atol=tolerance)


def checkpoint(name: str) -> TorchCheckpoint:
    folder = HERE / name
    return TorchCheckpoint(
        json.loads((folder / "config.json").read_text()),
        dict(read_safetensors(folder / "model.safetensors").arrays),
    )


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize("name", MODELS)
def test_a_marian_model_computes_the_same_at_huggingface(name: str) -> None:
    """The digest shows that HuggingFace loaded what we export; it computed what Marian prints."""
    tensors = to_huggingface(HERE / f"{name}.npz").tensors
    assert digest(tensors) == MARIAN[name]["digest"]
    ours = [words for _, words, _ in score(load_model(HERE / f"{name}.npz"), pairs_of(name))]
    compare(ours, MARIAN[name]["scores"], 1e-5)
    compare(ours, word_scores(HERE / f"{name}.txt"), 1.1e-5)
    compare(ours, MARIAN[name]["scores as it is"], 1e-4)


def test_what_is_no_path_is_named() -> None:
    model = load_model(HERE / "all.npz")
    for function in (to_huggingface, load_model):
        with pytest.raises(ArgumentError, match="expected the path of a file, got a Model"):
            function(model)  # type: ignore[arg-type, operator]


def test_greedy_translations_are_huggingfaces() -> None:
    vocabs = [str(path) for path in vocabs_of("separate")]
    translator = Translator(str(HERE / "separate.npz"), vocabs, beam_size=1, mini_batch=8)
    source = (vocabs_of("separate")[0].parent / "source.txt").read_text().splitlines()
    assert translator.translate(source) == MARIAN["separate"]["greedy"]


@pytest.mark.parametrize("name", RANDOM)
def test_a_checkpoint_of_huggingface_computes_the_same_here(name: str, tmp_path: Path) -> None:
    import_huggingface(HERE / name, tmp_path / "model.npz")
    model = load_model(tmp_path / "model.npz")
    assert model.dim_vocabs == RANDOM[name]
    ours = [words for _, words, _ in score(model, HUGGINGFACE[name]["pairs"])]
    compare(ours, HUGGINGFACE[name]["scores"], 1e-5)
    compare(ours, word_scores(HERE / f"{name}.txt"), 1.1e-5)
    compare(ours, HUGGINGFACE[name]["scores as it is"], 1e-4)


# ---------------------------------------------------------------- there and back


@pytest.mark.parametrize("name", MODELS)
def test_a_marian_model_comes_back_byte_for_byte(name: str, tmp_path: Path) -> None:
    vocabs = [str(path) for path in vocabs_of(name)]
    export_huggingface(HERE / f"{name}.npz", tmp_path / "folder", vocabs)
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert config["share_encoder_decoder_embeddings"] == (name in ("all", "source"))
    assert config["tie_word_embeddings"] == (name in ("all", "target"))
    import_huggingface(tmp_path / "folder", tmp_path / "model.npz")
    assert (tmp_path / "model.npz").read_bytes() == (HERE / f"{name}.npz").read_bytes()


@pytest.mark.parametrize("name", RANDOM)
def test_a_checkpoint_comes_back(name: str, tmp_path: Path) -> None:
    config, tensors = checkpoint(name)
    params, text = from_huggingface(config, tensors)
    save_parameters(tmp_path / "model.npz", params, text)
    again = to_huggingface(tmp_path / "model.npz").tensors
    rows = RANDOM[name]
    if name == "hf-source":  # without tie_word_embeddings HuggingFace shares nothing and ignores this
        del tensors["model.shared.weight"]
    for key, array in tensors.items():
        if "embed_tokens" in key or key in ("model.shared.weight", "lm_head.weight"):
            count = rows[0] if "encoder" in key else rows[1]
            assert np.array_equal(again[key][:count], array[:count]), key
            assert not again[key][count:].any()
        elif key == "final_logits_bias":
            assert np.array_equal(again[key][:, : rows[1]], array[:, : rows[1]])
            assert (again[key][:, rows[1] :] == -1e4).all()
        else:
            assert np.array_equal(again[key], array), key


def test_the_shipped_model_with_its_tokenizer(tmp_path: Path) -> None:
    """Converted by ``mgraph convert``; the pieces come back as one vocabulary, and the model translates."""
    vocab, folder = str(NUMBERS / "vocab.spm"), tmp_path / "folder"
    command = ["convert", "-f", str(NUMBERS / "model.npz"), "-t", str(folder)]
    assert main([*command, "--export-as", "huggingface", "-V", vocab, vocab, "--quiet"]) == 0
    words = json.loads((folder / "vocab.json").read_text())
    assert len(words) == 201 and words["</s>"] == 0 and words["<pad>"] == 200
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["bad_words_ids"] == [[200], [words["<unk>"]]]
    assert not (folder / "target_vocab.json").exists()
    assert (folder / "source.spm").read_bytes() == Path(vocab).read_bytes()
    generation["num_beams"] = 4
    (folder / "generation_config.json").write_text(json.dumps(generation))

    assert main(["convert", "-f", str(folder), "-t", str(tmp_path / "model.npz"), "--quiet"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"folder", "model.npz", "model.npz.decoder.yml", "vocab.spm"}
    translator = Translator.from_dir(tmp_path)
    assert translator.options.beam_size == 4 and translator.options.normalize == 1
    assert translator.translate(["seventy-two thousand"]) == ["zweiundsiebzigtausend"]


def test_a_tokenizer_of_which_a_part_is_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One SentencePiece model of two is of no use, and an empty word list is no vocabulary."""
    folder, target = tmp_path / "folder", tmp_path / "out" / "model.npz"
    export_huggingface(NUMBERS / "model.npz", folder, [str(NUMBERS / "vocab.spm")] * 2)
    (folder / "source.spm").unlink()
    target.parent.mkdir()
    import_huggingface(folder, target)
    assert "no source.spm, so the model translates only lines that are split into its pieces" in caplog.text
    assert Translator.from_dir(target.parent).translate(["▁six"]) == ["▁sechs"]
    (folder / "vocab.json").write_text("{}")
    with pytest.raises(ConversionError, match=r"vocab.json: expected words and their ids"):
        import_huggingface(folder, tmp_path / "model.npz")


def test_the_name_of_a_model_may_need_quotes(tmp_path: Path) -> None:
    export_huggingface(NUMBERS / "model.npz", tmp_path / "folder", [str(NUMBERS / "vocab.spm")] * 2)
    for name in ("best #2.npz", "a: b.npz"):
        import_huggingface(tmp_path / "folder", tmp_path / name)
        found = DECODE.from_config(str(tmp_path / f"{name}.decoder.yml"))
        assert found["models"] == (str(tmp_path / name),)


def test_a_folder_that_cannot_be_written_whole_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, content: object) -> None:
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(folders, "_write_json", full)
    with pytest.raises(OSError, match="No space left on device"):
        export_huggingface(NUMBERS / "model.npz", tmp_path / "new" / "folder")
    assert not [*tmp_path.iterdir()]


def test_vocabularies_of_words(tmp_path: Path) -> None:
    """Two vocabularies of unequal sizes, with SentencePiece models to split for them, as OPUS-MT has them."""
    vocabs = [*map(str, vocabs_of("separate")), *[str(NUMBERS / "vocab.spm")] * 2]
    folder, target = tmp_path / "folder", tmp_path / "out" / "model.npz"
    export_huggingface(HERE / "separate.npz", folder, vocabs)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert settings["separate_vocabs"] is True
    sides = [json.loads((folder / name).read_text()) for name in ("vocab.json", "target_vocab.json")]
    assert sides[0]["<pad>"] == sides[1]["<pad>"] == max(load_model(HERE / "separate.npz").dim_vocabs)
    target.parent.mkdir()
    import_huggingface(folder, target)
    names = {path.name for path in target.parent.iterdir()}
    pieces = {"source.spm", "target.spm"}
    assert names == {"model.npz", "model.npz.decoder.yml", "src.vocab.yml", "trg.vocab.yml"} | pieces
    for name, path in zip(("src", "trg"), vocabs, strict=False):
        written = (target.parent / f"{name}.vocab.yml").read_text().split("\n")
        assert sorted(written) == sorted(Path(path).read_text().split("\n") + [""])
    assert Translator.from_dir(target.parent).options.vocabs


def test_words_added_to_the_tokenizer(tmp_path: Path) -> None:
    """``add_tokens`` writes them to their own file, with ids after ``<pad>``; a taken id stays as it is."""
    folder = tmp_path / "folder"
    config, tensors = to_huggingface(HERE / "all.npz")
    export_huggingface(HERE / "all.npz", folder, [str(path) for path in vocabs_of("all")])
    for name in (SHARED, BIAS):
        axis = int(name == BIAS)
        tensors[name] = np.append(tensors[name], np.take(tensors[name], [5], axis), axis)
    config |= {"vocab_size": 37, "decoder_vocab_size": 37}
    stored = {name: tensors[name] for name in tensors if name not in (*TABLES, OUTPUT)}
    write_safetensors(folder / "model.safetensors", stored)
    (folder / "config.json").write_text(json.dumps(config))
    for added in ({}, {">>fra<<": 36, "taken": 5, "<pad>": 36}):
        (folder / "added_tokens.json").write_text(json.dumps(added))
        target = tmp_path / f"with {len(added)}" / "model.npz"
        target.parent.mkdir()
        import_huggingface(folder, target)
        vocab = load_vocab(str(target.parent / "vocab.yml"))
        assert (len(vocab), vocab["<pad>"], vocab["taken"]) == (37 if added else 36, 35, vocab.unk_id)
    assert vocab[">>fra<<"] == 36


def test_control_characters_are_no_output(tmp_path: Path) -> None:
    """As in Marian's search, byte pieces of control characters do not come out."""
    path = str(DATA / "vocab" / "bytes.spm")
    vocab = load_vocab(path)
    assert len(vocab.control_ids) == 32
    parameters, text = load_parameters(HERE / "all.npz", Type.float32)
    size = len(vocab)
    text = str(text).replace("- 35", f"- {size}")
    parameters["Wemb"] = np.zeros((size, parameters["Wemb"].shape[1]), np.float32)
    parameters[MARIAN_BIAS] = np.zeros((1, size), np.float32)
    save_parameters(tmp_path / "model.npz", parameters, text)
    export_huggingface(tmp_path / "model.npz", tmp_path / "folder", [path, path])
    generation = json.loads((tmp_path / "folder" / "generation_config.json").read_text())
    assert generation["bad_words_ids"] == [[i] for i in (size, vocab.unk_id, *vocab.control_ids)]


def test_another_vocabulary_is_not_overwritten(tmp_path: Path) -> None:
    export_huggingface(HERE / "all.npz", tmp_path / "folder", [str(path) for path in vocabs_of("all")])
    (tmp_path / "vocab.yml").write_text("mine: 0\n")
    with pytest.raises(ConversionError, match="vocab.yml exists already, with other contents"):
        import_huggingface(tmp_path / "folder", tmp_path / "model.npz")
    assert not (tmp_path / "model.npz").exists()


# ---------------------------------------------------------------- what differs


def test_positions_are_marians_or_a_warning_says_so(caplog: pytest.LogCaptureFixture) -> None:
    config, tensors = checkpoint("hf-all")
    for name in POSITIONS:
        tensors[name] = marian_positions(64, 16).astype(np.float16)
    with caplog.at_level(logging.WARNING):
        from_huggingface(config, tensors)
        assert not caplog.messages
        tensors[POSITIONS[0]] = huggingface_positions(64, 16)
        from_huggingface(config, tensors)
    assert len(caplog.messages) == 1 and "HuggingFace's positions become Marian's" in caplog.text
    tensors[POSITIONS[0]] = np.zeros((64, 16), np.float32)
    with pytest.raises(ConversionError, match=r"encoder.embed_positions.weight: expected .* training"):
        from_huggingface(config, tensors)


def test_a_start_that_is_not_zeros(caplog: pytest.LogCaptureFixture) -> None:
    config, tensors = checkpoint("hf-all")
    shared = tensors["model.shared.weight"].copy()
    shared[23] = 0.5
    tensors["model.shared.weight"] = shared
    with pytest.raises(ConversionError, match="starts with the row 23 .* up to 0.5, .* --zero-start"):
        from_huggingface(config, tensors)
    params, _ = from_huggingface(config, tensors, zero_start=True)
    assert np.array_equal(params["Wemb"], shared[:23]) and "--zero-start" in caplog.text


def test_pad_within_the_words_stays() -> None:
    """Words that HuggingFace's users add come after ``<pad>``."""
    config, tensors = checkpoint("hf-all")
    more = {
        "model.shared.weight": np.ones((2, 16), np.float32),
        "final_logits_bias": np.ones((2, 1), np.float32),
    }
    tensors["model.shared.weight"] = np.concatenate(
        [tensors["model.shared.weight"], more["model.shared.weight"]]
    )
    bias = tensors["final_logits_bias"]
    tensors["final_logits_bias"] = np.concatenate([bias.T, more["final_logits_bias"]]).T
    config |= {"vocab_size": 26, "decoder_vocab_size": 26}
    params, text = from_huggingface(config, tensors)
    assert parse_model_options(text, "").dim_vocabs == (26, 26) and params["Wemb"].shape == (26, 16)


def test_a_configuration_that_no_longer_fits(caplog: pytest.LogCaptureFixture) -> None:
    config, tensors = to_huggingface(HERE / "all.npz")
    text = config["marian_model_yml"]
    assert from_huggingface(config, tensors).text == text
    tensors = {name: array for name, array in tensors.items() if "decoder.layers.1" not in name}
    config |= {"activation_function": "relu"}
    found = from_huggingface(config, tensors)
    assert "marian_model_yml no longer fits" in caplog.text
    options = parse_model_options(found.text, "")
    assert options.transformer_ffn_activation == "relu" and options.dim_vocabs == (35, 35)
    assert options.tied_embeddings_all and options.version.startswith("mgraph ")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("type: transformer", "type: s2s", "type: HuggingFace's MarianMT has only 'transformer'"),
        (
            "postprocess: dan",
            "postprocess: da",
            "transformer-postprocess: .* only 'an' or 'dan', the model has 'da'",
        ),
        ('preprocess: ""', "preprocess: n", "transformer-preprocess: .* only '' or 'd', the model has 'n'"),
        ("autoreg: self-attention", "autoreg: rnn", "transformer-decoder-autoreg: .* the model has 'rnn'"),
        ("ffn-activation: swish", "ffn-activation: prelu", "transformer-ffn-activation: .* or 'sigmoid'"),
        ("tied-layers:\n  []", "tied-layers: [1]", r"transformer-tied-layers: .* only \[\], .* has \[1\]"),
        ("right-left: false", "right-left: true", "right-left: .* only False, the model has True"),
        ("ffn-depth: 2\n", "ffn-depth: 3\n", "transformer-ffn-depth: .* only 2, the model has 3"),
    ],
)
def test_what_huggingface_cannot_say(old: str, new: str, message: str, tmp_path: Path) -> None:
    params, text = load_parameters(HERE / "all.npz", Type.float32)
    assert text and old in text
    save_parameters(tmp_path / "model.npz", params, text.replace(old, new))
    with pytest.raises(UnsupportedOptionError, match=message):
        export_huggingface(tmp_path / "model.npz", tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_a_language_model_with_vocabularies_is_said_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOptionError, match="type: .* the model has 'lm'"):
        export_huggingface(DATA / "search" / "lm.npz", tmp_path / "folder", [str(NUMBERS / "vocab.spm")] * 2)


def test_a_vocabulary_of_both_sides_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = tmp_path / "words.yml"
    words.write_text("</s>: 0\n<unk>: 1\n" + "".join(f"w{number}: {number}\n" for number in range(2, 99)))
    export_huggingface(HERE / "all.npz", tmp_path / "folder", [str(words), str(words)])
    assert sum("WRONG VOCABULARY?" in message for message in caplog.messages) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "bart"}, "model_type: expected 'marian'; got 'bart'"),
        ({"scale_embedding": False}, "scale_embedding: expected true"),
        ({"activation_function": "quick_gelu"}, "activation_function: expected one of swish, relu, gelu"),
        ({"activation_function": ["relu"]}, "activation_function: expected one of swish, relu, gelu"),
        ({"decoder_attention_heads": 4}, "decoder_attention_heads: expected 2, as in the encoder"),
        ({"encoder_layers": "2"}, "encoder_layers: expected a whole number from 1; got '2'"),
        ({"encoder_layers": 3}, "the checkpoint has no model.encoder.layers.1.self_attn.q_proj.weight"),
        (
            {"decoder_layers": 1},
            r"decoder_layers: 1, but the .* 26 more .*: model.decoder.layers.1.encoder_attn",
        ),
        ({"vocab_size": 20}, "vocab_size: 20, but the table has 24 rows"),
        ({"decoder_start_token_id": 99}, "decoder_start_token_id: expected an id from 0 to 23, got 99"),
        ({"decoder_start_token_id": 3}, "starts with the row 3"),
    ],
)
def test_what_marian_cannot_say(change: dict[str, Any], message: str) -> None:
    config, tensors = checkpoint("hf-all")
    with pytest.raises(ConversionError, match=message):
        from_huggingface(config | change, tensors)


@pytest.mark.parametrize(("name", "stored"), [("hf-all", SHARED), ("hf-target", TABLES[1])])
def test_a_tied_table_has_any_one_of_its_names(name: str, stored: str) -> None:
    """``safetensors.torch.save_model`` keeps the name that comes first, ``lm_head.weight``."""
    config, tensors = checkpoint(name)
    expected = from_huggingface(config, tensors).parameters
    table = tensors.pop(stored)
    for other in (OUTPUT, *(TABLES if stored == SHARED else ())):
        assert other not in tensors
        found = from_huggingface(config, tensors | {other: table}).parameters
        assert found.keys() == expected.keys()
        assert all(np.array_equal(found[key], expected[key]) for key in expected)
    with pytest.raises(ConversionError, match=r"has no model\.shared\.weight"):
        from_huggingface(config, tensors)


def test_arrays_that_do_not_fit() -> None:
    config, tensors = checkpoint("hf-all")
    with pytest.raises(ParameterError, match=r"decoder_l2_ffn_W2 \(24, 16\), expected \(12, 16\)"):
        from_huggingface(config | {"decoder_ffn_dim": 12}, tensors)
    with pytest.raises(ConversionError, match="the tables that it ties differ"):
        from_huggingface(config, tensors | {"lm_head.weight": tensors["model.shared.weight"] + 1})
    with pytest.raises(ConversionError, match=r"the checkpoint has no model.shared.weight.*it has 1 arrays"):
        from_huggingface(config, {"weight": np.zeros(3)})


def test_folders(tmp_path: Path) -> None:
    """Parts of a model, files of PyTorch, and folders with neither."""
    shutil.copytree(HERE / "hf-all", tmp_path / "a")
    whole = tmp_path / "a" / "model.safetensors"
    arrays = read_safetensors(whole).arrays
    names = sorted(arrays)
    parts = {"x.safetensors": names[:9], "y.safetensors": names[9:]}
    for part, held in parts.items():
        write_safetensors(tmp_path / "a" / part, {name: arrays[name] for name in held})
    whole.unlink()
    index = tmp_path / "a" / "model.safetensors.index.json"
    index.write_text(
        json.dumps({"weight_map": {name: part for part, held in parts.items() for name in held}})
    )
    import_huggingface(tmp_path / "a", tmp_path / "a.npz")
    import_huggingface(HERE / "hf-all", tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()

    index.write_text('{"weight_map": {"a": "../x.safetensors"}}')
    with pytest.raises(ConversionError, match="expected a weight_map from names to files"):
        import_huggingface(tmp_path / "a", tmp_path / "c.npz")
    index.unlink()
    with pytest.raises(ConversionError, match=r"^[^:]*: expected model.safetensors or pytorch_model.bin; it"):
        import_huggingface(tmp_path / "a", tmp_path / "c.npz")
    shutil.copy(HERE / "torch.bin", tmp_path / "a" / "pytorch_model.bin")
    with pytest.raises(ConversionError, match="the checkpoint has no model.shared.weight"):
        import_huggingface(tmp_path / "a", tmp_path / "c.npz")
    (tmp_path / "a" / "config.json").write_text("[]")
    with pytest.raises(ConversionError, match="config.json: expected an object, got list"):
        import_huggingface(tmp_path / "a", tmp_path / "c.npz")
    whole.write_bytes(b"")
    (tmp_path / "a" / "config.json").write_text("{}")
    with pytest.raises(ModelFileError, match="not a safetensors file"):
        import_huggingface(tmp_path / "a", tmp_path / "c.npz")
    assert not (tmp_path / "c.npz").exists()


def test_tokenizers_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="--vocabs: expected the vocabularies of source and target"):
        export_huggingface(HERE / "all.npz", tmp_path / "folder", ["one.yml"])
    (tmp_path / "a.yml").write_text("eos: 0\nUNK: 1\n")
    with pytest.raises(ConversionError, match="one name for </s> and <unk> on both sides"):
        vocabs = [str(tmp_path / "a.yml"), str(vocabs_of("all")[1])]
        export_huggingface(HERE / "all.npz", tmp_path / "folder", vocabs)
    assert not (tmp_path / "folder").exists()


def markdown() -> str:
    """The map as the table of ``docs/huggingface.md``."""
    rows = [
        ("`Wemb` (tied-embeddings-all, -src)", f"`{SHARED}`, `{TABLES[0]}`, `{TABLES[1]}`", Kind.SAME),
        (f"`{MARIAN_TABLES[0]}`", f"`{TABLES[0]}`", Kind.SAME),
        (f"`{MARIAN_TABLES[1]}`", f"`{TABLES[1]}`", Kind.SAME),
        (f"`{MARIAN_OUTPUT}`; tied: the target's table", f"`{OUTPUT}`", Kind.SAME),
        (f"`{MARIAN_OLD_OUTPUT}` (old files)", f"`{OUTPUT}`", Kind.MATRIX),
        (f"`{MARIAN_BIAS}`", f"`{BIAS}`", Kind.SAME),
        ("none: computed", f"`{POSITIONS[0]}`, `{POSITIONS[1]}`", Kind.SAME),
    ]
    for stack, names in LAYERS.items():
        for name in names:
            other = f"`model.{stack}.layers.N-1.{name.huggingface}`"
            rows.append((f"`{stack}_lN_{name.marian}`", other, name.kind))
    lines = [f"| {marian} | {other} | {kind.value} |" for marian, other, kind in rows]
    return "\n".join(["| Marian | HuggingFace | array |", "| --- | --- | --- |", *lines]) + "\n"


def test_the_table_of_names_is_in_the_docs() -> None:
    assert (ROOT / "docs" / "huggingface.md").read_text().endswith(markdown())
