"""``translate_documents`` with a model whose word for *and* is the separator."""

from __future__ import annotations

from pathlib import Path

import pytest

from mgraph import ArgumentError
from nmt import OptionError, Translator, translate_documents
from nmt.search.results import Translation
from tests.helpers.places import DATA, SHIPPED

MODEL = str(DATA / "search" / "left-right.npz")
VOCABS = {"source": "and: 2", "target": "und: 3"}
SEPARATOR = "[eos]"


def separated_by(separator: str, folder: Path) -> Translator:
    paths = [folder / f"{side}.yml" for side in VOCABS]
    for path, entry in zip(paths, VOCABS.values(), strict=True):
        text = (DATA / "options" / path.name).read_text()
        assert entry in text
        path.write_text(text.replace(entry, f'"{separator}": {entry[-1]}'))
    return Translator(MODEL, [str(path) for path in paths], beam_size=2)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    return separated_by(SEPARATOR, tmp_path_factory.mktemp("vocabs"))


def joined(translator: Translator, *sentences: str) -> str:
    [found] = translator.translate([f" {SEPARATOR} ".join(sentences)])
    return found


def test_sentences_are_translated_together(translator: Translator, caplog: pytest.LogCaptureFixture) -> None:
    documents = [["a cat", "a dog"], [], ["a cat\n"], [b"a cat", "a dog"]]
    together = joined(translator, "a cat", "a dog").split(f" {SEPARATOR} ")
    assert together == ["ein hund", "eine katze"], "in an order of which a sentence alone knows nothing"
    [alone] = translator.translate(["a cat"])
    assert alone == f"eine katze {SEPARATOR} der hund", "which is one line again:"
    found = translate_documents(translator, documents)
    assert found == [together, [], ["eine katze der hund"], together] and not caplog.records


def test_missing_separators_cost_only_the_context(
    translator: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    sentences = ["the cat", "the dog"]
    assert SEPARATOR not in joined(translator, *sentences)
    alone = [text.replace(f" {SEPARATOR}", "") for text in translator.translate(sentences)]
    found = translate_documents(translator, [["a cat", "a dog"], sentences])
    assert found == [["ein hund", "eine katze"], alone]
    assert "2 sentence(s) are translated one by one" in caplog.text


def test_lines_are_as_long_as_is_allowed(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    real = Translator.translate

    def translate(self: Translator, lines: list[str], **rest: object) -> list[object]:
        asked.append(list(lines))
        return real(self, lines, **rest)

    monkeypatch.setattr(Translator, "translate", translate)
    document = ["a cat", "a dog", "the cat sees the house here", "a dog"]
    assert len(translate_documents(translator, [document, document[2:]], most_words=6)[0]) == 4
    last = ["the cat sees the house here", "a dog"]
    assert asked[0] == ["a cat [eos] a dog", *last, *last]


def test_each_translation_goes_to_its_sentence(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def translate(_: Translator, lines: list[str], **rest: object) -> list[Translation]:
        """Loses the separators of three sentences, and gives one sentence two."""
        changed = {0: "{0} {1} {0}", 1: "{1}", 2: ""}
        texts = [changed[line.count(SEPARATOR)].format(SEPARATOR, line.upper()) for line in lines]
        return [Translation(number, (text,), ()) for number, text in enumerate(texts)]

    monkeypatch.setattr(Translator, "translate", translate)
    documents = [["the cat", "a dog", "the cat sees it", "a", "b", "c"], ["the cat sees the house"]]
    found = translate_documents(translator, documents, most_words=6)
    assert found == [[sentence.upper() for sentence in document] for document in documents]


def test_a_separator_is_no_part_of_another_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def translate(_: Translator, lines: list[str], **rest: object) -> list[Translation]:
        assert lines == ["a cat eos a dog"]
        return [Translation(0, ("videos, eos. Neos",), ())]

    monkeypatch.setattr(Translator, "translate", translate)
    found = translate_documents(separated_by("eos", tmp_path), [["a cat", "a dog"]], separator="eos")
    assert found == [["videos,", ". Neos"]]


@pytest.fixture
def shipped() -> Translator:
    vocab = str(SHIPPED / "vocab.spm")
    return Translator(str(SHIPPED / "model.npz"), [vocab, vocab], beam_size=1, max_length=14)


def test_lines_of_pieces_are_no_longer(shipped: Translator, caplog: pytest.LogCaptureFixture) -> None:
    """A separator takes two pieces: a space of its own comes before it."""
    [vocab] = shipped.source_vocabs
    assert len(vocab.encode("one - one")) == 2 * len(vocab.encode("one")) + 1
    assert translate_documents(shipped, [["one"] * 9], separator="-") == [["eins"] * 9]
    assert "left out" not in caplog.text


def test_sentence_piece_must_not_split_the_separator(shipped: Translator) -> None:
    with pytest.raises(OptionError, match=r"'</s>' in a text is not read as one word by SentencePieceVocab"):
        translate_documents(shipped, [["one"]], separator="</s>")


def test_the_separator_is_a_word(translator: Translator) -> None:
    with pytest.raises(OptionError, match=r"the separator '\[sep\]' is not a word of DefaultVocab"):
        translate_documents(translator, [["a cat"]], separator="[sep]")
    with pytest.raises(OptionError, match=r"the separator 'cat' is not a word of .*target\.yml"):
        translate_documents(translator, [["a cat"]], separator="cat")


def test_documents_are_lists_of_sentences(translator: Translator) -> None:
    for documents in ["a cat"], ["a dog", "a cat"]:
        with pytest.raises(ArgumentError, match=f"a document is a list of sentences, got '{documents[0]}'"):
            translate_documents(translator, documents)
    with pytest.raises(OptionError, match="translator must be a Translator, got 'model'"):
        translate_documents("model", [["a cat"]])  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="most_words must be a whole number from 0, got -1"):
        translate_documents(translator, [["a cat"]], most_words=-1)


def test_documents_have_one_text(translator: Translator) -> None:
    forced = Translator(MODEL, translator.options.vocabs, force_decode=True)
    with pytest.raises(OptionError, match="documents have one text, the models need source, prefix"):
        translate_documents(forced, [["a cat"]])
