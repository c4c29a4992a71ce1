"""``Judge``: which witnesses see that a mutant is wrong, and which mutants are the same function as the
rule."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import jax
import numpy as np

from ...cases import Convention
from ...errors import ArgumentError, GraphError
from ...node import NaryNodeOp
from ..conventions import keeps, trial_of
from ..report import largest, problem_of
from ..trial import Gradients, Rule, Trial, elsewhere
from ..witnesses.problem import Problem
from .declared import declared_for, unreached
from .mutant import Mutant, mutants_of
from .probes import Probe, probes_of
from .report import Verdict
from .rule_source import RuleSource

_ROUNDING = 1e-11
"""The relative difference that counts as rounding in float64."""

_NOT_REPEATABLE = "gives other gradients when it is called again: it keeps something between calls"
_SOURCE_CHANGED = "is not what its source says: has the file changed since it was imported?"
"""Why a rule cannot be changed through its source."""


Same = Callable[[int], bool]
"""Whether a rule gives the same program as the operator's own rule on the i-th case or convention; raises
what tracing the rule raises."""


class Judge:
    """The witnesses of one operator: its cases, its conventions, and probes beyond both.

    ``ArgumentError`` if the rule cannot be read, or does not pass itself.
    """

    def __init__(self, cls: type[NaryNodeOp], seed: int = 0) -> None:
        self._cls, self._seed = cls, seed
        self._own: Rule = cls.backward_ops
        self._source = RuleSource(cls)
        cases = enumerate(cls.cases, seed)
        self._trials = [Trial(cls, case, case.values(i), seed=i) for i, case in cases]
        self._conventions = [trial_of(cls, c) for c in cls.conventions]
        self._places = [*self._trials, *self._conventions]
        self._children: set[int] = set()
        self._reached = [
            self._source.reached(functools.partial(trial.gradients, self._noted)) for trial in self._places
        ]
        self._check_rule()

    def _noted(self, *args: Any) -> Any:
        """What the rule gives; notes the children that get a gradient."""
        found = self._own(*args)
        if isinstance(found, tuple | list):  # anything else raises an error later
            self._children.update(i for i, g in enumerate(found) if g is not None)
        return found

    def _check_rule(self) -> None:
        again = self._source.rule()
        for case, trial in zip(self._cls.cases, self._trials, strict=True):
            objections = self._objections(trial, trial.own_gradients)
            if objections and not trial.is_finite:
                raise ArgumentError(f"{case}: NaN or infinity in the value at the inputs of this case")
            if objections and self._is_right_at_a_kink(trial):
                raise ArgumentError(f"{case}: at a kink, which no derivative judges; a Convention does")
            if objections:
                raise ArgumentError(f"{case}: the rule itself is wrong: {', '.join(objections)}")
            try:
                _ = trial.own_program
            except Exception as e:
                raise ArgumentError(f"{case}: {problem_of(e)}") from e
            if _difference(trial.own_gradients, trial.gradients(again)) != 0:
                repeats = _difference(trial.own_gradients, trial.gradients(self._own)) == 0
                raise ArgumentError(f"{case}: backward_ops {_SOURCE_CHANGED if repeats else _NOT_REPEATABLE}")
        for convention, trial in self._promises():
            if not keeps(self._own, trial, convention):
                raise ArgumentError(f"the rule itself breaks its convention {convention.case}")

    def _is_right_at_a_kink(self, trial: Trial) -> bool:
        """Whether a case is at a kink, and the rule gives a subgradient there."""
        with jax.disable_jit(False):
            answers = Problem(trial.values, trial.point, self._seed).first_order("rules")
        return any(kink.at_the_point for answer in answers for kink in answer.kinks) and all(
            d <= answer.allowed.get(w, trial.allowed[w])
            for answer in answers
            for w, d in answer.differences.items()
        )

    def _promises(self) -> Iterator[tuple[Convention, Trial]]:
        return zip(self._cls.conventions, self._conventions, strict=True)

    @functools.cached_property
    def _narrow(self) -> list[Trial | None]:
        """The cases in bfloat16; ``None`` for one on which the rule itself cannot be evaluated in it."""
        found: list[Trial | None] = []
        for case in self._cls.cases:
            found.append(None)
            with suppress(Exception):  # the operator may not take such children at all
                trial = Trial(self._cls, case, case.values(self._seed), "bfloat16")
                _ = trial.own_gradients
                found[-1] = trial
        return found

    @functools.cached_property
    def _probes(self) -> list[list[Probe]]:
        """The probes near each case."""
        return [list(probes_of(self._cls, case)) for case in self._cls.cases]

    def verdicts(self) -> Iterator[Verdict]:
        """The verdict on every mutant of the rule."""
        known = declared_for(self._cls)
        for mutant in mutants_of(self._source, self._children):
            yield self._verdict(mutant, known)

    def _verdict(self, mutant: Mutant, known: Mapping[str, str]) -> Verdict:
        verdict = functools.partial(Verdict, mutant)
        try:
            rule = mutant.made()
        except Exception:  # a changed rule may not be a program any more
            return verdict(killers=("raises",))
        everywhere = [
            i for i, lines in enumerate(self._reached) if not mutant.places or mutant.places & lines
        ]
        same = functools.cache(lambda i: self._places[i].same_program(rule))
        killers = self._killers(rule, everywhere, same)
        if killers:
            return verdict(killers=killers)
        everywhere = [i for i in everywhere if self._comes(mutant, i)]
        reached = [i for i in everywhere if i < len(self._trials)]
        for key in (mutant.change, *([] if everywhere else [unreached(mutant.function)])):
            if key in known:
                return verdict(reason=known[key], declared=key)
        if not everywhere:
            return verdict(survives="no case comes here")
        reason, differs = self._compared(rule, everywhere, same)
        if not differs:
            return verdict(reason=reason)
        thorough = self._thorough(rule, reached[0]) if reached else ()
        return verdict(killers=thorough) if thorough else verdict(survives=f"differs at {', '.join(differs)}")

    def _comes(self, mutant: Mutant, i: int) -> bool:
        """Whether the rule reaches what a mutant changes, on the i-th case or convention."""
        if mutant.marked is None:
            return True
        marks: list[None] = []
        self._places[i].gradients(mutant.marked(lambda: marks.append(None)))
        return bool(marks)

    # -- the witnesses

    def _killers(self, rule: Rule, everywhere: Sequence[int], same: Same) -> tuple[str, ...]:
        """The witnesses that object to a rule on the first case on which one does. Witnesses of one kind are
        asked together, in this order: first derivatives, here and by the branches for other platforms,
        conventions, second derivatives, 16 bits."""
        reached = [i for i in everywhere if i < len(self._trials)]
        for i in reached:
            trial = self._trials[i]
            try:
                objections = self._objections(trial, trial.gradients(rule))
            except Exception:  # a mutant may raise anything
                return ("raises",)
            if objections:
                return objections
        try:
            others = [i for i in everywhere if not same(i) and i in reached]
        except Exception:  # it cannot be traced
            return ("raises",)
        for i in others:
            try:
                with elsewhere():
                    if self._objections(self._trials[i], self._trials[i].gradients(rule)):
                        return ("platforms",)
            except Exception:
                return ("platforms",)
        for convention, trial in self._promises():
            try:
                kept = keeps(rule, trial, convention)
            except Exception:
                return ("raises",)
            if not kept:
                return ("convention",)
        if self._cls.gradient_is_derivative and any(self._curved_otherwise(rule, i) for i in others):
            return ("second",)
        for i in reached:
            narrow = self._narrow[i]
            try:
                if narrow is not None:
                    narrow.gradients(rule)
            except Exception:
                return ("bfloat16",)
        return ()

    def _objections(self, trial: Trial, gradients: Gradients) -> tuple[str, ...]:
        if not self._cls.gradient_is_derivative:
            return ()
        return _objecting(trial, trial.first_order(gradients))

    def _curved_otherwise(self, rule: Rule, i: int) -> bool:
        trial = self._trials[i]
        try:
            return not trial.second_order(rule) <= trial.allowed["second"]
        except Exception:
            return True

    def _thorough(self, rule: Rule, i: int) -> tuple[str, ...]:
        """The objections of the witnesses that compile, on one case."""
        trial = self._trials[i]
        problem = Problem(trial.values, trial.point, self._seed)
        try:
            with jax.disable_jit(False):
                found = trial.being(rule, problem.transformed, "rules")
        except Exception:
            return ("raises",)
        differences = largest(answer.differences for answer in found)
        return _objecting(trial, differences)

    # -- whether a mutant is another function

    def _compared(self, rule: Rule, reached: Sequence[int], same: Same) -> tuple[str, list[str]]:
        """Why a mutant is the same function as the rule, or else where it differs."""
        places = [("the cases", self._places[i]) for i in reached if not same(i)]
        for i, probes in enumerate(self._probes):
            # Equal programs agree at all values, but other sizes have another program.
            places += [(p.label, p.trial) for p in probes if p.resized or not same(i)]
        differs, largest = [], 0.0
        for label, trial in places:
            try:
                difference = _difference(trial.own_gradients, trial.gradients(rule))
            except Exception:
                difference = np.inf
            largest = max(largest, difference)
            if difference > _ROUNDING:
                differs.append(label)
        if differs:
            return "", list(dict.fromkeys(differs))
        if largest:
            return "the same but for rounding", []
        if not all(map(same, reached)):
            return "the same numbers", []
        if all(self._as_narrow(rule, narrow) for narrow in self._narrow):
            return "the same program", []
        return "the same program in float64, other rounding in 16 bits", []

    def _as_narrow(self, rule: Rule, narrow: Trial | None) -> bool:
        return narrow is None or _difference(narrow.own_gradients, narrow.gradients(rule)) == 0


def judged(cls: type[NaryNodeOp], seed: int = 0) -> Iterator[Verdict]:
    """The verdicts on all mutants of an operator's rule."""
    if not cls.cases:
        raise GraphError(f"{cls.__name__} declares no cases")
    return Judge(cls, seed).verdicts()


def _objecting(trial: Trial, differences: Mapping[str, float]) -> tuple[str, ...]:
    """The witnesses from which a rule differs by more than a trial allows."""
    return tuple(w for w, d in differences.items() if not d <= trial.allowed[w])


def _difference(expected: Gradients, found: Gradients) -> float:
    """The largest relative difference; infinite where only one is finite, or where shapes, NaN or infinities
    differ."""
    largest = 0.0
    for e, f in zip(expected, found, strict=True):
        e, f = e.astype(np.float64), f.astype(np.float64)
        finite = np.isfinite(e)
        if e.shape != f.shape or not np.array_equal(e[~finite], f[~finite], equal_nan=True):
            return np.inf
        if not np.isfinite(f[finite]).all():
            return np.inf
        difference = float(np.max(np.abs(e[finite] - f[finite]), initial=0.0))
        if difference:
            largest = max(largest, difference / float(np.max(np.abs(e[finite]), initial=1e-300)))
    return largest
