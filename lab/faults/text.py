"""The text form of rules: one line each.

    EndTxn transactional_id=payments nth=2 -> lose-answer
    Produce topic=orders partition=0 p=0.1 seed=7 -> error NOT_LEADER_OR_FOLLOWER
    txn.marker topic=orders after=1 -> hold
    cut 1 2 one-way
    slow-disk node=1 delay=200ms expires=30s

Blanks separate the words. A word with blanks or quotes in it is quoted as in a shell. The API or point and the conditions
are in front of the arrow, the action is behind it. Rules on links, replicas and disks have no arrow.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from types import NoneType
from typing import Any, Final, get_args, get_origin

import msgspec

from broker.clock.durations import duration_text
from lab.faults.declaration import MS, Action, Match, Part, When
from lab.faults.rules import ACTIONS, PLACED, Kind, Rule
from lab.faults.values import (
    SETTLED,
    FaultError,
    Parser,
    parse_duration,
    parse_number,
    parse_probability,
    there_is,
)
from protocol.errors import ErrorCode

ARROW: Final = "->"
RULE_CHARACTERS_MAX: Final = 4096

_PARSERS: Final[dict[type, Parser]] = {
    int: parse_number,
    float: parse_probability,
    str: lambda _, text: text,
}


def _base(hint: Any) -> Any:
    """The type in a field's annotation, without bounds and without None."""
    parts = [each for each in get_args(hint) if each is not NoneType]
    return _base(parts[0]) if parts and get_origin(hint) not in (list, dict) else hint


def _words_of(part: type[Part]) -> dict[str, tuple[str, Parser]]:
    """The words ``name=value`` of a part of a rule: (field, parser) by name."""
    types = {each.name: _base(each.type) for each in msgspec.structs.fields(part)}
    found: dict[str, tuple[str, Parser]] = {}
    for name, type_ in types.items():
        if name.endswith(MS):
            found[name.removesuffix(MS)] = (name, parse_duration)
        elif type_ in _PARSERS:
            found[name] = (name, SETTLED.get(name, _PARSERS[type_]))
    return found


MATCHERS: Final = _words_of(Match)
CONDITIONS: Final = _words_of(When)
PARAMETERS: Final = {word: field for word, field in _words_of(Action).items() if word != "do"}
FLAGS: Final = {
    each.name.replace("_", "-"): each.name
    for each in msgspec.structs.fields(Action)
    if _base(each.type) is bool
}
_ERROR_NAMES: Final = {int(code): code.name.upper() for code in ErrorCode}


# -- parsing -------------------------------------------------------------------------------------------------------


def parse_rule(text: str) -> Rule:
    """Parse a rule from a line of text. Raises ``FaultError`` if it is invalid."""
    if len(text) > RULE_CHARACTERS_MAX:
        raise FaultError(f"a rule has at most {RULE_CHARACTERS_MAX} characters, not {len(text)}")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise FaultError(f"the quotes in {text!r} do not match: {error}") from None
    if not words:
        raise FaultError("the rule is empty; an example: Produce topic=orders nth=2 -> lose-answer")
    if ARROW in words:
        at = words.index(ARROW)
        return _with_arrow(words[:at], words[at + 1 :])
    return _without_arrow(words)


def _with_arrow(left: list[str], right: list[str]) -> Rule:
    if not left or "=" in left[0]:
        raise FaultError(
            "the part in front of the arrow must begin with an API or a point, such as: Produce -> drop"
        )
    if not right:
        raise FaultError(f"an action is missing behind the arrow; actions: {', '.join(sorted(ACTIONS))}")
    match: dict[str, Any] = {}
    when: dict[str, Any] = {}
    for word in left[1:]:
        name, value = _pair(word)
        _take(name, value, match, when)
    return Rule(_action(right[0], right[1:]), left[0], Match(**match), When(**when))


def _without_arrow(words: list[str]) -> Rule:
    do = words[0]
    if do not in ACTIONS:
        if "=" in do or do[:1].isupper() or "." in do:
            raise FaultError(f"{do!r} needs an arrow and an action, such as: {do} ... -> hold")
        raise FaultError(there_is("the action", do, ACTIONS))
    match: dict[str, Any] = {}
    when: dict[str, Any] = {}
    rest = []
    for word in words[1:]:
        name, mark, value = word.partition("=")
        if mark and name not in PARAMETERS:
            _take(name, value, match, when)
        else:
            rest.append(word)
    return Rule(_action(do, rest), None, Match(**match), When(**when))


def _pair(word: str) -> tuple[str, str]:
    name, mark, value = word.partition("=")
    if not mark:
        raise FaultError(f"{word!r} is not of the form name=value, such as topic=orders")
    return name, value


