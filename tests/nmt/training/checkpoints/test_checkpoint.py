"""Checkpoints: Marian's files byte for byte.

``data/checkpoint`` has checkpoints that Marian made; ``check_with_marian.py`` there has it resume from ours.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np
import pytest

from mgraph import ModelFileError, ParameterError
from mgraph.files.items import MODEL_YML, read_npz, write_npz
from nmt.files import load_model
from nmt.settings import OptionError
from nmt.settings.training import TrainOptions
from nmt.text.order import MersenneTwister
from nmt.training.checkpoints.checkpoint import (
    Checkpoint,
    load_checkpoint,
    may_replace,
    save_best,
    save_for_script,
)
from nmt.training.checkpoints.moments import Moments
from nmt.training.learning.optimizers import optimizer_of
from nmt.training.update import LearnerState
from tests.helpers.saved import DATA, contents, equal, loaded, save

NAMES = sorted(path.parent.name for path in DATA.glob("*/model.npz"))
FILES = [f"model.npz{ending}" for ending in ("", ".decoder.yml", ".optimizer.npz", ".progress.yml", ".yml")]


@pytest.mark.parametrize("name", NAMES)
def test_marians_checkpoints_come_out_byte_for_byte(name: str, folder: Path) -> None:
    values, found = loaded(DATA / name)
    save(values, found)
    wanted = contents(DATA / name)
    assert sorted(wanted) == FILES
    assert contents(folder) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_the_model_has_the_smoothed_parameters(name: str) -> None:
    """This also shows that the rows in the optimizer's file are split where Marian splits them."""
    _, found = loaded(DATA / name)
    model = load_model(DATA / name / "model.npz").params
    shown = found.learner.params if found.learner.average is None else found.learner.average
    chex.assert_trees_all_equal(model, shown, strict=True)
    assert (found.learner.average is None) == (name in ("lm-adagrad", "new-sgd"))
    assert found.learner.steps == found.state.batches == 3


