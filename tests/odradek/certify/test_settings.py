"""Options of a job, on the command line and in certify.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.certify.jobs.restarts import ALWAYS, NEVER, ON_FAILURE, Restart
from odradek.certify.judging.comparison import Compare
from odradek.certify.judging.rows import ALL_HEADERS
from odradek.certify.runs.seeding import with_aborted
from odradek.certify.settings import read, workload
from odradek.certify.workload import Delivery, Seed, Until, read_expected, read_seeds
from odradek.durations import seconds

JOB = {"job": "python job.py {bootstrap}", "output": "out"}


def test_a_file_says_what_the_options_say(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text('{"key": "k", "value": "v"}\n')
    file = tmp_path / "certify.toml"
    file.write_text(
        'job = "python job.py {bootstrap}"\noutput = ["out"]\ntopic = ["in:2", "out:2"]\nseed-records = ["in=in.ndjson"]\n'
        'until = "records=3"\nrestart = "never"\nnodes = 3\nset = ["num.partitions=4"]\nignore = ["at"]\npatience = "5s"\n'
    )
    found = workload(read(file), tmp_path)
    assert found.command.filled({"bootstrap": "h:1"}) == ["python", "job.py", "h:1"]
    assert found.seeds == (Seed("in", "v", "k"),)
    assert found.inputs == {"in"}
    assert (found.until, found.restarts, found.nodes, found.patience_s) == (
        Until("records", 3),
        NEVER,
        3,
        5.0,
    )
    assert (found.settings, found.ignored) == ({"num.partitions": "4"}, frozenset({"at"}))


def test_the_settings_of_a_share_group(tmp_path: Path) -> None:
    configs = ["a:b:share.auto.offset.reset=by_duration:PT1H", "a:b:x=1", "c:y="]
    topic = "dlq:1:errors.deadletterqueue.group.enable=true,cleanup.policy=compact,delete"
    said = {
        **JOB,
        "group-config": configs,
        "delivery": "exactly-once",
        "topic": [topic, "out"],
        "allow-rejected": True,
    }
    found = workload(said, tmp_path)
    assert found.group_configs == {
        "a:b": {"share.auto.offset.reset": "by_duration:PT1H", "x": "1"},
        "c": {"y": ""},
    }
    assert (found.delivery, found.may_reject, found.topics) == (Delivery.EXACTLY_ONCE, True, (topic, "out"))
    assert workload(JOB, tmp_path).delivery is None
    for option, wrong in (
        ("group-config", "a=b"),
        ("group-config", "a:b"),
        ("delivery", "twice"),
        ("topic", "a:1:b"),
    ):
        with pytest.raises(ValueError, match=f"--{option} "):
            workload({**JOB, option: wrong}, tmp_path)


def test_a_name_that_is_no_option_is_named(tmp_path: Path) -> None:
    (tmp_path / "certify.toml").write_text("jbo = 1\n")
    with pytest.raises(ValueError, match=r"unknown option jbo \(did you mean job\?\)"):
        read(tmp_path / "certify.toml")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "out"}, "--job is missing"),
        ({"job": "x"}, "--output is missing"),
        (JOB | {"seed-records": ["in"]}, "expected TOPIC=FILE"),
        (JOB | {"until": "soon"}, "expected lag=0"),
        (JOB | {"until": "lag=5"}, "expected lag=0"),
        (JOB | {"until": "idle=now"}, "expected lag=0"),
        (JOB | {"restart": "often"}, "expected always"),
        (JOB | {"compare": "loosely"}, "loosely"),
        (JOB | {"job": "'"}, "quotation"),
        (JOB | {"job": "no-such-program"}, "no-such-program: command not found"),
        (JOB | {"until": "exit", "restart": "always"}, "remove one of them"),
        (JOB | {"compare": "none"}, "needs a --check"),
        (JOB | {"compare": "none", "check": "true", "expect": "told"}, "cannot be used with --expect"),
        (JOB | {"compare-also": ["offset"]}, "expected partition or timestamp"),
        (JOB | {"compare-also": ["partition"], "expect": "told"}, "does not contain it"),
    ],
)
def test_each_violation_is_reported(options: dict[str, object], message: str, tmp_path: Path) -> None:
    (tmp_path / "told").write_text('"v"\n')
    with pytest.raises(ValueError, match=message):
        workload(options, tmp_path)


@pytest.mark.parametrize(
    ("options", "restart"),
    [
        ({"until": "lag=0"}, ALWAYS),
        ({}, ON_FAILURE),
        ({"until": "exit"}, ON_FAILURE),
        ({"until": "auto"}, ON_FAILURE),
        ({"until": "exit", "restart": 3}, Restart(False, 3)),
        ({"restart": "on-failure"}, ON_FAILURE),
    ],
)
def test_an_exit_is_the_end_where_a_run_waits_for_it(
    options: dict[str, object], restart: Restart, tmp_path: Path
) -> None:
    found = workload(JOB | options, tmp_path)
    assert found.restart(found.until) == restart


def test_a_check_alone_needs_no_output(tmp_path: Path) -> None:
    alone = workload({"job": "true", "check": "true"}, tmp_path)
    assert (alone.outputs, alone.compare) == ((), Compare.NONE)
    both = workload(JOB | {"check": "true", "compare-also": "partition"}, tmp_path)
    assert (both.compare, both.compare_also) == (Compare.ROWS, frozenset({"partition"}))


def test_headers_are_compared_where_the_expected_records_have_any(tmp_path: Path) -> None:
    told = tmp_path / "told"
    told.write_text('{"value": "a"}\n')
    assert workload(JOB | {"expect": "told"}, tmp_path).ignored == {ALL_HEADERS}
    told.write_text('{"value": "a", "headers": [["trace", "3"], ["n", null]]}\n')
    found = workload(JOB | {"expect": "told", "check": "true"}, tmp_path)
    assert found.ignored == frozenset()
    assert found.expected is not None
    assert found.expected[0].headers == (("trace", "3"), ("n", None))
    told.write_text('{"value": "a", "headers": {"trace": "3"}}\n')
    with pytest.raises(ValueError, match=r"told:1: headers must be pairs"):
        workload(JOB | {"expect": "told"}, tmp_path)


@pytest.mark.parametrize(("text", "expected"), [("250ms", 0.25), ("3s", 3.0), ("1.5m", 90.0), ("1h", 3600.0)])
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0s", "3", "s", "-1s", "1d"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        seconds(text)


def test_what_is_expected_names_its_output_where_there_are_several(tmp_path: Path) -> None:
    told = tmp_path / "told.ndjson"
    told.write_text('{"value": "a", "key": "k"}\n"b"\n')
    expected = read_expected(told, ["out"])
    assert [(each.topic, each.key, each.value) for each in expected] == [
        ("out", "k", "a"),
        ("out", None, "b"),
    ]
    told.write_text('{"value": "a", "topic": "journal"}\n"b"\n')
    with pytest.raises(ValueError, match=r"told\.ndjson:2: the topic must be one of out, journal, not None"):
        read_expected(told, ["out", "journal"])


def test_seeds_are_lines_of_json(tmp_path: Path) -> None:
    file = tmp_path / "seeds"
    file.write_text('"text"\n\n{"value": {"a": 1}, "key": 5, "partition": 1, "aborted": true}\n{"a": 2}\n')
    assert read_seeds("in", file) == [
        Seed("in", "text"),
        Seed("in", '{"a": 1}', "5", 1, aborted=True),
        Seed("in", '{"a": 2}'),
    ]
    file.write_text("not json\n")
    with pytest.raises(ValueError, match="seeds:1: not JSON"):
        read_seeds("in", file)


def test_an_aborted_record_lies_between_the_others() -> None:
    seeds = [Seed("in", str(number)) for number in range(12)]
    found = list(with_aborted(seeds))
    assert [each for each in found if not each.aborted] == seeds
    assert [each.value for each in found if each.aborted] == ["0", "10"]
    own = [Seed("in", "x", aborted=True), Seed("in", "y")]
    assert list(with_aborted(own)) == own


def test_expected_rows_are_their_json_values(tmp_path: Path) -> None:
    label = "files:out/*.csv"
    lines = [
        '{"id": 1, "amount": 2.50}',
        '{"topic": "t", "value": {"n": 1.0, "id": 1}}',
        f'{{"topic": "{label}", "value": {{"n": 1.0, "id": 1}}, "key": "k"}}',
        '{"id": 3, "value": "x"}',
    ]
    (tmp_path / "expected.ndjson").write_text("\n".join([lines[0], *lines[2:]]))
    found = read_expected(tmp_path / "expected.ndjson", [label])
    assert [(each.topic, each.partition, each.key, each.value) for each in found] == [
        (label, -1, "1", '{"amount": 2.5, "id": 1}'),
        (label, -1, "k", '{"id": 1, "n": 1}'),
        (label, -1, "3", '{"id": 3, "value": "x"}'),
    ]
    (tmp_path / "expected.ndjson").write_text(lines[1])
    assert read_expected(tmp_path / "expected.ndjson", ["t"])[0].value == '{"n": 1.0, "id": 1}'
