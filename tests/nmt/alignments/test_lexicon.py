"""Lexical tables: extract_lex's counts, Marian's binary file byte for byte, and the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt import Translator
from nmt.alignments.lexicon import LinkCounts, dump_shortlist
from nmt.alignments.texts import AlignmentError, read_pharaoh
from nmt.cli import main
from nmt.search.shortlist import convert_shortlist
from nmt.text.vocabs.loading import load_vocab
from tests.helpers.places import DATA, SHIPPED

REFERENCES = DATA / "alignments"
TEXTS = [str(REFERENCES / "text.en"), str(REFERENCES / "text.de")]
LINKS = str(REFERENCES / "grow-diag.align")
VOCAB = str(SHIPPED / "vocab.spm")


def reference(name: str) -> list[bytes]:
    """The lines that Marian does not skip."""
    lines = (REFERENCES / name).read_bytes().splitlines()
    return [line for line in lines if b"NULL" not in line.split()]


def counted() -> LinkCounts:
    counts = LinkCounts()
    names = (*TEXTS, LINKS)
    for rows in zip(*(Path(name).read_bytes().splitlines() for name in names), strict=True):
        counts.add(rows[0].split(), rows[1].split(), read_pharaoh(rows[2], "links"))
    return counts


@pytest.mark.parametrize(("name", "turned"), [("lex.s2t", False), ("lex.t2s", True)])
def test_tables_are_those_of_extract_lex(name: str, turned: bool) -> None:
    assert sorted(counted().table(turned=turned)) == reference(name)


def test_the_binary_file_is_marians(tmp_path: Path) -> None:
    vocab = load_vocab(VOCAB)
    convert_shortlist([str(REFERENCES / "lex.s2t"), "10", "5"], vocab, vocab, tmp_path / "lex.bin")
    assert (tmp_path / "lex.bin").read_bytes() == (REFERENCES / "lex.bin").read_bytes()


@pytest.mark.parametrize("best", [1, 5, 1000])
def test_the_binary_file_is_the_text_converted(best: int, tmp_path: Path) -> None:
    """This includes target words that are equally probable, or unknown."""
    words = sorted({*Path(TEXTS[1]).read_text().split()})
    (tmp_path / "half.txt").write_text("\n".join(["</s>", "<unk>", *words[::2]]))
    source, target = load_vocab(VOCAB), load_vocab(tmp_path / "half.txt")
    text, converted, dumped = tmp_path / "text", tmp_path / "converted", tmp_path / "dumped"
    text.write_bytes(b"\n".join(counted().table(best=best)))
    convert_shortlist([str(text), "10", str(best)], source, target, converted)
    dump_shortlist(dumped, counted(), source, target, first=10, best=best)
    assert dumped.read_bytes() == converted.read_bytes()


def test_tables_are_pruned() -> None:
    counts = LinkCounts()
    counts.add([b"a", b"b"], [b"x", b"y", b"z"], [(0, 0), (0, 1), (1, 1)])
    counts.add([b"a", b"b"], [b"x", b"y"], [(0, 0)])
    assert list(counts.table()) == [b"x a 0.6666667", b"y a 0.3333333", b"y b 0.5000000"]
    assert list(counts.table(best=1)) == [b"x a 0.6666667", b"y b 0.5000000"]
    assert list(counts.table(threshold=0.5)) == [b"x a 0.6666667"]
    assert list(counts.table(turned=True)) == [b"a x 1.0000000", b"a y 0.3333333", b"b y 0.3333333"]
    assert list(LinkCounts().table()) == []


def test_words_with_white_space_in_them_are_left_out_of_tables() -> None:
    counts = LinkCounts()
    counts.add([b"a", b"b\tc", b"d"], [b"x", b"y", b"z\x0bz"], [(0, 0), (1, 1), (2, 2)])
    assert list(counts.table()) == [b"x a 1.0000000"]
    assert list(counts.table(turned=True)) == [b"a x 1.0000000"]


def test_a_word_called_null_is_no_word() -> None:
    counts = LinkCounts()
    counts.add([b"NULL", b"a"], [b"x", b"NULL"], [(0, 0), (1, 0), (1, 1)])
    assert list(counts.table()) == [b"x a 0.5000000"]
    assert list(counts.table(turned=True)) == [b"a x 0.5000000"]


def test_the_command_makes_all_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = ["-o", "s2t", "--output-reverse", "t2s.gz", "--best", "1000", "--quiet"]
    assert main(["shortlist", "-t", *TEXTS, "--alignments", LINKS, *made]) == 0
    assert sorted(Path("s2t").read_bytes().splitlines()) == reference("lex.s2t")
    assert Path("t2s.gz").stat().st_size > 100


def test_a_shortlist_made_from_raw_text_decodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, path in zip(("en", "de"), TEXTS, strict=True):
        pieces = Path(path).read_text()
        Path(name).write_text(
            "\n".join(line.replace(" ", "").replace("▁", " ").strip() for line in pieces.split("\n"))
        )
    dumped = ["--dump-shortlist", "lex.bin", "--first", "10", "--best", "30", "--quiet"]
    assert main(["shortlist", "-t", "en", "de", "-v", VOCAB, VOCAB, *dumped]) == 0
    assert capfd.readouterr().out == ""
    model = str(SHIPPED / "model.npz")
    translator = Translator(model, [VOCAB, VOCAB], beam_size=1, shortlist=["lex.bin"], mini_batch=8)
    assert translator.translate(["forty-two", "seven hundred nine"]) == [
        "zweiundvierzig",
        "siebenhundertneun",
    ]
    lexicon = translator.search.shortlist.lexicon
    assert 0 < len(lexicon.words) < 600 and (lexicon.first, lexicon.best) == (10, 30)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ("0-0\n", "links: ends after 1 lines, the text goes on"),
        ("0-0\n0-0\n\n", "links: goes on after 2 lines, the text ends"),
        ("0-0\n0-1\n", "links: line 2: link 0-1, but the source has 1 words and the target 1"),
        ("0-0\n0:0\n", "links: line 2: expected links such as 0-0 1-2, got '0:0'"),
    ],
)
def test_links_that_do_not_fit_are_named(links, message, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a ||| x\nb ||| y\n")
    Path("links").write_text(links)
    assert main(["shortlist", "-i", "text", "--alignments", "links"]) == 1
    assert message in capfd.readouterr().err
    with pytest.raises(AlignmentError, match="link 2-0"):
        LinkCounts().add([b"a"], [b"x"], [(2, 0)])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "standard input and pipes can be read only once"),
        (["-i", "text", "--dump-shortlist", "lex.bin"], "--dump-shortlist needs --vocabs"),
        (["-i", "text", "--alignments", "no"], "no: No such file or directory (--alignments)"),
        (["-i", "text", "--best", "0"], "--best must be at least 1"),
        (["-i", "-", "--alignments", "-"], "--input and --alignments: standard input can be read only once"),
        (["-i", "text", "-o", "text"], "--output: text is also read by --input"),
        (["-i", "text", "--output-reverse", "text"], "--output-reverse: text is also read by --input"),
        (
            ["-i", "text", "-o", "a", "--output-reverse", "./a"],
            "--output-reverse: ./a is also written by --output",
        ),
        (
            ["-i", "text", "-o", "-", "--output-reverse", "stdout"],
            "--output-reverse: stdout is also written by --output",
        ),
        (
            ["-i", "text", "--alignments", "text", "-v", "v", "v", "-o", "-", "--dump-shortlist", "-"],
            "--dump-shortlist: - is also written by --output",
        ),
        (["-i", "text", "--alignments", "text", "-v", "v", "v", "-o", "v"], "v is also read by --vocabs"),
    ],
)
def test_wrong_options_are_named(words, message, tmp_path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a ||| x\n")
    Path("v").touch()
    assert main(["shortlist", *words]) != 0
    assert message in capfd.readouterr().err
