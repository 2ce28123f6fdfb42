"""Metric families as text, parsed by Prometheus' own client library."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.process_collector import ProcessCollector

from lab.metrics import of_process
from lab.metrics.families import Family, Observed, counter, gauge, single, summary
from lab.metrics.text import QUANTILES, written

NAME = "kafka_brokers"


def read(families: list[Family]) -> dict[str, Any]:
    """Write and parse the families. Returns the families by name, without the metrics of the process."""
    found = text_string_to_metric_families(written(families).decode())
    return {each.name: each for each in found if not each.name.startswith("process_")}


def samples(family: Any) -> Iterator[tuple[str, dict[str, str], float]]:
    for each in family.samples:
        yield each.name, each.labels, each.value


@pytest.mark.parametrize(
    "value", ["orders", 'a"b', "a\\b", "a\\nb", "a\nb", "a\\\nb\\", "ä{,}=", "", "None", " "]
)
def test_labels_come_back_as_they_were(value: str) -> None:
    (family,) = read([gauge(NAME, ("topic", "partition"), [((value, 3), 1)])]).values()
    assert list(samples(family)) == [(NAME, {"topic": value, "partition": "3"}, 1)]


@pytest.mark.parametrize("value", [0, -1, True, 0.1, 1e-9, 123456789, 2**63, 1.5e300, math.inf, -math.inf])
def test_values_come_back_as_they_were(value: float) -> None:
    (family,) = read([single(NAME, value)]).values()
    assert list(samples(family)) == [(NAME, {}, value)]


def test_a_counter_ends_with_total_and_a_family_without_rows_has_its_help() -> None:
    name = "odradek_fault_rule_hits"
    (family,) = read([counter(name, ("rule",), [((7,), 2)])]).values()
    assert (family.name, family.type, list(samples(family))) == (
        name,
        "counter",
        [(f"{name}_total", {"rule": "7"}, 2)],
    )
    (family,) = read([counter(name, ("rule",), [])]).values()
    assert (family.type, family.samples) == ("counter", [])
    assert family.documentation == "Hits of the rules that inject faults."


def test_a_summary_has_quantiles_of_the_newest_and_the_count_of_all() -> None:
    name = "kafka_network_requestmetrics_totaltimems"
    newest = tuple(float(number) for number in reversed(range(1000)))
    (family,) = read([summary(name, ("request",), [(("Produce",), Observed(5000, newest))])]).values()
    assert family.type == "summary"
    assert list(samples(family)) == [
        *((name, {"request": "Produce", "quantile": str(each)}, 1000 * each) for each in QUANTILES),
        (f"{name}_count", {"request": "Produce"}, 5000),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is read")
def test_the_process_is_shown_as_prometheus_own_client_shows_it() -> None:
    theirs = {each.name: each for each in ProcessCollector(registry=CollectorRegistry()).collect()}
    ours = {
        each.name: each
        for each in text_string_to_metric_families(written([]).decode())
        if each.name.startswith("process_")
    }
    assert {(name, each.type, each.documentation) for name, each in ours.items()} == {
        (name, each.type, each.documentation) for name, each in theirs.items()
    }
    # Memory and CPU time may change between the two scrapes.
    for name, each in ours.items():
        assert each.samples[0].name == theirs[name].samples[0].name
        assert each.samples[0].value == pytest.approx(theirs[name].samples[0].value, rel=0.2, abs=1)
    assert ours["process_start_time_seconds"].samples == theirs["process_start_time_seconds"].samples


def test_without_proc_there_is_nothing_of_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(of_process, "_PROC", tmp_path)
    assert of_process.process_families() == []


def test_a_program_with_any_name_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "self" / "fd").mkdir(parents=True)
    (tmp_path / "self" / "fd" / "0").touch()
    fields = "S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 1 0 1000 4096 2"
    (tmp_path / "self" / "stat").write_text(f"7 (a) b ( c)) {fields}\n")
    (tmp_path / "stat").write_text("cpu 1 2 3\nbtime 1700000000\n")
    monkeypatch.setattr(of_process, "_PROC", tmp_path)
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    found = {each.name: each.rows[0][1] for each in of_process.process_families()}
    assert found["process_cpu_seconds"] == 3
    assert found["process_start_time_seconds"] == 1700000010
    assert found["process_virtual_memory_bytes"] == 4096
    assert found["process_open_fds"] == 1
    (tmp_path / "stat").write_text("cpu 1 2 3\n")
    assert len(of_process.process_families()) == 6
