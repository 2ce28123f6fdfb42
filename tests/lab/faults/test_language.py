"""The language of fault rules: its text and JSON forms are equivalent, and invalid rules are rejected with a sentence."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.injection.points import POINTS
from lab.faults import (
    ACTIONS,
    Action,
    FaultError,
    Match,
    Rule,
    When,
    parse_rule,
    rule_to_json,
    rule_to_text,
)
from lab.faults.rules import API_KEYS, DELAY_MS_MAX, SENDERS, Place, matches
from protocol.errors import ErrorCode
from tests.lab.faults.json_rules import rule_from_json

RULES: dict[str, Rule] = {
    "EndTxn transactional_id=payments nth=2 -> lose-answer": Rule(
        Action("lose-answer"), "EndTxn", Match(transactional_id="payments"), When(nth=2)
    ),
    "Produce topic=orders partition=0 p=0.1 seed=7 -> error NOT_LEADER_OR_FOLLOWER": Rule(
        Action("error", code="NOT_LEADER_OR_FOLLOWER"),
        "Produce",
        Match(topic="orders", partition=0),
        When(p=0.1, seed=7),
    ),
    "txn.marker topic=orders -> hold": Rule(Action("hold"), "txn.marker", Match(topic="orders")),
    "'*' client_id='a b' every=3 -> delay 2s": Rule(
        Action("delay", delay_ms=2000), "*", Match(client_id="a b"), When(every=3)
    ),
    "Fetch version=3..5 peer=127.0.0.1 listener=OUTSIDE -> lose-request silent": Rule(
        Action("lose-request", silent=True),
        "Fetch",
        Match(version="3..5", peer="127.0.0.1", listener="OUTSIDE"),
    ),
    "AddPartitionsToTxn sender=client nth=2 -> lose-answer": Rule(
        Action("lose-answer"), "AddPartitionsToTxn", Match(sender="client"), When(nth=2)
    ),
    "InitProducerId version=4.. connection=7 -> reorder 2": Rule(
        Action("reorder", by=2), "InitProducerId", Match(version="4..", connection=7)
    ),
    "*Group* group=g* node=1 after=2 times=1 -> duplicate": Rule(
        Action("duplicate"), "*Group*", Match(group="g*", node=1), When(after=2, times=1)
    ),
    "Fetch topic=orders -> answer throttle_time_ms=500": Rule(
        Action("answer", fields={"throttle_time_ms": 500}), "Fetch", Match(topic="orders")
    ),
    "EndTxn -> answer error_code=CONCURRENT_TRANSACTIONS producer_epoch=7": Rule(
        Action("answer", fields={"error_code": 51, "producer_epoch": 7}), "EndTxn"
    ),
    "SaslAuthenticate mechanism=SCRAM* nth=2 -> delay 2s": Rule(
        Action("delay", delay_ms=2000), "SaslAuthenticate", Match(mechanism="SCRAM*"), When(nth=2)
    ),
    "Produce principal=User:alice nth=3 -> remove-acls": Rule(
        Action("remove-acls"), "Produce", Match(principal="User:alice"), When(nth=3)
    ),
    "Fetch -> remove-acls topic=orders operation=Read": Rule(
        Action("remove-acls", acl={"topic": "orders", "operation": "READ"}), "Fetch"
    ),
    "Fetch -> add-acl operation=idempotent_write cluster=kafka-cluster permission=deny": Rule(
        Action(
            "add-acl",
            acl={"operation": "IDEMPOTENT_WRITE", "cluster": "kafka-cluster", "permission": "DENY"},
        ),
        "Fetch",
    ),
    "cut 1 2": Rule(Action("cut", nodes=[1, 2])),
    "cut 1 2 one-way expires=5m": Rule(
        Action("cut", nodes=[1, 2], one_way=True), when=When(expires_ms=300_000)
    ),
    "slow-link 1 2 200ms": Rule(Action("slow-link", nodes=[1, 2], delay_ms=200)),
    "slow-link delay=200ms 1 2": Rule(Action("slow-link", nodes=[1, 2], delay_ms=200)),
    "pause node=2 topic=orders": Rule(Action("pause"), match=Match(node=2, topic="orders")),
    "slow-disk node=1 delay=200ms": Rule(Action("slow-disk", delay_ms=200), match=Match(node=1)),
    "full-disk node=1 topic=orders partition=0 times=2": Rule(
        Action("full-disk"), match=Match(node=1, topic="orders", partition=0), when=When(times=2)
    ),
}


@pytest.mark.parametrize("text", RULES)
def test_a_line_says_a_rule(text: str) -> None:
    assert parse_rule(text) == RULES[text]


def test_the_json_form_is_as_people_would_write_it() -> None:
    assert rule_to_json(parse_rule("Fetch version=3..5 nth=2 expires=1s -> error 6")) == {
        "on": "Fetch",
        "match": {"version": "3..5"},
        "when": {"nth": 2, "expires": "1s"},
        "action": {"do": "error", "code": "NOT_LEADER_OR_FOLLOWER"},
    }
    assert rule_to_json(parse_rule("slow-link 1 2 200ms one-way")) == {
        "action": {"do": "slow-link", "delay": "200ms", "nodes": [1, 2], "one_way": True}
    }


def test_times_are_durations_or_milliseconds() -> None:
    rule = parse_rule("Produce expires=1m30s -> delay 1.5s")
    assert (rule.when.expires_ms, rule.action.delay_ms) == (90_000, 1500)
    assert rule_to_text(rule) == "Produce expires=1m30s -> delay 1.5s"
    for form in (
        {"on": "Produce", "when": {"expires": "90s"}, "action": {"do": "delay", "delay": "1500ms"}},
        {"on": "Produce", "when": {"expires_ms": 90_000}, "action": {"do": "delay", "delay_ms": 1500}},
    ):
        assert rule_from_json(form) == rule
    with pytest.raises(FaultError, match="delay is given twice"):
        rule_from_json({"on": "Produce", "action": {"do": "delay", "delay": "1s", "delay_ms": 1000}})
    with pytest.raises(ValueError, match=r"the field when.expires: expected `str \| null`, got `int`"):
        rule_from_json({"on": "Produce", "when": {"expires": 10}, "action": "drop"})


def test_json_has_short_forms() -> None:
    assert rule_from_json({"rule": "Produce -> drop"}) == Rule(Action("drop"), "Produce")
    assert rule_from_json({"rule": {"on": "Produce", "action": "drop"}}) == Rule(Action("drop"), "Produce")
    assert rule_from_json({"on": "Produce", "action": "drop"}) == Rule(Action("drop"), "Produce")
    form = {"on": "Produce", "match": {"version": "9", "topic": None}, "action": {"do": "error", "code": "6"}}
    assert rule_from_json(form) == parse_rule("Produce version=9 -> error NOT_LEADER_OR_FOLLOWER")


# ---- random rules


NAMES = st.text(min_size=0, max_size=8).filter(lambda text: "\0" not in text)
NUMBERS = st.integers(0, 10**6)
POSITIVE = st.integers(1, 10**6)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def spans(draw: st.DrawFn) -> str:
    first = draw(st.integers(0, 30))
    return f"{first}..{draw(st.just('') | st.integers(first, 30))}"


CALL_MATCHES = st.builds(
    Match,
    version=maybe(spans()),
    sender=maybe(st.sampled_from(SENDERS)),
    client_id=maybe(NAMES),
    transactional_id=maybe(NAMES),
    topic=maybe(NAMES),
    partition=maybe(NUMBERS),
    group=maybe(NAMES),
    member=maybe(NAMES),
    node=maybe(NUMBERS),
    connection=maybe(NUMBERS),
    listener=maybe(NAMES),
    peer=maybe(NAMES),
    principal=maybe(NAMES),
)
SHARE_MATCHES = st.builds(
    Match,
    topic=maybe(NAMES),
    partition=maybe(NUMBERS),
    offset=maybe(NUMBERS),
    group=maybe(NAMES),
    member=maybe(NAMES),
)
CIRCUMSTANCES = st.builds(
    Match,
    version=maybe(spans()),
    client_id=maybe(NAMES),
    node=maybe(NUMBERS),
    connection=maybe(NUMBERS),
    listener=maybe(NAMES),
    peer=maybe(NAMES),
    principal=maybe(NAMES),
)
POINT_MATCHES = st.builds(
    Match,
    transactional_id=maybe(NAMES),
    topic=maybe(NAMES),
    partition=maybe(NUMBERS),
    group=maybe(NAMES),
    node=maybe(NUMBERS),
)
DISK_MATCHES = st.builds(Match, topic=maybe(NAMES), partition=maybe(NUMBERS), node=maybe(NUMBERS))
PAUSES = st.builds(
    Match, topic=NAMES.filter(lambda name: "*" not in name), partition=maybe(NUMBERS), node=NUMBERS
)
EXPIRES = maybe(st.integers(1, DELAY_MS_MAX))
STATES = st.builds(When, expires_ms=EXPIRES)


@st.composite
def whens(draw: st.DrawFn) -> When:
    p = draw(maybe(st.floats(0, 1)))
    return When(
        after=draw(NUMBERS),
        nth=draw(maybe(POSITIVE)),
        every=draw(maybe(POSITIVE)),
        times=draw(maybe(POSITIVE)),
        p=p,
        seed=0 if p is None else draw(NUMBERS),
        expires_ms=draw(EXPIRES),
    )


@st.composite
def actions(draw: st.DrawFn, place: Place) -> Action:
    do = draw(
        st.sampled_from(
            sorted(
                name
                for name, kind in ACTIONS.items()
                if place in kind.places and not {"acl", "fields"} & {*kind.parameters}
            )
        )
    )
    values: dict[str, Any] = {
        "code": st.sampled_from([code.name for code in ErrorCode if code is not ErrorCode.none]),
        "delay_ms": st.integers(0, DELAY_MS_MAX),
        "silent": st.booleans(),
        "by": POSITIVE,
        "nodes": st.lists(NUMBERS, min_size=2, max_size=2, unique=True),
        "one_way": st.booleans(),
    }
    return Action(do, **{name: draw(values[name]) for name in ACTIONS[do].parameters})


ALTERATIONS = st.builds(
    lambda fields: Action("answer", fields=fields),
    st.dictionaries(
        st.sampled_from(["error_code", "throttle_time_ms"]), st.integers(0, 2**15 - 1), min_size=1
    ),
)
"""Actions `answer` with fields that many APIs have."""


WORDS = st.text(min_size=1, max_size=8).filter(lambda text: "\0" not in text)
ENTRIES: dict[str, st.SearchStrategy[str]] = {
    "principal": WORDS.map(lambda name: f"User:{name}"),
    "host": WORDS,
    "permission": st.sampled_from(["ALLOW", "DENY"]),
}
OPERATIONS_OF_ACLS = {"operation": st.sampled_from(["ALL", "WRITE", "TWO_PHASE_COMMIT"])}
RESOURCES = st.tuples(st.sampled_from(["topic", "group", "transactional_id", "user"]), WORDS)


@st.composite
def acl_changes(draw: st.DrawFn) -> Action:
    do = draw(st.sampled_from(["add-acl", "remove-acls"]))
    needed, others = (OPERATIONS_OF_ACLS, ENTRIES) if do == "add-acl" else ({}, ENTRIES | OPERATIONS_OF_ACLS)
    given: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(needed, optional=others)
    words: list[tuple[str, Any]] = list(draw(given).items())
    is_needed = len(needed) > 0
    if is_needed or draw(st.booleans()):
        words.append(draw(RESOURCES))
    return Action(do, acl=dict(draw(st.permutations(words))))


def patterns(names: list[str]) -> st.SearchStrategy[str]:
    """Names, some of them with a star in place of the second letter."""
    return st.sampled_from(names) | st.sampled_from(names).map(lambda name: name[:1] + "*" + name[2:])


ANY_RULE = st.one_of(
    st.builds(
        Rule, ALTERATIONS, st.sampled_from(["*", "*Txn*", "EndTxn", "Produce"]), CIRCUMSTANCES, whens()
    ),
    st.builds(
        Rule, actions(Place.CALL), st.sampled_from(["*", "*Txn*", "TxnOffsetCommit"]), CALL_MATCHES, whens()
    ),
    st.builds(Rule, actions(Place.CALL), st.sampled_from(["*", "Share*"]), SHARE_MATCHES, whens()),
    st.builds(
        Rule,
        st.sampled_from([Action("lose-answer", silent=True), Action("kill")]),
        st.sampled_from(["*", "ShareFetch"]),
        st.builds(Match, topic=maybe(NAMES), acquired=NUMBERS),
        whens(),
    ),
    st.builds(Rule, actions(Place.CALL), patterns(sorted(API_KEYS)), CIRCUMSTANCES, whens()),
    st.builds(Rule, acl_changes(), st.sampled_from(["*", "Produce"]), CIRCUMSTANCES, whens()),
    st.builds(
        Rule,
        actions(Place.CALL),
        st.sampled_from(["*", "Sasl*"]),
        st.builds(Match, mechanism=NAMES, principal=maybe(NAMES)),
        whens(),
    ),
    st.builds(Rule, actions(Place.POINT), st.sampled_from(["*.append", "*.*"]), POINT_MATCHES, whens()),
    st.builds(Rule, actions(Place.POINT), patterns(sorted(POINTS)), DISK_MATCHES, whens()),
    st.builds(Rule, actions(Place.LINK), st.none(), st.just(Match()), STATES),
    st.builds(Rule, actions(Place.REPLICA), st.none(), PAUSES, STATES),
    st.builds(Rule, actions(Place.DISK), st.none(), DISK_MATCHES, whens()),
)


@given(ANY_RULE)
def test_text_and_json_say_the_same_and_all_of_a_rule(rule: Rule) -> None:
    assert parse_rule(rule_to_text(rule)) == rule
    assert rule_from_json(json.loads(json.dumps(rule_to_json(rule)))) == rule


@given(st.text(alphabet="Produce.txnmark=-> '\"*0123456789abc\n", max_size=60) | st.text(max_size=30))
def test_any_text_is_a_rule_or_a_sentence(text: str) -> None:
    with contextlib.suppress(FaultError):
        rule = parse_rule(text)
        assert parse_rule(rule_to_text(rule)) == rule


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)


@given(JSON, JSON, JSON, JSON)
def test_any_json_is_a_rule_or_a_sentence(form: Any, action: Any, match: Any, when: Any) -> None:
    for each in (
        form,
        {"on": "Produce", "action": action},
        {"on": "Produce", "action": {"do": "delay", "delay_ms": action}},
        {"on": "Produce", "action": {"do": "error", "code": action}},
        {"action": {"do": "cut", "nodes": [match, when]}},
        {"on": match, "match": {"partition": action}, "action": "drop"},
        {"on": "Produce", "match": match, "when": when, "action": "drop"},
        {"on": "Produce", "match": {"version": match, "topic": when}, "when": {"p": form}, "action": "drop"},
    ):
        with contextlib.suppress(ValueError):
            rule_from_json(each)


# ---- invalid rules


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the rule is empty"),
        ("EndTx -> hold", "the API 'EndTx' is not known; did you mean EndTxn"),
        ("endtxn -> hold", "the API 'endtxn' is not known; did you mean EndTxn"),
        ("Nothing* -> hold", "the API 'Nothing*' is not known"),
        ("txn.maker -> hold", "the point 'txn.maker' is not known; did you mean txn.marker"),
        ("EndTxn -> lose-answr", "the action 'lose-answr' is not known; did you mean lose-answer?"),
        ("EndTxn -> explode", "the action 'explode' is not known; known: add-acl, answer, crash"),
        ("EndTxn -> hald", "the action 'hald' is not known; did you mean hold"),
        ("EndTxn", "needs an arrow and an action"),
        ("EndTxn ->", "an action is missing behind the arrow; actions: add-acl, answer, crash, cut"),
        ("-> hold", "in front of the arrow must begin with an API or a point"),
        ("topic=a -> hold", "in front of the arrow must begin with an API or a point"),
        ("Produce topic -> hold", "'topic' is not of the form name=value"),
        ("Produce topik=a -> hold", "the condition 'topik' is not known; did you mean topic"),
        ("Produce topic=a topic=b -> hold", "topic is given twice"),
        ("Produce 'a -> hold", "the quotes"),
        (
            "txn.marker -> lose-answer",
            "lose-answer is not possible at a point inside the broker (txn.marker)",
        ),
        ("Produce -> lose", "lose is not possible at an API (Produce); possible: add-acl, answer, crash"),
        ("Produce -> cut 1 2", "cut takes no API or point"),
        ("hold", "hold needs an API or a point, such as"),
        (
            "txn.marker client_id=a -> hold",
            "txn.marker has no condition client_id; its conditions: node, part",
        ),
        ("cut 1 2 topic=a", "cut has no condition topic"),
        ("WriteTxnMarkers transactional_id=a -> hold", "WriteTxnMarkers has no condition transactional_id"),
        ("Heartbeat topic=a -> hold", "its conditions: client_id, connection, group, listener"),
        ("Metadata topic=a partition=0 -> hold", "Metadata has no condition partition"),
        (
            "log.write group=g -> hold",
            "log.write has no condition group; its conditions: node, partition, topic",
        ),
        ("group.append transactional_id=a -> hold", "group.append has no condition transactional_id"),
        ("EndTxn member=a -> hold", "EndTxn has no condition member"),
        ("Fetch offset=5 -> hold", "Fetch has no condition offset; its conditions: client_id, connection"),
        ("ShareGroupHeartbeat offset=5 -> hold", "ShareGroupHeartbeat has no condition offset"),
        ("ShareAcknowledge acquired=5 -> kill", "ShareAcknowledge has no condition acquired"),
        (
            "ShareFetch acquired=5 -> hold",
            "hold is not possible with acquired, which the response shows; possible: answer, crash, kill, lose-answer",
        ),
        ("ShareFetch offset=x -> hold", "offset: 'x' is not a whole number"),
        ("group.append offset=5 -> hold", "group.append has no condition offset"),
        ("log.write member=a -> hold", "log.write has no condition member"),
        ("EndTxn sender=broker -> hold", "sender 'broker' is not known; known: client, node"),
        ("txn.marker sender=node -> hold", "txn.marker has no condition sender"),
        ("cut 1", "cut needs two nodes"),
        ("cut", "cut needs two nodes"),
        ("cut 1 1", "two different nodes"),
        ("cut 1 two", "'two' is not a whole number"),
        ("cut 1 2 3", "cut takes no '3'"),
        ("cut 1 2 nth=3", "it can have the condition 'expires', but not 'nth'"),
        ("slow-link 1 2", "slow-link needs a delay"),
        ("pause", "pause needs a node"),
        ("pause node=1 topic=a*", "pause takes the name of one topic"),
        ("pause node=1 partition=0", "pause: a partition needs a topic"),
        ("slow-disk", "slow-disk needs a delay, such as 200ms"),
        ("Produce -> error", "error needs an error code, such as NOT_COORDINATOR"),
        ("Produce -> error NOT_LEADER", "the error 'NOT_LEADER' is not known; did you mean"),
        ("Produce -> error NONE", "NONE is not an error code"),
        ("Produce -> error 9999", "the error '9999' is not known"),
        ("Produce -> delay", "delay needs a delay"),
        ("Produce -> delay soon", "'soon' is not a duration"),
        ("Produce -> delay 8d", "a delay must be between 0 and"),
        ("Produce -> delay 1s delay=1s", "delay is given twice"),
        ("Produce -> drop silent", "drop has no parameter silent"),
        ("Produce -> answer", "answer needs fields of the response, such as throttle_time_ms=500"),
        (
            "Fetch -> answer throttle_time=5",
            "Fetch: the response's field 'throttle_time' is not known; did you mean thr",
        ),
        ("Fetch -> answer producer_epoch=5", "Fetch: the response's field 'producer_epoch' is not known"),
        ("Fetch -> answer records=5", "Fetch: the response's field 'records' is not known"),
        (
            "EndTxn -> answer error_code=NO_SUCH",
            "error_code must be an error by Kafka's name or number, not 'NO_SUCH'",
        ),
        (
            "EndTxn -> answer producer_epoch=40000",
            "producer_epoch must be between -32768 and 32767, not 40000",
        ),
        ("EndTxn -> answer throttle_time_ms=soon", "throttle_time_ms must be a whole number, not 'soon'"),
        ("EndTxn -> answer error_code=1 error_code=2", "answer: error_code is given twice"),
        ("EndTxn -> answer silent", "answer takes no 'silent', but fields"),
        ("txn.marker -> answer error_code=1", "answer is not possible at a point inside the broker"),
        ("Produce mechanism=PLAIN -> hold", "Produce has no condition mechanism"),
        (
            "SaslAuthenticate topic=a -> hold",
            "SaslAuthenticate has no condition topic; its conditions: client_id, connection",
        ),
        ("txn.marker principal=User:a -> hold", "txn.marker has no condition principal"),
        ("txn.marker -> remove-acls", "remove-acls is not possible at a point inside the broker"),
        (
            "Produce -> remove-acls orders",
            "remove-acls takes no 'orders', but parts of an ACL, such as topic=orders",
        ),
        ("Produce -> remove-acls topic=a topic=b", "remove-acls: topic is given twice"),
        (
            "Produce -> remove-acls topic=a group=b",
            "remove-acls: only one resource is allowed, not topic and group",
        ),
        ("Produce -> remove-acls topic=", "remove-acls: topic is empty"),
        (
            "Produce -> remove-acls principal=alice",
            "a principal is of the form User:alice, not 'alice'",
        ),
        ("Produce -> remove-acls operation=Any", "the operation 'Any' is not known; known: ALL, READ"),
        ("Produce -> remove-acls permission=ANY", "the permission 'ANY' is not known; known: DENY, ALLOW"),
        ("Produce -> remove-acls table=a", "'table' is not known; known: principal, host, operation"),
        ("Produce -> remove-acls cluster=mine", "the cluster resource must be kafka-cluster"),
        ("Produce -> add-acl", "add-acl needs an operation and a resource"),
        ("Produce -> add-acl topic=a", "add-acl: an operation is missing"),
        (
            "Produce -> add-acl operation=WRITE",
            "add-acl: a resource is missing, such as topic=orders; resources: topic",
        ),
        ("Produce -> drop now", "drop takes no 'now'"),
        ("Produce -> drop code=3", "drop has no parameter code"),
        ("Produce -> drop colour=red", "the parameter 'colour' is not known"),
        ("Produce -> reorder 0", "reorder: the number of requests that go first"),
        ("Produce nth=0 -> drop", "nth: 0 is below 1"),
        ("Produce p=1.5 -> drop", "p: 1.5 is not a probability"),
        ("Produce p=nan -> drop", "p: nan is not a probability"),
        ("Produce p=x -> drop", "p: 'x' is not a probability"),
        ("Produce seed=1 -> drop", "seed needs p"),
        ("Produce version=5..3 -> drop", "5..3 is not a range of versions"),
        ("Produce version=new -> drop", "'new' is not a version"),
        ("Produce partition=-1 -> drop", "'-1' is not a whole number"),
        ("Produce expires=8d -> drop", "expires: at most"),
        ("x" * 5000, "at most 4096 characters"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(FaultError) as refused:
        parse_rule(text)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (None, "a rule needs an action"),
        ([], "the field rule: expected `str | object | null`, got `array`"),
        ({}, 'a rule needs an action, such as {"on": "Produce", "action": {"do": "lo'),
        ({"action": {}}, "the field action: object missing required field `do`"),
        ({"action": 3}, "the field action: expected `str | object | null`, got `int`"),
        (
            {"action": "drop", "at": "Produce"},
            "the field 'at' is not known; known: action, match, on, rule, when",
        ),
        ({"action": "drop", "on": 3}, "the field on: expected `str | null`, got `int`"),
        (
            {"action": "drop", "on": "Produce", "match": {"topic": 3}},
            "the field match.topic: expected `str | null`, got `int`",
        ),
        (
            {"action": "drop", "on": "Produce", "match": {"partition": "0"}},
            "the field match.partition: expected `int | null`, got `str`",
        ),
        (
            {"action": "drop", "on": "Produce", "match": {"partition": True}},
            "the field match.partition: expected `int | null`, got `bool`",
        ),
        (
            {"action": "drop", "on": "Produce", "match": {"partition": -1}},
            "the field match.partition: expected `int` >= 0",
        ),
        (
            {"action": "drop", "on": "Produce", "when": {"nth": 1.5}},
            "the field when.nth: expected `int | null`, got `float`",
        ),
        (
            {"action": "drop", "on": "Produce", "when": {"p": "1"}},
            "the field when.p: expected `float | null`, got `str`",
        ),
        (
            {"action": "drop", "on": "Produce", "when": {"often": 1}},
            "when: the field 'often' is not known; did you mean after?",
        ),
        ({"action": {"do": "cut", "nodes": [1]}}, "nodes: [1] is not a list of two nodes, such as [1, 2]"),
        (
            {"action": {"do": "lose-answer", "silent": 1}, "on": "Produce"},
            "the field action.silent: expected `bool | null`, got `int`",
        ),
        (
            {"action": {"do": "remove-acls", "acl": {"topic": 1}}, "on": "Produce"},
            "the field action.acl[...]: expected `str`, got `int`",
        ),
        (
            {"rule": "Produce -> drop", "on": "Produce"},
            "give the rule either as text in the field 'rule', or as JSON in the other fields",
        ),
    ],
)
def test_json_that_makes_no_sense_is_refused_with_a_sentence(form: Any, sentence: str) -> None:
    with pytest.raises(ValueError) as refused:
        rule_from_json(form)
    assert sentence in str(refused.value)


# ---- patterns


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("orders*", "orders", True),
        ("*", "", True),
        ("*", None, False),
        ("a*c", "abbc", True),
        ("a*c", "abcd", False),
        ("a.c", "abc", False),
        ("[a]*", "a", False),
        ("*\n*", "a\nb", True),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_a_star_is_any_characters_and_nothing_else_is_special(
    pattern: str, name: str | None, meant: bool
) -> None:
    assert matches(pattern, name) == meant


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_a_pattern_means_what_a_regular_expression_of_it_does(pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern.replace("*", ".*"), name) is not None
    assert matches(pattern, name) == expected


def test_a_pattern_costs_no_more_than_a_walk_along_the_name() -> None:
    """Matching a pattern takes linear time. A regular expression with as many stars would practically never end."""
    assert not matches("*a" * 100 + "*b", "a" * 32_767)
    assert matches("*a" * 100 + "*b", "a" * 32_767 + "b")


def test_a_pattern_with_a_dot_means_points_and_one_without_apis() -> None:
    assert parse_rule("* -> hold").points == frozenset()
    assert parse_rule("* -> hold").api_keys == frozenset(API_KEYS.values())
    assert parse_rule("txn.* -> hold").points == {"txn.complete.append", "txn.marker", "txn.prepare.append"}
    assert parse_rule("*.append -> hold").api_keys == frozenset()
    assert parse_rule("slow-disk delay=1").points == {"log.write", "log.fsync"}
    assert parse_rule("full-disk").points == {"log.write"}
