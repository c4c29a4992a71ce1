"""The folder of compiled programs: where it is, what it saves, and that it never gets in the way."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import pytest

from mgraph.running import stored
from nmt.runtime import compilation_cache
from nmt.runtime.compilation_cache import VARIABLE, default_folder, processor, prune
from tests.helpers.fresh import python

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
    """The settings that JAX would get, without setting them."""
    told: list[tuple[str, object]] = []
    monkeypatch.setattr(jax.config, "update", lambda name, value: told.append((name, value)))
    monkeypatch.delenv(VARIABLE)
    return told


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    def run() -> list[str]:
        return python(RUN, **{VARIABLE: str(tmp_path)}).split()

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


def test_jaxs_own_folder_stays(caplog, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    jax.config.update(SETTINGS[0], str(tmp_path / "own"))
    try:
        compilation_cache.use(str(tmp_path / "ours"))
        assert jax.config.jax_compilation_cache_dir == str(tmp_path / "own")
        assert f"{tmp_path / 'own'}, which JAX has already; not {tmp_path / 'ours'}" in caplog.text
        caplog.clear()
        compilation_cache.use()
        compilation_cache.use("None")
        (tmp_path / "link").symlink_to("own")
        for same in (str(tmp_path / "own"), "own", "link"):
            compilation_cache.use(same)
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


@pytest.mark.parametrize(("inside", "ending"), [("", "-cache"), (stored.FOLDER, stored.ENDING)])
def test_what_was_unused_longest_goes_first(inside: str, ending: str, tmp_path: Path) -> None:
    folder = tmp_path / processor() / inside
    folder.mkdir(parents=True)
    for age, name in enumerate(("new", "read", "old", "oldest")):
        path = folder / f"{name}{ending}"
        path.write_bytes(bytes(100))
        os.utime(path, (1e9 - age if name != "read" else 2e9, 1e9 - age))
    prune(tmp_path, 400)
    assert len([*folder.iterdir()]) == 4
    prune(tmp_path, 250)
    assert {path.name for path in folder.iterdir()} == {f"new{ending}", f"read{ending}"}


def test_what_is_no_program_is_never_deleted(tmp_path: Path) -> None:
    """The folder may contain many other files."""
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


POSIX = pytest.mark.skipif(os.name != "posix", reason="modes and owners of POSIX")


@POSIX
def test_folders_are_made_for_the_user_alone(settings, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        compilation_cache.use(str(tmp_path / "new" / "cache"))
    finally:
        os.umask(before)
    made = (tmp_path / "new", tmp_path / "new" / "cache", tmp_path / "new" / "cache" / processor())
    assert [path.stat().st_mode & 0o777 for path in made] == [0o700] * 3
    assert settings[0] == (SETTINGS[0], str(made[-1]))


@POSIX
@pytest.mark.parametrize("open_", ["above", "above/cache", f"above/cache/{processor()}"])
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o707])
def test_what_others_can_write_to_is_passed_over(
    settings, monkeypatch, caplog, tmp_path: Path, open_: str, mode: int
) -> None:
    """A warning says what to do; neither a link nor an existing folder gets around the check."""
    monkeypatch.setattr(compilation_cache, "_is_of_one", lambda state: False)
    (tmp_path / open_).mkdir(parents=True)
    (tmp_path / open_).chmod(mode)
    (tmp_path / "link").symlink_to(tmp_path / "above" / "cache")
    for name in ("above/cache", "link"):
        caplog.clear()
        compilation_cache.use(str(tmp_path / name))
        assert settings == []
        cure = "go-w" if open_ == "above" else "700"
        assert f"others can write to {tmp_path / open_}, so they could put programs" in caplog.text
        assert f"`chmod {cure} {tmp_path / open_}`" in caplog.text and "--compilation-cache" in caplog.text
    (tmp_path / open_).chmod(0o700)
    compilation_cache.use(str(tmp_path / "link"))
    assert settings[0] == (SETTINGS[0], str(tmp_path / "above" / "cache" / processor()))


@POSIX
def test_a_link_within_the_cache_is_followed_first(settings, caplog, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / processor()).symlink_to("open")
    compilation_cache.use(str(tmp_path))
    assert settings == [] and f"others can write to {tmp_path / 'open'}" in caplog.text


@POSIX
def test_below_a_sticky_folder_it_may_be_but_not_there_itself(settings, caplog, tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    compilation_cache.use(str(tmp_path / "tmp"))
    assert settings == [] and "others can write to" in caplog.text
    compilation_cache.use(str(tmp_path / "tmp" / "mine"))
    assert settings[0] == (SETTINGS[0], str(tmp_path / "tmp" / "mine" / processor()))


@POSIX
@pytest.mark.parametrize("theirs", ["above", "above/cache", f"above/cache/{processor()}"])
def test_somebody_elses_is_passed_over(settings, monkeypatch, caplog, tmp_path: Path, theirs: str) -> None:
    """This holds for root, too, who could read and write it."""
    (tmp_path / theirs).mkdir(parents=True)
    real = Path.stat
    where = tmp_path / theirs

    def stat(path: Path, **arguments: bool) -> os.stat_result:
        state = real(path, **arguments)
        return os.stat_result((*state[:4], 12345, *state[5:10])) if path == where else state

    monkeypatch.setattr(Path, "stat", stat)
    compilation_cache.use(str(tmp_path / "above" / "cache"))
    assert settings == []
    assert f"{where} belongs to user 12345, who could put programs there for you, user" in caplog.text


@POSIX
def test_a_private_group_is_nobody_else(settings, caplog, tmp_path: Path) -> None:
    """Debian and Fedora give each user one, so ``~/.cache`` may be open to it."""
    pwd, grp = pytest.importorskip("pwd"), pytest.importorskip("grp")
    user = pwd.getpwuid(os.geteuid())
    if grp.getgrgid(user.pw_gid)[0] != user.pw_name or grp.getgrgid(user.pw_gid)[3]:
        pytest.skip("this user has no private group")
    os.chown(tmp_path, -1, user.pw_gid)
    tmp_path.chmod(0o770)
    compilation_cache.use(str(tmp_path))
    assert settings[0][0] == SETTINGS[0] and not caplog.text