def test_a_state_comes_back_to_the_last_bit(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam")
    generator = np.random.default_rng(1)

    def drawn(tensors: dict[str, Any]) -> dict[str, Any]:
        return {name: generator.normal(size=np.shape(x)).astype(np.float32) for name, x in tensors.items()}

    params = found.learner.params
    moments = {name: drawn(params) for name in ("adam_mt", "adam_vt")}
    learner = LearnerState(drawn(params), moments, 200, drawn(params), (256.0, 17), 0.1 + 0.2, drawn(params))
    state = replace(found.state, batches=20000, eta=0.1, seed_batch=MersenneTwister(2).text)
    found = replace(found, learner=learner, state=state)
    save(values, found)
    again = load_checkpoint("model.npz", values)
    assert again is not None
    assert equal(again.learner, learner)
    assert replace(again.state, eta=0, loaded=False) == replace(found.state, eta=0, loaded=False)
    assert np.float32(again.state.eta) == np.float32(0.1)


@pytest.mark.parametrize("betas", [(0.9, 0.999), (0.9, 0.98), (0.0, 0.9999)])
def test_the_number_of_updates_is_read_from_the_denominators(betas: tuple[float, float]) -> None:
    moments = Moments(TrainOptions(optimizer="adam", optimizer_params=(*betas, 1e-8)))
    params = {"w": np.ones((1, 3), np.float32)}
    for steps in (0, 1, 2, 100, 999, 17000):
        state = replace(moments.fresh(params), steps=steps)
        found = moments.state(moments.items(state, ["w"]), params, "file", updates=steps)
        assert found.steps == steps


def test_denominators_of_another_marian_need_not_be_exact() -> None:
    moments, params = Moments(TrainOptions()), {"w": np.ones((1, 3), np.float32)}
    for steps, error in ((7, -1e-13), (7, 1e-13), (500, -1e-12)):
        items = moments.items(replace(moments.fresh(params), steps=steps), ["w"])
        items["adam_denoms"] = items["adam_denoms"] + error
        assert moments.state(items, params, "file", updates=1000).steps == steps


def test_other_betas_go_on_from_the_denominators(caplog: pytest.LogCaptureFixture) -> None:
    """As in Marian, which keeps only the denominators; our checkpoints also keep how they came about."""
    params = {"w": np.ones((1, 3), np.float32)}
    before, after = (Moments(TrainOptions(optimizer_params=betas)) for betas in ((0.9, 0.98), (0.5, 0.999)))
    items = before.items(replace(before.fresh(params), steps=3), ["w"])
    assert "adam_betas_changed" not in items
    with caplog.at_level(logging.INFO, "nmt"):
        state = after.state(items, params, "file", updates=3)
    assert "file: Adam's betas have changed" in caplog.text
    assert (state.steps, state.denominators) == (0, tuple(items["adam_denoms"][0]))
    wanted = items["adam_denoms"][0]
    for _ in range(2):
        wanted = np.array([b * d + (1.0 - b) for b, d in zip(after.betas, wanted, strict=True)])
    items = after.items(replace(state, steps=2), ["w"])
    np.testing.assert_array_equal(items["adam_denoms"], [wanted])
    found = after.state(items, params, "file", updates=5)
    assert (found.steps, found.denominators) == (2, state.denominators)
    for wrong in ([[0.5, 0.5, np.nan]], [[0.5, 2, 2]], [[0.0, 0.0, 2]]):
        found = after.state({**items, "adam_betas_changed": np.array(wrong)}, params, "file", updates=5)
        assert (found.steps, found.denominators) == (0, tuple(wanted))
    with pytest.raises(ModelFileError, match="file: adam_denoms: expected numbers from 0 to 1, got"):
        after.state({**items, "adam_denoms": np.array([[np.nan, 0.5]])}, params, "file", updates=5)


def test_copies_of_iterations(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam", overwrite=False)
    save(values, found, final=True)
    assert sorted(contents(folder)) == FILES, "the last one needs no copy"
    save(values, found, final=False)
    copies = ["model.iter3.npz", "model.iter3.npz.decoder.yml"]
    assert sorted(contents(folder)) == copies + FILES
    assert contents(folder)["model.iter3.npz"] == contents(folder)["model.npz"]
    assert "  - model.iter3.npz\n" in (folder / copies[1]).read_text()
    save(replace(values, overwrite_checkpoint=False), found, final=False)
    assert sorted(contents(folder)) == [name.replace(".npz", ".iter3.npz", 1) for name in FILES] + FILES
    assert contents(folder)["model.iter3.npz.optimizer.npz"] == contents(folder)["model.npz.optimizer.npz"]


def test_a_set_of_bin(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam", overwrite=False, model="model.bin")
    save(values, found, final=False)
    assert {"model.bin", "model.bin.optimizer.npz", "model.iter3.npz"} <= contents(folder).keys()
    again = load_checkpoint("model.bin", values)
    assert again is not None
    assert equal(again.learner, found.learner)


def test_the_best_model(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam")
    assert found.learner.average is not None
    save_best("model.npz", values, found.options, found.learner.average, "ce-mean-words")
    best = "model.npz.best-ce-mean-words.npz"
    assert sorted(contents(folder)) == [best, f"{best}.decoder.yml"]
    assert (folder / best).read_bytes() == (DATA / "lm-adam" / "model.npz").read_bytes()
    assert f"  - {best}\n" in (folder / f"{best}.decoder.yml").read_text()


def test_the_model_for_a_script(folder: Path) -> None:
    values, found = loaded(DATA / "lm-adam")
    assert found.learner.average is not None
    save_for_script("model.npz", values, found.options, found.learner.average)
    assert sorted(contents(folder)) == ["model.npz.dev.npz", "model.npz.dev.npz.decoder.yml"]
    assert (folder / "model.npz.dev.npz").read_bytes() == (DATA / "lm-adam" / "model.npz").read_bytes()
    assert "  - model.npz.dev.npz\n" in (folder / "model.npz.dev.npz.decoder.yml").read_text()


def without(source: str, folder: Path, *endings: str) -> Path:
    """Copy a checkpoint without some files; return its folder."""
    for name in FILES:
        if not name.endswith(endings):
            shutil.copy(DATA / source / name, folder)
    return folder


def test_what_is_not_finite_is_named(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    good, bad = np.zeros(1, np.float32), np.full(1, np.nan, np.float32)
    write_npz("model.npz", {"a": good})
    assert may_replace("model.npz", {"a": good}, "it") and not caplog.records
    for params, said in (
        ({"a": good, "b": bad}, "b is not finite: not saving it; model.npz stays as it is"),
        ({"a": bad, "b": good, "c": bad}, "a and 1 more parameters are not finite: not saving it"),
    ):
        assert not may_replace("model.npz", params, "it")
        assert said in caplog.text
    assert may_replace("new.npz", {"a": bad}, "it")
    assert "a is not finite; saving it anyway: there is no finite model to lose" in caplog.text


def test_no_model_no_checkpoint(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    values, _ = loaded(DATA / "lm-adam")
    caplog.clear()
    assert load_checkpoint("model.npz", values) is None
    assert not caplog.records
    without("lm-adam", folder, "model.npz")
    assert load_checkpoint("model.npz", values) is None
    assert "model.npz does not exist: training starts over and replaces model.npz.optimizer" in caplog.text


def test_a_model_alone(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, found = loaded(without("lm-adam", folder, ".optimizer.npz", ".progress.yml"))
    model = load_model("model.npz").params
    chex.assert_trees_all_equal(found.learner.params, model, strict=True)
    assert all(not value.any() for tree in found.learner.moments.values() for value in tree.values())
    assert found.learner.steps == 0
    assert found.state.batches == 0
    assert found.state.eta == 0.01
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [message.split(" does not exist")[0].rpartition("/")[2] for message in warned] == [
        "model.npz.progress.yml",
        "model.npz.optimizer.npz",
    ]


def test_without_the_optimizer() -> None:
    _, found = loaded(DATA / "lm-adam", no_optimizer_reload=True)
    model = load_model(DATA / "lm-adam" / "model.npz").params
    chex.assert_trees_all_equal(found.learner.params, model, strict=True)
    assert found.state.batches == 3
    assert found.learner.steps == 0


def test_another_optimizer_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    _, adam = loaded(DATA / "lm-adam")
    _, found = loaded(DATA / "lm-adam", optimizer="adagrad", exponential_smoothing=0.0)
    assert "no adagrad_gt: the moments of adagrad are new" in caplog.text
    assert list(found.learner.moments) == ["adagrad_gt"]
    assert not any(value.any() for value in found.learner.moments["adagrad_gt"].values())
    assert found.learner.average is None
    chex.assert_trees_all_equal(found.learner.params, adam.learner.params, strict=True)


ADAMW: dict[str, Any] = {"optimizer": "optax.adamw", "optimizer_params": ()}


def saved_by_adamw(folder: Path) -> Checkpoint:
    """A checkpoint in the folder, whose optimizer is one of optax's in its initial state."""
    values, found = loaded(DATA / "lm-adam", **ADAMW)
    moments = jax.device_get(optimizer_of(values).init(found.learner.params).moments)
    found = replace(found, learner=replace(found.learner, moments=moments))
    save(values, found)
    return found


def test_another_optimizer_of_optax_begins_anew(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = saved_by_adamw(folder)
    assert "no optax.adamw: the moments of optax.adamw are new" in caplog.text  # from Marian's checkpoint
    _, again = loaded(folder, **ADAMW)
    chex.assert_trees_all_equal(again.learner.moments, found.learner.moments, strict=True)
    for other in ({"optimizer": "optax.adam", "optimizer_params": ()}, {"optimizer": "adagrad"}):
        caplog.clear()
        _, anew = loaded(folder, **other)
        assert f"the moments of {other['optimizer']} are new" in caplog.text
        assert not any(x.any() for tree in anew.learner.moments.values() for x in tree.values())
        chex.assert_trees_all_equal(anew.learner.params, found.learner.params, strict=True)


def test_an_optimizer_without_a_state_lacks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    _, found = loaded(DATA / "lm-adam", optimizer="optax.sgd", optimizer_params=())
    assert not caplog.records and found.learner.moments == {} and found.learner.steps == 3


def test_a_state_of_optax_must_fit(folder: Path) -> None:
    saved_by_adamw(folder)
    path = folder / "model.npz.optimizer.npz"
    items = read_npz(path)
    count, moment = "optax.adamw.0.count", "optax.adamw.0.mu.decoder_ff_logit_l1_W0"
    for wrong, message in (
        ({name: item for name, item in items.items() if name != count}, f"there is no item {count}, which"),
        (
            {**items, "optax.adamw.1": items[count]},
            "there is an item optax.adamw.1, which .* does not have with",
        ),
        ({**items, count: np.float32(1)}, f"{count}: expected int32 of shape \\(\\), got float32"),
        ({**items, moment: items[moment][:1]}, f"{moment}: expected float32 of shape .*; is it the "),
    ):
        write_npz(path, wrong)
        with pytest.raises(ModelFileError, match=rf"model\.npz\.optimizer\.npz: {message}"):
            loaded(folder, **ADAMW)


def test_smoothing_that_begins_late(caplog: pytest.LogCaptureFixture) -> None:
    _, found = loaded(DATA / "lm-adagrad", exponential_smoothing=1e-4)
    assert "no exp_smoothing: smoothing starts from the current parameters" in caplog.text
    assert found.learner.average == found.learner.params


def test_files_of_another_model(folder: Path) -> None:
    without("lm-adam", folder, ".optimizer.npz")
    shutil.copy(DATA / "new-sgd" / "model.npz.optimizer.npz", folder)
    wrong = r"here/model\.npz\.optimizer\.npz: master_parameters: expected 1088 numbers, .* got 2944; is it"
    with pytest.raises(ModelFileError, match=wrong):
        loaded(folder)
    items = read_npz(DATA / "lm-adam" / "model.npz.optimizer.npz")
    for name, item in (
        ("adam_denoms", np.zeros(3)),
        ("adam_mt", items["adam_mt"].astype(np.float16)),
        ("cost_scaling", np.array([[np.nan, 0]])),
        ("cost_scaling", np.array([[8, np.inf]])),
        ("average_words", np.array([[-1.0]])),
    ):
        write_npz(folder / "model.npz.optimizer.npz", items | {name: item})
        with pytest.raises(ModelFileError, match=rf"optimizer\.npz: {name}: expected .*, got "):
            loaded(folder)
    with pytest.raises(OptionError, match="--optimizer must be one of .*, optax.NAME; got 'lion'"):
        loaded(folder, optimizer="lion")


def test_an_old_marian_has_no_denominators(folder: Path) -> None:
    without("lm-adam", folder, ".optimizer.npz")
    items = read_npz(DATA / "lm-adam" / "model.npz.optimizer.npz")
    del items["adam_denoms"]
    write_npz(folder / "model.npz.optimizer.npz", items)
    assert loaded(folder)[1].learner.steps == 0


def test_options_of_a_model_without_its_own(folder: Path) -> None:
    """Its options then are the command line's, as they always are with ``--ignore-model-config``."""
    without("lm-adam", folder)
    items = read_npz("model.npz")
    with pytest.raises(ParameterError, match=r"(?s)model\.npz: .*told otherwise by the shapes:\s+dim-rnn 4"):
        loaded(folder, ignore_model_config=True, dim_rnn=8)
    del items[MODEL_YML]
    write_npz("model.npz", items)
    _, found = loaded(folder)
    assert (found.options.type, found.options.dim_rnn, found.options.dim_vocabs) == ("lm", 4, (8,))
    with pytest.raises(ParameterError, match=r"model\.npz: "):
        loaded(folder, dim_rnn=8)
