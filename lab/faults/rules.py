"""The rule language: a rule's parts, and which rules are valid. Pure: nothing is executed here.

A rule has an API or a step inside the broker (or only an action), conditions to match, conditions for a hit, and an action:

    EndTxn transactional_id=payments nth=2 -> lose-answer

`lab.faults.declaration` declares the fields. The text form (`lab.faults.text`) and the JSON form are equivalent.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec

from broker.clock.durations import duration_text
from broker.injection.points import POINTS
from lab.faults.acl_words import BadAcl, checked_words
from lab.faults.altered_answers import BadField, checked, known_fields
from lab.faults.declaration import MS, Action, Match, Part, When
from lab.faults.fields import known_at, named_by
from lab.faults.values import SETTLED, FaultError, parse_duration, parse_span, there_is
from protocol.errors import NONE
from protocol.messages.index import APIS
from protocol.slotted import slotted
from protocol.versions import message_name

API_KEYS: Final = {message_name(name): key for key, (name, *_) in APIS.items()}
"""Api key of each API, by its name in Kafka's documentation."""

DELAY_MS_MAX: Final = 7 * 24 * 3600 * 1000

DISK_POINTS: Final = ("log.fsync", "log.write")


class Place(Enum):
    """The type of place where an action is possible; the value is its name in messages."""

    CALL = "an API"
    POINT = "a point inside the broker"
    LINK = "a link between two nodes"
    REPLICA = "a replica"
    DISK = "a disk"


@slotted(frozen=True)
class Kind:
    """The parameters of one action, and the types of place where the action is possible."""

    places: frozenset[Place]
    parameters: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    sentence: str = ""


def _kind(places: Iterable[Place], sentence: str, *parameters: str, required: tuple[str, ...] = ()) -> Kind:
    return Kind(frozenset(places), parameters, required, sentence)


_BOTH: Final = (Place.CALL, Place.POINT)

ACTIONS: Final[dict[str, Kind]] = {
    "error": _kind(
        _BOTH, "respond with this error and do not handle the request", "code", required=("code",)
    ),
    "lose-request": _kind([Place.CALL], "close the connection, do not handle the request", "silent"),
    "lose-answer": _kind(
        [Place.CALL], "handle the request, then close the connection without a response", "silent"
    ),
    "answer": _kind(
        [Place.CALL],
        "handle the request, respond with other values in these fields",
        "fields",
        required=("fields",),
    ),
    "delay": _kind(
        _BOTH, "handle the request, or take the step, after this time", "delay_ms", required=("delay_ms",)
    ),
    "drop": _kind([Place.CALL], "reset the connection, do not handle the request"),
    "duplicate": _kind([Place.CALL], "handle the request twice, send the first response"),
    "hold": _kind(_BOTH, "wait until the rule is released"),
    "detach": _kind([Place.CALL], "close the connection, handle the request when the rule is released"),
    "reorder": _kind([Place.CALL], "close the connection, handle the request after later matches", "by"),
    "lose": _kind([Place.POINT], "the step never happens"),
    "remove-acls": _kind([Place.CALL], "remove ACLs, then handle the request", "acl"),
    "add-acl": _kind([Place.CALL], "create an ACL, then handle the request", "acl", required=("acl",)),
    "kill": _kind(_BOTH, "kill the node"),
    "crash": _kind(_BOTH, "kill the process with SIGKILL"),
    "cut": _kind(
        [Place.LINK], "the link between two nodes passes nothing", "nodes", "one_way", required=("nodes",)
    ),
    "slow-link": _kind(
        [Place.LINK],
        "the link between two nodes delays everything",
        "nodes",
        "delay_ms",
        "one_way",
        required=("nodes", "delay_ms"),
    ),
    "pause": _kind([Place.REPLICA], "the followers on this node stop fetching"),
    "slow-disk": _kind(
        [Place.DISK], "the disk completes writes after this time", "delay_ms", required=("delay_ms",)
    ),
    "full-disk": _kind([Place.DISK], "writes fail with KAFKA_STORAGE_ERROR"),
}


