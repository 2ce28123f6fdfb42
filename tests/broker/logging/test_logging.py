"""The broker's own log: formats, levels and fields."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from broker.logging import close, configure, get_logger, get_unfiltered_logger, level, set_level
from broker.logging.configuration import VALUE_CHARACTERS_MAX, forget


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    forget()


def lines(stream: io.StringIO) -> list[str]:
    """Close the log and return its lines."""
    close()
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


def test_a_line_for_a_level_that_is_off_is_not_made():
    """A line below the configured level is not created: its cost would be part of each request's time."""
    stream = io.StringIO()
    configure("json", "info", stream)
    get_logger().debug("never", value=Unspeakable())
    assert lines(stream) == []


def test_without_a_set_up_lines_are_those_of_structlog():
    with structlog.testing.capture_logs() as captured:
        get_logger().warning("early", topic="orders")
        try:
            raise ValueError("x")
        except ValueError:
            get_logger().exception("failed")
    assert captured == [
        {"event": "early", "topic": "orders", "log_level": "warning"},
        {"event": "failed", "exc_info": True, "log_level": "error"},
    ]


def test_loggers_made_before_the_set_up_follow_it():
    early = get_logger()
    stream = io.StringIO()
    configure("json", stream=stream)
    early.info("late")
    assert json.loads(lines(stream)[0])["event"] == "late"


def test_the_level_changes_while_the_broker_runs():
    stream = io.StringIO()
    logger = get_logger()
    configure("json", "info", stream)
    logger.info("one")
    set_level("error")
    logger.info("two")
    logger.error("three")
    set_level("debug")
    logger.debug("four")
    assert level() == "debug"
    assert [json.loads(line)["event"] for line in lines(stream)] == ["one", "three", "four"]


def test_some_lines_are_said_at_any_level():
    stream = io.StringIO()
    configure("json", "error", stream)
    get_unfiltered_logger().info("started")
    assert json.loads(lines(stream)[0])["event"] == "started"


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("log_format", ["json", "human"])
def test_a_line_that_cannot_be_formatted_raises_no_error_in_the_caller(log_format: str):
    stream = io.StringIO()
    configure(log_format, stream=stream)
    get_logger().info("odd", value=Unspeakable())
    (line,) = lines(stream)
    entry = json.loads(line)
    assert (entry["event"], entry["of"]) == ("log line could not be rendered", "'odd'")


def test_a_name_that_is_no_text_is_logged():
    stream = io.StringIO()
    configure("human", stream=stream)
    get_logger().info("odd", group="\ud800")
    assert "group=\\ud800" in lines(stream)[0]


def test_a_long_value_is_cut():
    stream = io.StringIO()
    configure("json", stream=stream)
    get_logger().info("long", group="g" * 30_000)
    entry = json.loads(lines(stream)[0])
    more = f" ({30_000 - VALUE_CHARACTERS_MAX} more characters)"
    assert entry["group"] == "g" * VALUE_CHARACTERS_MAX + more


HOSTILE = {
    "escape": "\x1b[2J\x1b]0;owned\x07",
    "carriage return": "a\rb",
    "nul": "a\0b",
    "right to left": "a\u202eb",
    "c1": "a\x9b31mb",
    "line separator": "a\u2028b",
    "delete": "a\x7fb",
    "with blanks": "a \x1b[2J b",
}


@pytest.mark.parametrize("log_format", ["json", "human"])
@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_control_characters_of_clients_are_escaped(log_format: str, name: str):
    """Control characters are escaped in values, in lists of values, in the event and in the text of an exception."""
    stream = io.StringIO()
    configure(log_format, stream=stream)
    get_logger().warning(name, transactional_id=name, groups=[name])
    try:
        raise ValueError(name)
    except ValueError:
        get_logger().exception("request failed")
    close()
    text = stream.getvalue().replace("\n", "").replace("\t", "")
    assert text.isprintable()


def test_text_that_is_printable_stays_as_it_is():
    stream = io.StringIO()
    configure("human", stream=stream)
    get_logger().info("ready", group="prüfung-テスト")
    assert "group=prüfung-テスト" in lines(stream)[0]
