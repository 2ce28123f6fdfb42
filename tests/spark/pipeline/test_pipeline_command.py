"""The options of `odradek spark`, and its errors for missing requirements."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.commands.spark import spark
from odradek.spark import environment
from odradek.spark.environment import JavaMissing
from odradek.spark.pipeline import main
from odradek.spark.pipeline.run import Settings

JARS = [Path("cache/connector.jar"), Path("cache/clients.jar")]


@pytest.fixture
def jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "connector_jars", lambda: JARS)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> list[Path]:
        raise JavaMissing("Spark needs Java 17 or newer: install one")

    monkeypatch.setattr(environment, "connector_jars", missing)
    monkeypatch.setattr(main, "connector_jars", missing)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Settings, bool]]:
    """The runs that the command starts. They are recorded and not carried out."""
    asked: list[tuple[Settings, bool]] = []

    def run(settings: Settings, keep: bool) -> int:
        asked.append((settings, keep))
        settings.directory.rmdir()
        return 0

    monkeypatch.setattr(main, "run", run)
    return asked


def odradek_spark(*arguments: str) -> Result:
    return CliRunner().invoke(spark, list(arguments), prog_name="odradek spark")


def test_jars_are_printed_in_the_format_of_spark_submit(jars: None):
    assert odradek_spark("jars").stdout == "cache/connector.jar,cache/clients.jar\n"


@pytest.mark.parametrize("arguments", [["jars"], ["demo", "--seed", "1"]])
def test_a_missing_java_is_reported_in_one_sentence(no_java: None, arguments: list[str]):
    result = odradek_spark(*arguments)
    assert result.exit_code in (1, main.NOTHING_SHOWN)
    assert "Spark needs Java 17 or newer: install one\n" in result.stderr
    assert "Traceback" not in result.output


def test_a_broker_of_our_own_is_killed_too(runs: list[tuple[Settings, bool]]):
    assert odradek_spark("demo", "--flights", "9", "--worker-kills", "5", "--seed", "3").exit_code == 0
    [(settings, keep)] = runs
    assert (settings.flights, settings.seed, settings.bootstrap, keep) == (9, 3, None, False)
    assert (settings.kills.driver, settings.kills.worker, settings.kills.broker) == (2, 5, 2)
    assert settings.sink_format == "odradek.exactly_once"


def test_a_kafka_of_the_user_s_is_not_killed(runs: list[tuple[Settings, bool]], tmp_path: Path):
    data = ["--data-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    assert odradek_spark("demo", "--bootstrap", "kafka:9092", "--stock-sink", "--keep", *data).exit_code == 0
    [(settings, keep)] = runs
    assert (settings.bootstrap, settings.kills.broker, settings.kills.producer) == ("kafka:9092", 0, 2)
    assert (settings.data_dir, settings.out) == (tmp_path, tmp_path / "out")
    assert settings.sink_format == "kafka"
    assert keep