PLACED: Final = frozenset({Place.CALL, Place.POINT})
"""The types of place that the text of a rule names in front of its arrow: an API or an injection point.

In all other rules the action determines the type of place.
"""

# Conditions that are possible at each place.
_ASKED: Final[dict[Place, frozenset[str]]] = {
    Place.CALL: frozenset(Match.__struct_fields__),
    Place.POINT: frozenset({"transactional_id", "topic", "partition", "offset", "group", "node"}),
    Place.LINK: frozenset(),
    Place.REPLICA: frozenset({"topic", "partition", "node"}),
    Place.DISK: frozenset({"topic", "partition", "node"}),
}
SENDERS: Final = ("client", "node")
_NAMED: Final = (
    "transactional_id",
    "group",
    "member",
    "topic",
    "partition",
    "offset",
    "acquired",
    "mechanism",
)
ON_RESPONSES: Final = ("answer", "crash", "kill", "lose-answer")
"""The actions that are possible when a rule is matched by a response."""
_CONDITIONS_OF_A_STATE: Final = frozenset({"expires_ms"})
"""The only fields of `When` in rules on links and replicas, because such rules have no matches to count."""
_UNSAID: Final = {"after": 0, "seed": 0, "by": 1, "silent": False, "one_way": False}
"""Default values. A rule that states a default is equal to a rule that leaves it out."""


@slotted(frozen=True)
class Rule:
    """One fault rule. Raises ``FaultError`` if it is invalid."""

    action: Action
    on: str | None = None
    """A pattern of API names or (if it has a dot) of points; None for actions on links, replicas and disks."""
    match: Match = Match()
    when: When = When()

    def __post_init__(self) -> None:
        for name, part in (("match", self.match), ("when", self.when), ("action", self.action)):
            object.__setattr__(self, name, _settled(part))
        kind = _kind_of(self.action)
        _check_parameters(self.action, kind)
        place = _check_place(self, kind)
        _check_match(self, place)
        _check_when(self.when)
        _check_when_fits(self, place)
        if self.action.fields:
            _check_fields(self)
        if "acl" in kind.parameters:
            _check_acl(self)

    @property
    def place(self) -> Place:
        """The type of place where the rule acts."""
        if self.on is None:
            (place,) = ACTIONS[self.action.do].places
            return place
        return Place.POINT if "." in self.on else Place.CALL

    @property
    def api_keys(self) -> frozenset[int]:
        """The keys of the APIs whose names match the rule; empty for a rule on something else than requests."""
        if self.on is None or self.place is not Place.CALL:
            return frozenset()
        return frozenset(API_KEYS[name] for name in API_KEYS if matches(self.on, name))

    @property
    def points(self) -> frozenset[str]:
        """The points whose names match the rule; for an action on a disk, the points of its writes and syncs."""
        if self.place is Place.DISK:
            return frozenset({"log.write"} if self.action.do == "full-disk" else DISK_POINTS)
        if self.on is None or self.place is not Place.POINT:
            return frozenset()
        return frozenset(name for name in POINTS if matches(self.on, name))


def matches(pattern: str, name: str | None) -> bool:
    """Whether ``name`` matches ``pattern``. None matches no pattern.

    Each piece between two stars is matched at its first occurrence, which never prevents a later piece from matching. A
    regular expression would try all positions: five stars and a topic of 249 letters blocked the event loop for a minute.
    """
    if name is None:
        return False
    if "*" not in pattern:
        return pattern == name
    first, *pieces, last = pattern.split("*")
    end = len(name) - len(last)
    if not name.startswith(first) or not name.endswith(last) or end < len(first):
        return False
    at = len(first)
    for piece in pieces:
        found = name.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def rule_of(action: Action | str | None, on: str | None, match: Match | None, when: When | None) -> Rule:
    """The rule of a JSON object. Raises ``FaultError`` if it is invalid."""
    if action is None:
        raise FaultError('a rule needs an action, such as {"on": "Produce", "action": {"do": "lose-answer"}}')
    return Rule(Action(action) if isinstance(action, str) else action, on, match or Match(), when or When())


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """The JSON form, from which ``rule_of`` makes an equal rule. Defaults are left out."""
    form: dict[str, Any] = {"on": rule.on, "match": _plain(rule.match), "when": _plain(rule.when)}
    return {**{name: said for name, said in form.items() if said}, "action": _plain(rule.action)}


