"""Random input never gets a 5xx response from the control port, and every error is a sentence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.cluster import Cluster
from broker.injection.points import POINTS
from lab.control.listener import ControlListener
from lab.control.operations import Stream, discover
from lab.control.wiring import control_of
from lab.faults import ACTIONS
from server.options import parse

OPERATIONS = list(discover().values())
# Streams, which do not end. Fuzzing the filters of the trace covers those of follow_trace.
ENDLESS = ("follow_trace", "watch")
NO_JSON = {"capture_trace": b"/trace.pcap", "metrics": b"/metrics"}
"""Operations whose response ends and is not JSON: name -> the part of the path by which the test recognises them."""


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A function that sends bytes to a control port and returns the status and body of the response, or None without a
    response."""
    with asyncio.Runner() as runner:

        async def open_control() -> tuple[Cluster, ControlListener, int]:
            data_dir = str(tmp_path_factory.mktemp("fuzz"))
            cluster = Cluster(parse(["--nodes", "2", "--port", "0", "--data-dir", data_dir], {}))
            await cluster.start()
            server = ControlListener(lambda: control_of(cluster))
            return cluster, server, await server.start()

        cluster, server, port = runner.run(open_control())

        async def send(data: bytes) -> tuple[int, bytes] | None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(data)
                if writer.can_write_eof():
                    writer.write_eof()
                answer = await reader.read()
            except ConnectionError:
                return None
            finally:
                writer.close()
            head, _, body = answer.partition(b"\r\n\r\n")
            return (int(head.split(b" ", 2)[1]), body) if head else None

        yield lambda data: runner.run(send(data))

        async def close() -> None:
            await server.close()
            await cluster.stop()

        runner.run(close())


def check(answer: tuple[int, bytes] | None, *, is_json: bool = True) -> None:
    if answer is None:
        return
    status, body = answer
    assert status < 500, (status, body)
    if status >= 400 and is_json:
        assert list(json.loads(body)) == ["error"]
        assert len(json.loads(body)["error"]) > 10


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=10), children, max_size=3)
    ),
    max_leaves=8,
)
numbers = st.integers(-2, 12) | st.integers(-(2**70), 2**70)
words = st.text(max_size=12) | st.sampled_from(
    ["*", "EndTxn", "Produce", "orders", "-1", "1e9", "\x00", "\ud800", "ß"]
)
names = st.sampled_from([*ACTIONS, *POINTS, "EndTxn", "Produce", "*", "NONE", "cut 1 2"]) | words


@st.composite
def values_of(draw: st.DrawFn, schema: Any) -> Any:
    """Draw a value of any type for a field. ``schema`` is not used."""
    return draw(st.one_of(numbers, names, st.booleans(), st.floats(0, 1), json_values))


@st.composite
def bodies(draw: st.DrawFn, struct: Any) -> bytes:
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=50))
    fields: dict[str, Any] = {}
    for field in struct.__struct_fields__:
        if draw(st.booleans()):
            fields[field] = draw(FORMS.get(field, values_of(None)))
    return json.dumps(fields).encode("utf-8", "surrogatepass")


def _form(*fields: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({}, optional={name: values_of(None) for name in fields})


rules_in_text = st.builds(
    lambda on, words, action, rest: f"{on} {words} -> {action} {rest}",
    st.sampled_from(["EndTxn", "Prod*", "txn.marker", "*", "cut", ""]) | words,
    st.lists(
        st.sampled_from(["nth=2", "p=0.5", "p=nan", "topic='", "version=3..", "node=-1", "seed=1", "x=1"])
    ).map(" ".join),
    names,
    st.sampled_from(
        ["", "1 2", "5ms", "silent", "by=0", "6", "-1", "NOT_COORDINATOR", "99999999999999999999d"]
    ),
)
action_forms = _form("do", "code", "delay", "delay_ms", "silent", "by", "nodes", "one_way", "fields")
match_forms = _form("version", "client_id", "topic", "partition", "node", "peer")
when_forms = _form("after", "nth", "every", "times", "p", "seed", "expires", "expires_ms")
FORMS: dict[str, st.SearchStrategy[Any]] = {
    "rule": rules_in_text
    | st.fixed_dictionaries({"action": action_forms}, optional={"on": names, "match": match_forms}),
    "action": names | action_forms,
    "match": match_forms,
    "when": when_forms,
    "on": names,
    "by": st.sampled_from(["7d", "1ms", "0s", "-1d", "1e400d", "9" * 90 + "d", "1.5h", "٣d"]) | words,
    "by_ms": st.integers(0, 1000) | numbers,
    "only": st.lists(st.sampled_from(["transactions", "ids", "all", "groups", "tea"]) | words, max_size=4),
}


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    operation = draw(st.sampled_from([each for each in OPERATIONS if each.name not in ENDLESS]))
    path = operation.path
    for name in operation.path_names:
        value = draw(st.integers(0, 4).map(str) | numbers.map(str) | words)
        path = path.replace(f"{{{name}}}", quote(value.encode("utf-8", "surrogatepass"), safe="") or "%20")
    query = []
    for name in operation.params.__struct_fields__ if operation.params is not None else ["x"]:
        if name not in operation.path_names and draw(st.integers(0, 3)) == 0:
            value = str(draw(numbers | names | st.sampled_from(["true", "false", "1"])))
            query.append(f"{name}={quote(value.encode('utf-8', 'surrogatepass'))}")
    if operation.name == "wait_for_fault":
        query = [each for each in query if not each.startswith("timeout_ms")] + ["timeout_ms=1"]
    body = (
        draw(bodies(operation.body))
        if operation.body is not None
        else draw(st.sampled_from([b"", b"{}", b"[]"]))
    )
    method = (
        operation.method
        if draw(st.integers(0, 9))
        else draw(st.sampled_from(["GET", "POST", "PUT", "DELETE"]))
    )
    head = f"{method} {path}{'?' * bool(query)}{'&'.join(query)} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


FUZZED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@FUZZED
@given(request=requests())
def test_what_is_asked_in_an_odd_way_is_refused_with_a_sentence(raw: Any, request: bytes) -> None:
    is_json = not any(path in request for path in NO_JSON.values())
    check(raw(request), is_json=is_json)


@FUZZED
@given(
    data=st.binary(max_size=200),
    begin=st.sampled_from(
        [b"", b"GET /v1/cluster HTTP/1.1\r\n", b"POST /v1/faults HTTP/1.1\r\nHost: localhost\r\n"]
    ),
)
def test_what_is_no_http_is_no_5xx(raw: Any, data: bytes, begin: bytes) -> None:
    check(raw(begin + data + b"\r\n\r\n"), is_json=False)


def test_every_operation_is_among_those_that_are_tried() -> None:
    endless = [each.name for each in OPERATIONS if each.answer is Stream and each.name not in NO_JSON]
    assert tuple(endless) == ENDLESS
