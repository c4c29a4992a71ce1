"""Compiled programs exchange what the page "Scale" says."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.scaling.collectives import Collective, collectives
from benchmarks.scaling.efficiency import CARDS, ETHERNET, H100, efficiency
from benchmarks.scaling.exchange import Exchange, Work
from benchmarks.scaling.tables import BIG, page_tables
from tests.helpers import exchanges
from tests.helpers.places import ROOT

pytestmark = pytest.mark.optimized

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
COST_AND_LABELS = 8
TEXT = """
  %a = f32[8,4]{1,0} all-reduce(%x), channel_id=1, replica_groups={{0,1},{2,3}}, to_apply=%add
  %b = (f32[8]{0}, bf16[2,2]{1,0}) all-reduce(%x, %y), replica_groups=[2,4]<=[8], to_apply=%add
  %c = f32[8,4]{1,0} all-gather(%z), replica_groups=mesh['data'=4,'model'=2] {'data'}, dimensions={0}
  %d = f32[] all-reduce(%s), replica_groups=mesh['data'=1,'model'=2] {'data'}, to_apply=%add
  %e = f32[1,4]{1,0} collective-permute(%z), source_target_pairs={{0,1}}
"""


def test_exchanges_are_read_from_the_text_of_a_program() -> None:
    reduced, both, gathered, moved = collectives(TEXT)
    assert reduced == Collective("all-reduce", ((8, 4),), 128, 2)
    assert (both.size, both.devices) == (40, 4) and both.sent == 60
    assert (gathered.size, gathered.devices, gathered.sent) == (128, 4, 96)
    assert (moved.kind, moved.sent) == ("collective-permute", 16)


@functools.cache
def found(name: str) -> dict:
    """What ``tests.helpers.exchanges`` prints for this name."""
    environment = os.environ | {"XLA_FLAGS": QUICK, "JAX_PLATFORMS": "cpu"}
    script = [sys.executable, str(Path(exchanges.__file__)), name]
    said = subprocess.run(script, env=environment, check=True, stdout=subprocess.PIPE)
    return json.loads(said.stdout)


def sizes(said: dict, program: str = "gradient") -> Counter[str]:
    """Bytes per kind of exchange."""
    total: Counter[str] = Counter()
    for kind, _, size, _ in said[program]:
        total[kind] += size
    return total


def expected(said: dict, where: str) -> dict[str, int]:
    return {exchange.kind: exchange.size for exchange in (Exchange(*fields) for fields in said[where])}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data", "recurrent"])
@pytest.mark.sampled("data")
def test_groups_exchange_gradients_once(name: str) -> None:
    wanted = expected(found(name), "groups")["all-reduce"] + COST_AND_LABELS
    assert sizes(found(name)) == {"all-reduce": wanted}
    assert not found(name)["update"]


@pytest.mark.thorough
def test_several_batches_exchange_gradients_once() -> None:
    delayed, alone = found("delayed"), found("parameters")
    assert sizes(delayed) == sizes(alone), "between groups nothing"
    between = sizes(delayed, "update") - sizes(alone, "update")
    assert between == {"all-reduce": expected(delayed, "groups")["all-reduce"] + COST_AND_LABELS}


@pytest.mark.thorough
def test_a_divided_state_is_gathered_once() -> None:
    measured, wanted = sizes(found("state")), expected(found("state"), "groups")
    assert measured["all-gather"] == wanted["all-gather"]
    # XLA for CPUs sums everything on every device, and each device takes its part.
    assert measured["all-reduce"] == 2 * wanted["reduce-scatter"] + COST_AND_LABELS
    assert sizes(found("state"), "update").total() < 1000


@pytest.mark.slow
def test_devices_of_a_group_exchange_activations() -> None:
    activations = sum(Exchange(*fields).size for fields in found("parameters")["parts"])
    assert sizes(found("parameters")) == {"all-reduce": activations}
    both = sizes(found("both"))
    assert both["all-reduce"] == activations + 4 * found("both")["numbers"] + COST_AND_LABELS
    assert both["all-gather"] == pytest.approx(4 * found("both")["numbers"], rel=0.02)
    assert both.keys() == {"all-reduce", "all-gather"}


@pytest.mark.thorough
def test_the_loss_in_chunks_exchanges_no_more() -> None:
    plain, chunks = sizes(found("parameters")), sizes(found("in chunks"))
    assert set(chunks) == {"all-reduce"}
    assert 0.99 * plain.total() < chunks.total() <= plain.total()


@pytest.mark.slow
def test_a_wrong_rule_is_seen() -> None:
    # Wo is divided by columns: what was summed before is now gathered, including whole matrices.
    assert sizes(found("wrong"))["all-gather"] > sizes(found("parameters")).total()


def test_expected_efficiency() -> None:
    words = {"source": 8192, "target": 8192, "itemsize": 2}
    alone = efficiency(Work(BIG, **words), H100, CARDS, 0.33)
    assert alone == (1, 1)
    shares = [efficiency(Work(BIG, groups=n, **words), H100, ETHERNET, 0.33) for n in (2, 8, 16, 64)]
    for before, after in pairwise(shares):
        assert 0 < after.least < before.least and after.least <= after.most
    assert shares[-1].most < 0.5


def test_the_page_has_the_tables() -> None:
    page = (ROOT / "docs" / "scale.md").read_text()
    for table in page_tables():
        assert table in page