def _plain(part: Part) -> dict[str, Any]:
    """The fields of a part of a rule, with durations as text (``2s``) instead of milliseconds."""
    said: dict[str, Any] = msgspec.to_builtins(part)
    return {
        name.removesuffix(MS): duration_text(value) if name.endswith(MS) else value
        for name, value in said.items()
    }


_P = TypeVar("_P", bound=Part)


def _settled(part: _P) -> _P:
    """The part of a rule in its normal form: durations in milliseconds, errors by name, no default values."""
    changed: dict[str, object] = {}
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if value is None:
            continue
        if value == _UNSAID.get(name, {}):
            changed[name] = None
        elif (ms := f"{name}{MS}") in part.__struct_fields__:
            changed |= {name: None, ms: parse_duration(name, value)}
            if getattr(part, ms) is not None:
                raise FaultError(f"{name} is given twice: as {name} and as {ms}")
        elif name == "nodes" and len(value) != 2:
            raise FaultError(f"nodes: {value!r} is not a list of two nodes, such as [1, 2]")
        elif name in SETTLED:
            changed[name] = SETTLED[name](name, value)
    return msgspec.structs.replace(part, **changed) if changed else part


def _kind_of(action: Action) -> Kind:
    if action.do not in ACTIONS:
        raise FaultError(there_is("the action", action.do, ACTIONS))
    return ACTIONS[action.do]


def _check_parameters(action: Action, kind: Kind) -> None:
    for name in action.__struct_fields__:
        given = getattr(action, name) is not None
        if given and name != "do" and name not in kind.parameters:
            raise FaultError(f"{action.do} has no parameter {_spoken(name)}")
        if name in kind.required and not given:
            raise FaultError(f"{action.do} needs {_NEEDED[name]}")
    if action.delay_ms is not None and not 0 <= action.delay_ms <= DELAY_MS_MAX:
        raise FaultError(
            f"{action.do}: a delay must be between 0 and {DELAY_MS_MAX} ms, not {action.delay_ms}"
        )
    if action.by == 0:
        raise FaultError("reorder: the number of requests that go first must be at least 1, not 0")
    if action.code == NONE.name.upper():
        raise FaultError("error: NONE is not an error code")
    if action.nodes is not None and action.nodes[0] == action.nodes[1]:
        raise FaultError(
            f"{action.do} needs two different nodes, not {action.nodes[0]} and {action.nodes[1]}"
        )


_NEEDED: Final = {
    "acl": "an operation and a resource, such as operation=WRITE topic=orders",
    "code": "an error code, such as NOT_COORDINATOR",
    "delay_ms": "a delay, such as 200ms",
    "fields": "fields of the response, such as throttle_time_ms=500",
    "nodes": "two nodes, such as 1 2",
}


def _spoken(name: str) -> str:
    """Name that a field has in the text form of rules."""
    return name.removesuffix(MS).replace("_", "-")


def _check_place(rule: Rule, kind: Kind) -> Place:
    do = rule.action.do
    if not kind.places & PLACED:
        if rule.on is not None:
            raise FaultError(f"{do} takes no API or point ({rule.on!r}): begin the rule with {do}")
        return rule.place
    if not rule.on:
        raise FaultError(f"{do} needs an API or a point, such as: Produce -> {do}")
    if rule.place is Place.POINT:
        if not rule.points:
            raise FaultError(there_is("the point", rule.on, POINTS))
    elif not rule.api_keys:
        raise FaultError(there_is("the API", rule.on, (*API_KEYS, *POINTS)))
    if rule.place not in kind.places:
        able = ", ".join(sorted(name for name, each in ACTIONS.items() if rule.place in each.places))
        raise FaultError(f"{do} is not possible at {rule.place.value} ({rule.on}); possible: {able}")
    return rule.place


