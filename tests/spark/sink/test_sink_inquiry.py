"""The commands `odradek spark sink status` and `resolve` show a sink's state and end open transactions, on a broker."""

import json
import pickle

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.spark.sink import MayBeLost, NotDecided, decision, plan, resolve, status
from odradek.spark.wire import Cluster
from tests.spark.sink.test_sink_source import (
    Context,
    ongoing,
    queries,
    run_batch,
    sink,
    stream,
    take,
    task,
    values,
)

__all__ = ["sink", "task"]

HASTY = ("-o", "kafka.delivery.timeout.ms=300")


def command(what: str, options, *more: str):
    bootstrap = ["--bootstrap", options["kafka.bootstrap.servers"]]
    return CliRunner().invoke(main, ["spark", "sink", what, options["name"], *bootstrap, *more])


def decided_and_dead(sink, task, monkeypatch, batch: int):
    """Decide a batch of two tasks and commit none of its transactions."""
    planned = pickle.dumps(stream(sink))
    messages = [task(planned, ["a"], Context(0, batch)), task(planned, ["b"], Context(1, batch))]

    def die(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(decision, "_end_all", die)
    with pytest.raises(KeyboardInterrupt):
        stream(sink).commit(messages, batch)
    monkeypatch.undo()
    return messages


def test_a_finished_batch_has_nothing_open(kafka, sink, task):
    run_batch(sink, task, 0, [["a"], ["b"]])
    found = status(sink)
    assert found.decision is not None
    assert (found.decision.batch, found.decision.decision, found.deciding) == (0, 1, False)
    assert found.half_committed == found.others == ()
    said = command("status", sink)
    assert said.exit_code == 0
    assert f"{sink['name']}: batch 0 was decided at 20" in said.output
    assert said.output.endswith(f" by plan 1 of query {queries[-1]}, 2 rows\n")
    assert command("resolve", sink).output.endswith("No transaction is open.\n")


def test_the_partitions_of_a_half_committed_batch_are_named(kafka, sink, task, monkeypatch):
    messages = decided_and_dead(sink, task, monkeypatch, 0)
    reports = [message.report for message in messages]
    lost, kept = reports[1], reports[0]
    take(sink, lost.transactional_id)
    found = {each.transactional_id: each for each in status(sink).half_committed}
    assert {name: each.state for name, each in found.items()} == {
        kept.transactional_id: "open",
        lost.transactional_id: "aborted",
    }
    assert {name: set(each.partitions) for name, each in found.items()} == {
        report.transactional_id: set(report.partitions) for report in reports
    }
    said = command("status", sink).output
    [[topic, index]] = lost.partitions
    assert "consumers see a part of it" in said
    assert f"{topic} {index}" in said
    done = json.loads(command("resolve", sink, "--json").output)
    assert [each["transactional_id"] for each in done["lost"]] == [lost.transactional_id]
    assert done["lost"][0]["partitions"] == [[topic, index]]
    assert values(kafka, sink) == ["a"], "the other one is committed"
    with pytest.raises(MayBeLost, match=f"odradek spark sink status {sink['name']}"):
        run_batch(sink, task, 0, [["a"], ["b"]])
    assert [each.state for each in status(sink).half_committed] == ["aborted"], (
        "the state is shown until the next decision"
    )


def test_what_an_ended_query_has_left_open_is_named_and_aborted(kafka, sink, task):
    run_batch(sink, task, 0, [["a"], ["b"]])
    planned = pickle.dumps(stream(sink))
    message = task(planned, ["c"], Context(0, 1))
    [stray] = status(sink).others
    assert stray.transactional_id == message.report.transactional_id
    assert (stray.state, set(stray.partitions)) == ("open", set(message.report.partitions))
    assert stray.since is not None
    assert "read_committed consumers stop in front of them" in command("status", sink).output
    resolution = resolve(sink)
    assert resolution is not None
    assert [each.transactional_id for each in resolution.aborted] == [stray.transactional_id]
    assert ongoing(sink) == []
    with pytest.raises(NotDecided):
        stream(sink).commit([message], 1)
    run_batch(sink, task, 1, [["c"]])
    assert values(kafka, sink) == ["a", "b", "c"]


def test_a_driver_that_died_in_its_decision_is_said_and_ended(kafka, sink, task, monkeypatch):
    planned = pickle.dumps(stream(sink))
    messages = [task(planned, ["a"], Context(0, 0))]
    monkeypatch.setattr(decision, "reached", lambda point, batch=None: 1 / (point != "decision.written"))
    with pytest.raises(ZeroDivisionError):
        stream(sink).commit(messages, 0)
    monkeypatch.undo()
    said = command("status", sink, *HASTY)
    assert "A driver's transaction is open: the decision record can be read when it ends." in said.output
    assert f"{sink['name']}-driver" in said.output
    assert command("resolve", sink).exit_code == 0
    assert ongoing(sink) == []
    assert "no batch is decided yet" in command("status", sink).output


def test_a_query_that_goes_on_meanwhile_has_no_half_committed_batch(kafka, sink, task, monkeypatch):
    run_batch(sink, task, 0, [["a"], ["b"]])
    run_batch(sink, task, 1, [["c"], ["d"]])
    describe = Cluster.describe_transactions

    def later(cluster, transactional_ids):
        monkeypatch.undo()
        # The next batch is planned meanwhile, so the pool's ids have new epochs.
        pickle.dumps(stream(sink))
        return describe(cluster, transactional_ids)

    monkeypatch.setattr(Cluster, "describe_transactions", later)
    found = status(sink)
    assert found.decision is not None
    assert (found.decision.phase, found.half_committed) == ("planning", ())


def test_what_resolve_could_not_abort_is_said_to_be_open(kafka, sink, task, monkeypatch):
    stray = task(pickle.dumps(stream(sink)), ["a"], Context(0, 0)).report.transactional_id
    monkeypatch.setattr(plan, "sweep", lambda *given: None)
    said = command("resolve", sink).output
    assert "No transaction is open" not in said
    assert "Aborted" not in said
    assert (
        "Transactions that could not be aborted; another resolve, or their timeout, ends them:\nID  " in said
    )
    assert ongoing(sink) == [stray]
    monkeypatch.undo()
    done = resolve(sink)
    assert done is not None
    assert ([each.transactional_id for each in done.aborted], done.still_open) == ([stray], ())


def test_neither_a_sink_s_name_nor_its_query_s_is_shown_raw(kafka, sink, task):
    hostile = {**sink, "name": f"{sink['name']}\x1b[2J\u202e"}
    run_batch(hostile, task, 0, [["a"]], query_id="of\x1b]0;owned\x07")
    task(pickle.dumps(stream(hostile)), ["b"], Context(0, 1, "of\x1b]0;owned\x07"))
    for said in (command("status", hostile), command("resolve", hostile), command("status", hostile)):
        assert said.exit_code == 0, said.output
        assert said.output.replace("\n", "").isprintable()
        assert r"\x1b[2J\u202e: batch 0 was decided" in said.output
    nowhere = {**hostile, "name": f"{hostile['name']}-none"}
    assert command("status", nowhere).output.replace("\n", "").isprintable()
    assert command("status", nowhere, "-o", "decisionTopic=\x1b[2J").output.replace("\n", "").isprintable()


def test_a_name_that_no_sink_has_and_a_broker_that_is_not_there(kafka, sink):
    for what in ("status", "resolve"):
        said = command(what, sink)
        assert (said.exit_code, "has ever planned a batch" in said.output) == (4, True)
        nowhere = command(what, {**sink, "kafka.bootstrap.servers": "127.0.0.1:1"}, *HASTY)
        assert nowhere.exit_code == 3, nowhere.output
        assert command(what, sink, "-o", "nonsense").exit_code == 2
