"""The JSON form of rules, as plain dicts.

    {"on": "EndTxn", "match": {"transactional_id": "payments"}, "when": {"nth": 2}, "action": {"do": "lose-answer"}}
    {"action": {"do": "cut", "nodes": [1, 2], "one_way": true}, "when": {"expires": "30s"}}

What is not said is left out. Other forms are read as well: an action without parameters may be its name alone, a rule may
be its text form, and times may be numbers (``expires_ms``, ``delay_ms``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

from broker.clock.durations import duration_text
from lab.faults.rules import Action, FaultError, Match, Rule, When, there_is
from lab.faults.text import parse_code, parse_duration, parse_rule, parse_span, span_to_text

_AS_TEXT: Final = {"delay_ms": "delay", "expires_ms": "expires"}
"""Times: by the name of the number in milliseconds the name of the text."""
_RULE_KEYS: Final = ("action", "match", "on", "when")


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """What ``rule_from_json`` makes the same rule of."""
    form: dict[str, Any] = {}
    if rule.on is not None:
        form["on"] = rule.on
    if match := _said(rule.match, Match()):
        form["match"] = match
    if when := _said(rule.when, When()):
        form["when"] = when
    form["action"] = {"do": rule.action.do, **_said(rule.action, Action(rule.action.do))}
    return form


def _said(value: Any, unsaid: Any) -> dict[str, Any]:
    found = {}
    for each in fields(value):
        said = getattr(value, each.name)
        if said != getattr(unsaid, each.name):
            found[_AS_TEXT.get(each.name, each.name)] = _plain(each.name, said)
    return found


def _plain(name: str, value: Any) -> Any:
    if name == "version":
        return span_to_text(value)
    if name == "code":
        return value.name.upper()
    if name in _AS_TEXT:
        return duration_text(value)
    if name in ("acl", "fields"):
        return dict(value)
    return list(value) if name == "nodes" else value


def rule_from_json(form: object) -> Rule:
    """The rule in a decoded JSON value. ``FaultError`` if there is none."""
    if isinstance(form, str):
        return parse_rule(form)
    rule = _object("a rule", form, _RULE_KEYS)
    if "action" not in rule:
        raise FaultError('a rule needs an action, such as {"on": "Produce", "action": {"do": "lose-answer"}}')
    on = rule.get("on")
    if on is not None and not isinstance(on, str):
        raise FaultError(f"on: {on!r} is not the name of an API or a point")
    match = _values("match", rule.get("match", {}), _names(Match))
    when = _with_times(_values("when", rule.get("when", {}), (*_names(When), "expires")))
    return Rule(_action(rule["action"]), on, Match(**match), When(**when))


def _action(form: object) -> Action:
    if isinstance(form, str):
        form = {"do": form}
    values = _with_times(_values("action", form, (*_names(Action), "delay")))
    if "do" not in values:
        raise FaultError('action: "do" says which, such as {"do": "lose-answer"}')
    return Action(**values)


def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


def _object(what: str, form: object, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(form, dict):
        raise FaultError(f"{what} is a JSON object, not {form!r}")
    for name in form:
        if name not in names:
            raise FaultError(there_is(f"{what}: the key", str(name), names))
    return form


def _values(what: str, form: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: _value(name, value) for name, value in _object(what, form, names).items() if value is not None
    }


def _with_times(values: dict[str, Any]) -> dict[str, Any]:
    """Times that are said as text, under the names of those in milliseconds."""
    for name, text in _AS_TEXT.items():
        if text in values:
            if name in values:
                raise FaultError(f"{text} is said twice: as {text} and as {name}")
            values[name] = values.pop(text)
    return values


_NUMBERS: Final = (
    "partition",
    "node",
    "connection",
    "after",
    "nth",
    "every",
    "times",
    "seed",
    "expires_ms",
    "delay_ms",
    "by",
)
NUMBER_MAX: Final = 10**18


def _value(name: str, value: Any) -> Any:
    if name in _NUMBERS:
        return _whole(name, value)
    if name in _READERS:
        return _READERS[name](name, value)
    if not isinstance(value, str):
        raise FaultError(f"{name}: {value!r} is not a string")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= NUMBER_MAX:
        raise FaultError(f"{name}: {value!r} is not a whole number")
    return value


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise FaultError(f"{name}: {value!r} is neither true nor false")
    return value


def _probability(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FaultError(f"{name}: {value!r} is no probability (0 to 1)")
    return float(value)


def _duration(name: str, value: object) -> int:
    if not isinstance(value, str):
        raise FaultError(f'{name}: {value!r} is not a duration, such as "1.5s"')
    return parse_duration(name, value)


def _fields(name: str, value: object) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, dict) or not all(
        isinstance(each, bool | int | float | str) for each in value.values()
    ):
        raise FaultError(f'{name}: {value!r} is not an object of fields, such as {{"throttle_time_ms": 500}}')
    return tuple(value.items())


def _acl(name: str, value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise FaultError(f'{name}: {value!r} is not an object of strings, such as {{"topic": "orders"}}')
    return tuple(value.items())


def _pair(name: str, value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise FaultError(f"{name}: {value!r} is not a list of two nodes, such as [1, 2]")
    return _whole(name, value[0]), _whole(name, value[1])


_READERS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "acl": _acl,
    "code": lambda name, value: parse_code(name, str(value)),
    "delay": _duration,
    "expires": _duration,
    "fields": _fields,
    "nodes": _pair,
    "one_way": _boolean,
    "p": _probability,
    "silent": _boolean,
    "version": lambda name, value: parse_span(name, str(value)),
}