def _check_fields(rule: Rule) -> None:
    """Convert values to the types of the response's fields, so that the text and JSON form of a rule are equal."""
    known = known_fields(rule.api_keys)
    values = {}
    for name, value in (rule.action.fields or {}).items():
        if name not in known:
            raise FaultError(there_is(f"{rule.on}: the response's field", name, known))
        try:
            values[name] = checked(rule.api_keys, name, value)
        except BadField as error:
            raise FaultError(f"answer: {error}") from None
    object.__setattr__(rule, "action", msgspec.structs.replace(rule.action, fields=values))


def _check_acl(rule: Rule) -> None:
    """Convert the words of ``acl`` to Kafka's constants, so that the text and JSON form of a rule are equal."""
    try:
        words = checked_words(rule.action.acl or {}, is_filter=rule.action.do == "remove-acls")
    except BadAcl as error:
        raise FaultError(f"{rule.action.do}: {error}") from None
    object.__setattr__(rule, "action", msgspec.structs.replace(rule.action, acl=words or None))


def _asked(rule: Rule, place: Place) -> frozenset[str]:
    """Names of the `Match` fields that the rule may use.

    Fields such as ``group`` and ``topic`` are allowed if at least one of the rule's APIs or points has such a
    value.
    """
    named: set[str] = set()
    if place is Place.CALL:
        named = named.union(*map(named_by, rule.api_keys))
    elif place is Place.POINT:
        named = named.union(*map(known_at, rule.points))
    else:
        return _ASKED[place]
    return frozenset(_ASKED[place] - set(_NAMED) | named)


def _check_match(rule: Rule, place: Place) -> None:
    match = rule.match
    asked = _asked(rule, place)
    for name in match.__struct_fields__:
        if getattr(match, name) is not None and name not in asked:
            where = rule.on or rule.action.do
            allowed = ", ".join(sorted(asked)) or "none"
            raise FaultError(f"{where} has no condition {name}; its conditions: {allowed}")
    _check_values(match)
    if match.acquired is not None and rule.action.do not in ON_RESPONSES:
        possible = ", ".join(ON_RESPONSES)
        raise FaultError(
            f"{rule.action.do} is not possible with acquired, which the response shows; possible: {possible}"
        )
    if place is Place.REPLICA:
        if match.node is None:
            raise FaultError("pause needs a node, such as node=2")
        if match.topic is not None and "*" in match.topic:
            raise FaultError("pause takes the name of one topic; without topic= it pauses all topics")
        if match.partition is not None and match.topic is None:
            raise FaultError("pause: a partition needs a topic, such as topic=orders")


def _check_values(match: Match) -> None:
    if match.sender not in (None, *SENDERS):
        raise FaultError(there_is("sender", match.sender, SENDERS))
    if match.version is not None:
        first, last = parse_span("version", match.version)
        if first > last:
            raise FaultError(f"version: {first}..{last} is not a range of versions")


def _check_when(when: When) -> None:
    for name in ("nth", "every", "times", "expires_ms"):
        number = getattr(when, name)
        if number is not None and number < 1:
            raise FaultError(f"{_spoken(name)}: {number} is below 1")
    if when.expires_ms is not None and when.expires_ms > DELAY_MS_MAX:
        raise FaultError(f"expires: at most {DELAY_MS_MAX} ms, not {when.expires_ms}")
    if when.p is not None and not 0 <= when.p <= 1:
        raise FaultError(f"p: {when.p} is not a probability (0 to 1)")
    if when.seed and when.p is None:
        raise FaultError("seed needs p: without a probability, the rule uses no random numbers")


def _check_when_fits(rule: Rule, place: Place) -> None:
    if place not in (Place.LINK, Place.REPLICA):
        return
    for name in rule.when.__struct_fields__:
        if name not in _CONDITIONS_OF_A_STATE and getattr(rule.when, name) is not None:
            raise FaultError(
                f"{rule.action.do} lasts until the rule is removed: it can have the condition 'expires', but not '{name}'"
            )
