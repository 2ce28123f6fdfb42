"""The file of --seed, which is read before the broker starts."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from broker.config.seed import parse_seed, seed_topics
from broker.config.settings import SeedRecord, TopicSpec
from server.options import parse
from storage.config_def import ConfigError


def test_each_line_is_a_record() -> None:
    lines = [
        '{"topic": "orders", "value": "paid", "key": 42, "partition": 3, "aborted": true}\n',
        "\n",
        '{"topic": "orders", "value": null}',
    ]
    assert parse_seed(lines, "f") == (
        SeedRecord("orders", b"paid", b"42", 3, True),
        SeedRecord("orders", None),
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "f, line 2, column 2: Expecting property name"),
        ("[]", "f, line 2: expected a JSON object with topic and value"),
        ('{"topic": "t"}', "f, line 2: expected a JSON object with topic and value"),
        ('{"topic": 1, "value": ""}', "f, line 2: topic cannot be 1"),
        ('{"topic": "t", "value": {"a": 1}}', 'f, line 2: value cannot be {"a": 1}'),
        ('{"topic": "t", "value": "", "partition": -1}', "f, line 2: partition cannot be -1"),
        ('{"topic": "t", "value": "", "partition": true}', "f, line 2: partition cannot be true"),
        (
            '{"topic": "t", "value": "", "abort": true}',
            "f, line 2: unknown field abort (known: topic, value, key, ",
        ),
    ],
)
def test_a_broken_line_is_named_by_its_number(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_seed(['{"topic": "t", "value": ""}', line], "f")
    assert str(error.value).startswith(message)


def test_topics_have_the_partitions_that_the_records_name() -> None:
    records = [
        SeedRecord("a", None, None, 4),
        SeedRecord("a", None),
        SeedRecord("b", None),
        SeedRecord("c", None),
    ]
    assert seed_topics(records, [TopicSpec("c", 1, {})], 2) == [TopicSpec("a", 5, {}), TopicSpec("b", 2, {})]
    with pytest.raises(ConfigError, match="--seed: c has no partition 1: the last is 0"):
        seed_topics([SeedRecord("c", None, None, 1)], [TopicSpec("c", 1, {})], 2)


def test_the_file_is_named_by_the_option_or_the_variable(tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text('{"topic": "orders", "value": "paid"}\n')
    bad.write_text("no JSON\n")
    for settings in (parse(["--seed", str(good)], {}), parse([], {"ODRADEK_SEED": str(good)})):
        assert settings.seed == (SeedRecord("orders", b"paid"),)
        assert [each.name for each in settings.topics] == ["orders"]
    assert parse(["--seed", str(good)], {"ODRADEK_SEED": str(bad)}).seed
    for argv, environ, message in (
        (["--seed", str(bad)], {}, f"--seed {bad}, line 1, column 1: Expecting value"),
        ([], {"ODRADEK_SEED": str(bad)}, f"ODRADEK_SEED {bad}, line 1, column 1: Expecting value"),
        (["--seed", str(tmp_path / "none")], {}, f"--seed {tmp_path / 'none'}: No such file or directory"),
    ):
        with pytest.raises(click.ClickException) as error:
            parse(argv, environ)
        assert error.value.format_message().startswith(message)
        assert error.value.exit_code == 2
