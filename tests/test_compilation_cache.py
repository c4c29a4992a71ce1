"""The folder of compiled programs: where it is, what it spares, and that it never stands in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from nmt import compilation_cache
from nmt.compilation_cache import VARIABLE, default_folder, processor, prune

ROOT = Path(__file__).parent.parent
SETTINGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
RUN = """
import sys, jax, mgraph, nmt
from nmt.numbers import model_dir
heard = []
jax.monitoring.register_event_listener(lambda event, **_: heard.append(event))
vocab = str(model_dir() / "vocab.spm")
translator = nmt.Translator(str(model_dir() / "model.npz"), [vocab, vocab], beam_size=2)
text = translator.translate(["forty-two"])
found = [event.rsplit("/", 1)[1] for event in heard if "/compilation_cache/" in event]
stats = mgraph.compile_stats()
print(*text, found.count("cache_hits"), found.count("cache_misses"), stats.misses, stats.read)
"""


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """What JAX is told, without telling it."""
    told: list[tuple[str, object]] = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: told.append((name, value)))
    monkeypatch.delenv(VARIABLE)
    return told


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    environment = os.environ | {VARIABLE: str(tmp_path), "PYTHONPATH": str(ROOT)}

    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", RUN], env=environment, check=True, text=True, stdout=subprocess.PIPE
        )
        return done.stdout.split()

    (first, hits, misses, made, *first_read), (second, again, compiled, *wanted) = run(), run()
    assert first == second == "zweiundvierzig"
    assert (hits, compiled) == ("0", "0") and again == misses != "0"
    assert first_read == ["0"] and wanted == [made, made] and made != "0"
    assert len([*tmp_path.glob("*/*-cache")]) == int(misses)


def test_the_default_is_among_the_users_caches(settings, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compilation_cache.use()
    folder = tmp_path / "mgraph" / "programs" / processor()
    assert settings == [*zip(SETTINGS, (str(folder), 0.0), strict=True)] and folder.is_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/to/be/ignored")
    assert default_folder() == Path("~/.cache/mgraph/programs")


def test_none_is_none(settings, monkeypatch, tmp_path: Path) -> None:
    compilation_cache.use("none")
    monkeypatch.setenv(VARIABLE, "none")
    compilation_cache.use()
    assert settings == []
    compilation_cache.use(str(tmp_path))
    assert settings[0] == (SETTINGS[0], str(tmp_path / processor()))


def test_jaxs_own_folder_stays(caplog, tmp_path: Path) -> None:
    jax.config.update(SETTINGS[0], str(tmp_path / "own"))
    try:
        compilation_cache.use(str(tmp_path / "ours"))
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
        assert f"{tmp_path / 'own'}, which JAX has already; not {tmp_path / 'ours'}" in caplog.text
        caplog.clear()
        compilation_cache.use()
        compilation_cache.use("None")
        compilation_cache.use(str(tmp_path / "own"))
        assert not caplog.text
    finally:
        jax.config.update(SETTINGS[0], None)
    assert not (tmp_path / "ours").exists()


def test_a_folder_that_cannot_be_made_is_passed_over(settings, caplog, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    compilation_cache.use(str(tmp_path / "file"))
    assert settings == [] and "no compilation cache" in caplog.text


def test_what_cannot_be_written_is_only_read(settings, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    compilation_cache.use(str(tmp_path))
    assert settings[1][0] == SETTINGS[1] and settings[1][1] > 1e6


def test_what_cannot_be_written_is_used_though_it_is_too_large(settings, monkeypatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(compilation_cache, "MOST_BYTES", 0)
    (tmp_path / processor()).mkdir()
    (tmp_path / processor() / "jit_f-0-cache").write_bytes(bytes(9))
    monkeypatch.setattr(Path, "unlink", refuse)
    compilation_cache.use(str(tmp_path))
    assert settings[0] == (SETTINGS[0], str(tmp_path / processor()))


def test_without_a_home_there_is_no_default(settings, monkeypatch, caplog) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    compilation_cache.use()
    assert settings == [] and "no compilation cache" in caplog.text


def test_the_shortest_time_of_the_user_stays(settings, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SETTINGS[1].upper(), "3")
    compilation_cache.use(str(tmp_path))
    assert [name for name, _ in settings] == [SETTINGS[0]]


def test_what_was_unused_longest_goes_first(tmp_path: Path) -> None:
    folder = tmp_path / processor()
    folder.mkdir()
    for age, name in enumerate(("new", "read", "old", "oldest")):
        path = folder / f"{name}-cache"
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 - age if name != "read" else 2e9, 1e9 - age))
    prune(tmp_path, 400)
    assert len([*folder.iterdir()]) == 4
    prune(tmp_path, 250)
    assert {path.name for path in folder.iterdir()} == {"new-cache", "read-cache"}


def test_what_is_no_program_is_never_deleted(tmp_path: Path) -> None:
    """The folder may be one in which there is much else."""
    folder = tmp_path / processor()
    others = [tmp_path / "corpus" / "train.en", tmp_path / "corpus" / "all-cache", folder / "notes"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
    (folder / "jit_f-0-cache").mkdir()
    (folder / "jit_f-1-cache").write_bytes(bytes(100))
    (folder / "jit_f-1-atime").write_bytes(bytes(8))
    prune(tmp_path, 0)
    assert {*tmp_path.glob("*/*")} == {*others, folder / "jit_f-0-cache"}
