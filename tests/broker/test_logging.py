"""The broker's own log."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from broker.logging import configure, get_logger


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_outside_a_terminal_each_line_is_one_object_that_begins_with_time_level_and_event():
    stream = io.StringIO()
    configure(stream=stream)
    get_logger().info("topic created", topic="orders", partitions=4)
    (line,) = lines(stream)
    entry = json.loads(line)
    assert list(entry) == ["timestamp", "level", "event", "topic", "partitions"]
    assert entry["timestamp"].endswith("Z")
    assert (entry["level"], entry["event"], entry["partitions"]) == ("info", "topic created", 4)


def test_a_failure_is_one_line_too():
    stream = io.StringIO()
    configure(stream=stream)
    try:
        raise ValueError("why")
    except ValueError:
        get_logger().exception("request failed")
    (line,) = lines(stream)
    assert "ValueError: why" in json.loads(line)["exception"]


@pytest.mark.parametrize(
    ("log_format", "stream", "human"),
    [("auto", Terminal(), True), ("json", Terminal(), False), ("human", io.StringIO(), True)],
)
def test_the_form_follows_the_terminal_or_the_setting(log_format: str, stream: io.StringIO, human: bool):
    configure(log_format, stream=stream)
    get_logger().info("ready")
    (line,) = lines(stream)
    assert line.startswith("{") != human


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_less_severe_levels_are_silent(level: str, shown: int):
    stream = io.StringIO()
    configure("json", level, stream)
    logger = get_logger()
    logger.debug("1")
    logger.info("2")
    logger.warning("3")
    logger.error("4")
    assert len(lines(stream)) == shown


def test_a_level_that_is_off_runs_no_processor():
    """What is not logged must cost nothing on the way of a request: its method does nothing at all."""
    configure("json", "info", io.StringIO())
    logger = get_logger().bind()
    assert logger.debug.__code__.co_name == "_nop"


def test_loggers_made_before_the_set_up_follow_it():
    early = get_logger()
    stream = io.StringIO()
    configure("json", stream=stream)
    early.info("late")
    assert json.loads(lines(stream)[0])["event"] == "late"