def _take(name: str, value: str, match: dict[str, Any], when: dict[str, Any]) -> None:
    if name in MATCHERS:
        found, (key, parse) = match, MATCHERS[name]
    elif name in CONDITIONS:
        found, (key, parse) = when, CONDITIONS[name]
    else:
        raise FaultError(there_is("the condition", name, (*MATCHERS, *CONDITIONS)))
    if key in found:
        raise FaultError(f"{name} is given twice")
    found[key] = parse(name, value)


def _action(do: str, words: list[str]) -> Action:
    kind = ACTIONS.get(do)
    if kind is None:
        raise FaultError(there_is("the action", do, ACTIONS))
    if "fields" in kind.parameters:
        return Action(do, fields=_words(do, words, "fields, such as throttle_time_ms=500"))
    if "acl" in kind.parameters:
        return Action(do, acl=_words(do, words, "parts of an ACL, such as topic=orders"))
    return _with_parameters(do, kind, words)


def _with_parameters(do: str, kind: Kind, words: list[str]) -> Action:
    # Parameters whose names may be left out, in this order.
    bare = [name for name in kind.parameters if name in ("code", "delay_ms", "by")]
    numbers: list[int] = []
    given: dict[str, Any] = {}
    for word in words:
        name, mark, value = word.partition("=")
        if word in FLAGS:
            _give(given, FLAGS[word], True, do, kind.parameters)
        elif mark:
            if name not in PARAMETERS:
                raise FaultError(there_is(f"{do}: the parameter", name, (*PARAMETERS, *FLAGS)))
            key, parse = PARAMETERS[name]
            _give(given, key, parse(f"{do} {name}", value), do, kind.parameters)
        elif "nodes" in kind.parameters and len(numbers) < 2:
            numbers.append(parse_number(f"{do}: a node", word))
        elif bare:
            key = bare.pop(0)
            parse = next(parse for field, parse in PARAMETERS.values() if field == key)
            _give(given, key, parse(do, word), do, kind.parameters)
        else:
            raise FaultError(f"{do} takes no {word!r}")
    if len(numbers) == 1:
        raise FaultError(f"{do} needs two nodes, such as: {do} 1 2")
    if numbers:
        given["nodes"] = numbers
    return Action(do, **given)


def _words(do: str, words: list[str], such_as: str) -> dict[str, Any]:
    """Parse words such as ``throttle_time_ms=500``. `Rule` checks names and values, since these depend on the API."""
    found: dict[str, Any] = {}
    for word in words:
        name, mark, value = word.partition("=")
        if not mark:
            raise FaultError(f"{do} takes no {word!r}, but {such_as}")
        if name in found:
            raise FaultError(f"{do}: {name} is given twice")
        found[name] = value
    return found


def _give(given: dict[str, Any], key: str, value: Any, do: str, parameters: tuple[str, ...]) -> None:
    if key not in parameters:
        raise FaultError(f"{do} has no parameter {key.removesuffix(MS).replace('_', '-')}")
    if key in given:
        raise FaultError(f"{do}: {key.removesuffix(MS)} is given twice")
    given[key] = value


# -- writing -------------------------------------------------------------------------------------------------------


def rule_to_text(rule: Rule) -> str:
    """The text form, from which ``parse_rule`` makes an equal rule."""
    conditions = [*_conditions(rule.match), *_conditions(rule.when)]
    action = _action_words(rule.action)
    words = [*action, *conditions] if rule.on is None else [rule.on, *conditions, ARROW, *action]
    return " ".join(word if word == ARROW else shlex.quote(word) for word in words)


def _conditions(part: Part) -> Iterator[str]:
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if value is not None:
            said = duration_text(value) if name.endswith(MS) else value
            yield f"{name.removesuffix(MS)}={said}"


def _field_text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if name.endswith("error_code") and isinstance(value, int) and value in _ERROR_NAMES:
        return _ERROR_NAMES[value]
    return str(value)


def _action_words(action: Action) -> list[str]:
    words = [action.do]
    if action.nodes is not None:
        words += map(str, action.nodes)
    if action.code is not None:
        words.append(action.code)
    if action.delay_ms is not None:
        delay = duration_text(action.delay_ms)
        words.append(f"delay={delay}" if PLACED.isdisjoint(ACTIONS[action.do].places) else delay)
    if action.by is not None:
        words.append(str(action.by))
    words += [word for word, name in FLAGS.items() if getattr(action, name)]
    words += [f"{name}={_field_text(name, value)}" for name, value in (action.fields or {}).items()]
    words += [f"{name}={value}" for name, value in (action.acl or {}).items()]
    return words
