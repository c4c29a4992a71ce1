"""Vocabularies of lemmas and factors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nmt.text.vocabs.base import VocabError, WordIdError
from nmt.text.vocabs.factored import FactoredVocab
from nmt.text.vocabs.loading import factors_of, load_vocab
from tests.helpers.places import DATA

FILE = DATA / "factored" / "source.fsv"
LINES = (DATA / "factored" / "source.txt").read_text().splitlines()
LEMMAS = "</s> : _lemma\n<unk> : _lemma\n"


@pytest.fixture(scope="module")
def vocab() -> FactoredVocab:
    found = load_vocab(FILE, 107)
    assert isinstance(found, FactoredVocab)
    return found


def test_sizes_are_those_that_marian_logs(vocab: FactoredVocab) -> None:
    assert vocab.groups.sizes == (16, 3, 2, 2) and len(vocab) == vocab.groups.words == 107
    assert factors_of([str(FILE), "target.yml"]) == (vocab.groups, None)
    assert factors_of(["source.yml", "target.yml"]) == ()


def test_spaces_make_no_words(vocab: FactoredVocab) -> None:
    assert vocab.encode(" cat|ca|gn  cat|ca|gn ") == [*[vocab["cat|ca|gn"]] * 2, vocab.eos_id]


def test_a_group_that_no_lemma_needs_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "v.fsv").write_text(f"_lemma\n_c\n{LEMMAS}")
    assert len(load_vocab(tmp_path / "v.fsv")) == 2


def test_words_come_back(vocab: FactoredVocab) -> None:
    for line in LINES:
        ids = vocab.encode(line)
        assert ids[-1] == vocab.eos_id
        assert vocab.decode(ids) == line.replace("nonsense", "<unk>")
    assert vocab["a|ci"] == vocab[b"a|ci"] and vocab[vocab["cat|gn|ca"]] == "cat|ca|gn"
    assert vocab.decode([vocab.eos_id], ignore_eos=False) == "</s>"
    with pytest.raises(WordIdError, match=r"source\.fsv: expected an id from 0 to 106, got -1"):
        vocab.decode([-1])


@pytest.mark.parametrize("word", ["cat||ca|gn", "cat|ca|gn|", "|cat|ca|gn", "||cat|gn||ca|"])
def test_separators_without_a_factor(word: str, vocab: FactoredVocab) -> None:
    assert vocab.decode(vocab.encode(word)) == "cat|ca|gn"


def test_words_have_numbers_lemma_by_lemma(vocab: FactoredVocab) -> None:
    words = "</s> <unk> a|cn a|ci a|ca and|cn|gn|xa and|cn|gn|xb and|cn|gr|xa".split()
    assert [vocab[number] for number in range(8)] == words
    assert vocab["the|ca|gr|xb"] == 106 and vocab.groups.factors[106].tolist() == [15, 2, 1, 1]
    assert [vocab[vocab[number]] for number in range(107)] == list(range(107))


def test_the_text_that_marian_scores(tmp_path: Path) -> None:
    factors = {"ci": "c", "ca": "c", "cn": "c", "gl+": "gl", "gl-": "gl", "gr+": "gr", "gr-": "gr"}
    lines = ["_lemma", "_c", "_gl", "_gr", *(f"{factor} : _{name}" for factor, name in factors.items())]
    lemmas = "haus", "\u2581tür", "\\x2e", "\\u00fcber", "ab", "weiß", "ßen", "\u0394\u03a3"
    lines += [LEMMAS.strip(), *(f"{lemma} : _lemma _has_c _has_gl _has_gr" for lemma in lemmas)]
    (tmp_path / "v.fsv").write_text("\n".join(lines))
    vocab = load_vocab(tmp_path / "v.fsv")
    assert isinstance(vocab, FactoredVocab)
    line = "\\u00fcber|ci|-|- \u2581tür|ca|-|- haus|cn|-|+ ab|ca|-|- \\x2e|cn|+|- </s> ab|cn|-|-"
    line = re.sub(r"[|]([+-])[|]([+-])", r"|gl\1|gr\2", line)
    assert vocab.surface(vocab.encode(line)) == "Über TÜR hausAB."
    line = " ".join(f"{word}|gl-|gr-" for word in ("weiß|ca", "ßen|ci", "\u0394\u03a3|ci"))
    assert vocab.surface(vocab.encode(line)) == "WEIß ßen \u0394\u03c3"  # as Marian prints them


@pytest.mark.parametrize("word", ["horse", "horse|ca", "a|cz", "a", "a|ca|gn", "", "|", "|ca", "</s>|ca"])
def test_what_is_unknown(word: str, vocab: FactoredVocab) -> None:
    assert vocab[word] == vocab.unk_id


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs the lemma </s>, without factors"),
        ("_c\n", "1: the first group must be _lemma, got '_c'"),
        ("_lemma\n_lemma\n", "2: a group is declared twice"),
        ("_lemma x\n", "1: expected one name of a group"),
        ("_lemma\n_has_c\n", "2: there is no group _c"),
        ("_lemma\n_has_c and more\n", "2: there is no group _c"),
        ("_lemma\n_c <-> _lemma\n", "2: there is no group _c"),
        ("_lemma\nword\n", "2: expected 'WORD : _GROUP _has_GROUP ...', got 'word'"),
        ("_lemma\nword : _c\n", "2: there is no group _c"),
        ("_lemma\na : _lemma\na : _lemma\n", "3: 'a' appears twice"),
        ("_lemma\n_c\na : _lemma _has_d\n", "3: only lemmas have factors, of groups that are declared"),
        ("_lemma\n_c\nx : _c\n", "3: the name of a factor of _c must begin with 'c'"),
        ("_lemma\n_c\n_cd\ncd : _c\n", "4: a factor of _c must not begin with the name of a later group"),
        ("_lemma\n_c\n_d\ndx : _d\ncx : _c\n", "5: factors must be listed group by group"),
        (
            f"_lemma\n_c\na : _lemma _has_c\n{LEMMAS}",
            "some lemmas need a factor of the group _c, which has none",
        ),
        ("_lemma\n_c\ncx : _c\n</s> : _lemma _has_c\n<unk> : _lemma\n", "needs the lemma </s>, without"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "v.fsv").write_text(text)
    with pytest.raises(VocabError) as error:
        load_vocab(tmp_path / "v.fsv")
    assert message in str(error.value) and str(error.value).startswith(f"{tmp_path}/v.fsv:")


def test_a_small_file_of_many_words(tmp_path: Path) -> None:
    groups = "abcdefghij"
    factors = "".join(f"{group}{number} : _{group}\n" for group in groups for number in range(9))
    has = " ".join(f"_has_{group}" for group in groups)
    declared = "".join(f"_{group}\n" for group in groups)
    (tmp_path / "v.fsv").write_text(f"_lemma\n{declared}{factors}{LEMMAS}x : _lemma {has}\n")
    with pytest.raises(
        VocabError, match=r"3,486,784,403 words .* with 10 groups of factors at most 3,050,402"
    ):
        load_vocab(tmp_path / "v.fsv")


def test_what_does_not_fit() -> None:
    with pytest.raises(VocabError, match=r"107 words of lemmas and factors, but the model has 5"):
        load_vocab(FILE, 5)
