"""A model made of a random table, and the search that Marian would do with it, in plain Python."""

from __future__ import annotations

from dataclasses import dataclass, fields
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from nmt.models import Step
from nmt.search.beam_search import BeamSearch
from nmt.search.results import Hypothesis
from nmt.settings.sections import BeamOptions


@dataclass(frozen=True)
class ToyVocab:
    """What the search asks of a vocabulary of ``size`` words."""

    eos_id: int
    unk_id: int
    control_ids: tuple[int, ...] = ()
    size: int = 1000

    def __len__(self) -> int:
        return self.size


EOS, UNK, CONTROL = 2, 4, 1
VOCAB = ToyVocab(EOS, UNK, (CONTROL,))
LOWEST = np.finfo(np.float32).min


def spec(*shape: int) -> jax.ShapeDtypeStruct:
    """The shape and type of an integer state."""
    return jax.ShapeDtypeStruct(shape, jnp.int32)


class ToyModel:
    """A random table of logits; every word so far influences which row of it is used.

    The words enter as the source, as a prefix in a cache with an axis for steps, and as a running value
    for each hypothesis: a search that mixes up hypotheses, caches or steps finds something else.
    """

    rows = 257
    sources = 1
    starts_blank = packs_bins = False

    def __init__(self, seed: int, dim: int, eos: float = 0.0) -> None:
        table = np.random.default_rng(seed).normal(size=(self.rows, dim)).astype(np.float32) * 2
        table[:, EOS] += eos
        self.key = ("toy", dim)
        self.dim_vocabs = self.ids = (100, dim)
        self.params = {"table": jnp.asarray(table)}
        self.log_probs = np.asarray(jax.nn.log_softmax(self.params["table"]))

    def encoder(self, batch, lengths, *, derivatives):
        (length,) = lengths

        def encode(params, sources):
            ((ids, mask),) = sources
            code = jnp.sum((ids + 1) * mask.astype(jnp.int32) * (2 * jnp.arange(length) + 1), 1)
            return {"code": code.astype(jnp.int32)}

        encode.state = {"code": spec(batch)}
        return encode

    def listing(self, listed, *, derivatives):
        return lambda params, ids: {"table:listed": params["table"][:, ids]}

    def stepper(
        self,
        batch,
        beam,
        lengths,
        places,
        attention=False,
        candidates=0,
        *,
        by_sentence,
        listed,
        derivatives,
    ):
        hypotheses, most = batch * beam, sum(places)
        assert by_sentence

        def start(params, encoded):
            prefix = jnp.zeros((hypotheses, most), jnp.int32)
            return {"prefix": prefix, "running": jnp.repeat(encoded["code"], beam)}

        def step(params, encoded, state, words, position, shortlist=None):
            position = jnp.repeat(position, beam)
            words = jnp.where(position == 0, 0, words + 1)
            prefix = state["prefix"].at[jnp.arange(hypotheses), position].set(words)
            running = (state["running"] * 5 + words) % 1009
            weights = 2 * jnp.arange(most) + 3
            code = jnp.sum(prefix * weights, 1) + running + jnp.repeat(encoded["code"], beam)
            logits = params.get("table:listed", params["table"])[code % self.rows]
            if shortlist is not None:
                logits = jnp.take_along_axis(logits, jnp.repeat(shortlist, beam, axis=0), axis=1)
            return Step(logits, {"prefix": prefix, "running": running})

        return SimpleNamespace(
            start=start,
            step=step,
            encoder_state={"code": spec(batch)},
            decoder_state={"prefix": spec(hypotheses, most), "running": spec(hypotheses)},
        )

    def next_log_probs(self, source: list[int], prefix: list[int]) -> np.ndarray:
        """What a step gives for one hypothesis, computed in plain numbers."""
        code = sum((word + 1) * (2 * i + 1) for i, word in enumerate(source))
        running = code * 5 % 1009
        for word in prefix:
            running = (running * 5 + word + 1) % 1009
        total = code + running + sum((word + 1) * (2 * i + 5) for i, word in enumerate(prefix))
        return self.log_probs[total % self.rows]


@dataclass
class Path:
    """One hypothesis of the plain search."""

    words: list[int]
    paths: list[np.float32]
    scores: list[np.float32]


def among(log_probs, listed):
    """Log-probabilities normalized over some of the words."""
    return log_probs if listed is None else log_probs - np.logaddexp.reduce(log_probs[listed])


def plain_search(
    models,
    weights,
    source,
    *,
    beam_size=12,
    normalize=0.0,
    word_penalty=0.0,
    allow_unk=False,
    allow_special=False,
    max_length_factor=3.0,
    n_best=False,
    prefix=(),
    listed=None,
):
    """Marian's ``BeamSearch::search`` and ``History::nBest`` for a batch of one sentence."""
    suppressed = {word for word, kept in ((UNK, allow_unk), (CONTROL, allow_special)) if not kept}
    beam = [Path([], [], [np.float32(0)] * len(models))]
    slots, found, step = beam_size, [], 0
    while beam:
        step += 1
        forced = prefix[step - 1] if step <= len(prefix) and (step > 1 or source[0] != EOS) else EOS
        candidates = []
        for path in beam:
            log_probs = [among(model.next_log_probs(source, path.words), listed) for model in models]
            total = sum(np.float32(w) * lp for w, lp in zip(weights, log_probs, strict=True))
            extended = (path.paths[-1] if path.paths else np.float32(0)) + total
            for word in range(len(total)) if listed is None else listed:
                if forced in (EOS, word):
                    score = LOWEST if word in suppressed and forced == EOS else extended[word]
                    candidates.append((path, word, score, log_probs))
        candidates.sort(key=lambda candidate: -candidate[2])
        extended_beam = []
        for path, word, score, log_probs in candidates[:slots]:
            if source[0] == EOS and step == 1:
                word, score = EOS, np.float32(0)
            scores = [old + lp[word] for old, lp in zip(path.scores, log_probs, strict=True)]
            extended_beam.append(Path([*path.words, word], [*path.paths, score], scores))
        last = step >= np.float32(max_length_factor) * np.float32(len(source))
        for path in extended_beam:
            if path.words[-1] == EOS or last:
                length = np.float32(step)
                score = path.paths[-1] - np.float32(word_penalty) * length
                found.append((path, score / length ** np.float32(normalize)))
        beam = [] if last else [path for path in extended_beam if path.words[-1] != EOS]
        slots -= len(extended_beam) - len(beam)
    found.sort(key=lambda result: -result[1])
    return [
        Hypothesis(
            words=tuple(path.words),
            word_scores=tuple(
                float(b - a) for a, b in zip([np.float32(0), *path.paths], path.paths, strict=False)
            ),
            path_score=float(path.paths[-1]),
            score=float(score),
            scorer_scores=tuple(map(float, path.scores)),
            finished=path.words[-1] == EOS,
        )
        for path, score in found[: beam_size if n_best else 1]
    ]


def beam_search(models, weights=None, **options):
    beam = {f.name: options.pop(f.name) for f in fields(BeamOptions) if f.name in options}
    vocabs = {"source_vocab": VOCAB, "target_vocab": VOCAB}
    return BeamSearch(models, weights, options=BeamOptions(**beam), **vocabs | options)


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.words for h in found] == [h.words for h in expected]
    assert [h.finished for h in found] == [h.finished for h in expected]
    for ours, theirs in zip(found, expected, strict=True):
        for name in ("word_scores", "path_score", "score", "scorer_scores"):
            np.testing.assert_allclose(
                getattr(ours, name), getattr(theirs, name), rtol=1e-5, atol=1e-5, err_msg=name
            )
