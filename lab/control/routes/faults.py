"""Operations on fault rules. `lab.faults` defines the language; this module converts rules from and to JSON."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from lab.control.access import Role
from lab.control.errors import HttpError
from lab.control.forms import WAIT_MS_MAX, FaultId, Given, View
from lab.control.operations import operation
from lab.control.ports import Looking
from lab.faults import ActiveRule, FaultError, Faults, Rule, parse_rule, rule_of
from lab.faults.declaration import NUMBER_MAX, Action, Match, Name, Number, RuleForm, When

RULE_CHARACTERS_MAX: Final = 4096
ENDING: Final = ("kill", "crash")
"""Actions that end a node, or the whole process."""

Count = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]


class NewFault(Given, omit_defaults=True):
    """A rule as one line of text, or as JSON."""

    rule: Annotated[str, Meta(max_length=RULE_CHARACTERS_MAX)] | RuleForm | None = None
    action: Name | Action | None = None
    on: Name | None = None
    match: Match | None = None
    when: When | None = None


class HeldView(View):
    at: str
    """Name of the API, such as EndTxn, or of the injection point inside the broker, such as txn.marker."""
    node: int
    detached: bool
    """Whether the request's connection is closed, so that no response is sent when the rule releases the request."""
    since_ms: int
    client_id: str | None
    transactional_id: str | None
    """Null if the request names no transactional id, or several. Group, member, topic and partition likewise."""
    group: str | None
    member: str | None
    topic: str | None
    partition: int | None
    partitions: list[str]
    """The partitions of the request, at most 64: topic-partition."""
    connection: int | None


class ReleasedRequestView(HeldView):
    released_at_ms: int
    outcome: str
    """in progress, answered, no response (acks=0), connection closed, or lost (detached, and no node was running)"""
    errors: list[str]
    """Kafka's names of the error codes in the response, without repetition; only NONE if there was no error."""


class FaultView(View):
    id: int
    text: str
    rule: dict[str, Any]
    matches: int
    hits: int
    spent: bool
    """Whether the rule can have no further hit."""
    expires_at_ms: int | None
    held: list[HeldView]
    released: list[ReleasedRequestView]
    """The newest requests that the rule held or detached and then released, with their responses."""


class FaultsView(View):
    faults: list[FaultView]


class ClearedView(View):
    cleared: int


class ReleasedView(View):
    released: int
    fault: FaultView


class WaitedView(View):
    reached: bool
    fault: FaultView


class OneFault(Given):
    fault_id: FaultId


class Wait(Given):
    fault_id: FaultId
    hits: Annotated[int, Meta(ge=1, le=NUMBER_MAX, description="How many hits to wait for.")] = 1
    timeout_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX, description="Longest wait.")] = 10_000


class Release(Given):
    count: Annotated[Count | None, Meta(description="How many, the oldest first; if left out: all.")] = None
    topic: Annotated[Name | None, Meta(description="Only requests and steps with this topic.")] = None
    partition: Annotated[Number | None, Meta(description="Only requests and steps with this partition.")] = (
        None
    )
    transactional_id: Annotated[Name | None, Meta(description="Only those of this transactional id.")] = None
    group: Annotated[Name | None, Meta(description="Only those of this group.")] = None
    member: Annotated[Name | None, Meta(description="Only those of this member of a group.")] = None
    offset: Annotated[
        Number | None, Meta(description="Only those that acknowledge or write the state of this offset.")
    ] = None
    client_id: Annotated[Name | None, Meta(description="Only those of this client.")] = None
    node: Annotated[Number | None, Meta(description="Only those on this node.")] = None
    to: Annotated[
        Number | None,
        Meta(description="The id of a rule that applies to them first, as if they arrived now."),
    ] = None


_RULE_EXAMPLE: Final = {
    "on": "EndTxn",
    "match": {"transactional_id": "payments"},
    "when": {"nth": 2},
    "action": {"do": "lose-answer"},
}
_FAULT_EXAMPLE: Final[dict[str, Any]] = {
    "id": 1,
    "text": "EndTxn transactional_id=payments nth=2 -> lose-answer",
    "rule": _RULE_EXAMPLE,
    "matches": 2,
    "hits": 1,
    "spent": True,
    "expires_at_ms": None,
    "held": [],
    "released": [],
}


@operation("GET", "/v1/faults", answer_example={"faults": [_FAULT_EXAMPLE]})
async def list_faults(control: Looking) -> FaultsView:
    """List the rules with their hits, and with the requests and steps that they hold."""
    return rules_view(control.faults)


def _rule(body: NewFault) -> Rule:
    form: NewFault | RuleForm | str = body
    if body.rule is not None:
        if msgspec.structs.replace(body, rule=None) != NewFault():
            raise HttpError(
                400, "give the rule either as text in the field 'rule', or as JSON in the other fields"
            )
        form = body.rule
    if isinstance(form, str):
        return parse_rule(form)
    return rule_of(form.action, form.on, form.match, form.when)


def _role_of(body: NewFault) -> Role:
    return Role.STOP if _rule(body).action.do in ENDING else Role.STAGE


@operation(
    "POST",
    "/v1/faults",
    body_example={"rule": "EndTxn transactional_id=payments nth=2 -> lose-answer"},
    answer_example={**_FAULT_EXAMPLE, "matches": 0, "hits": 0, "spent": False},
    role_of=_role_of,
)
async def add_fault(control: Looking, body: NewFault) -> FaultView:
    """Add a rule. It counts matches from now on.

    docs/faults.md describes the language, as text and as JSON. A rule that kills a node, or the process, requires the role
    stop.
    """
    return _view(control.faults.add(_rule(body)))


@operation("GET", "/v1/faults/{fault_id}", answer_example=_FAULT_EXAMPLE)
async def show_fault(control: Looking, params: OneFault) -> FaultView:
    """Show a rule with its hits, and with the requests and steps that it holds."""
    return _view(_find(control, params.fault_id))


@operation("DELETE", "/v1/faults/{fault_id}", answer_example=_FAULT_EXAMPLE)
async def remove_fault(control: Looking, params: OneFault) -> FaultView:
    """Remove a rule. The requests and steps that it holds are released, those that it has detached are discarded."""
    _find(control, params.fault_id)
    return _view(control.faults.remove(params.fault_id))


@operation("DELETE", "/v1/faults", answer_example={"cleared": 3})
async def clear_faults(control: Looking) -> ClearedView:
    """Remove all rules. The requests and steps that they hold are released, detached requests are discarded."""
    return ClearedView(cleared=control.faults.clear())


@operation(
    "POST",
    "/v1/faults/{fault_id}/release",
    body_example={"count": 1},
    answer_example={"released": 1, "fault": _FAULT_EXAMPLE},
)
async def release_fault(control: Looking, params: OneFault, body: Release) -> ReleasedView:
    """Release the requests and steps that a rule holds or has detached: the node handles them. The rule stays.

    Without a body all of them are released. In names * matches any characters.
    """
    active = _find(control, params.fault_id)
    if body.to is not None:
        _find(control, body.to)
    only = Match(
        topic=body.topic,
        partition=body.partition,
        transactional_id=body.transactional_id,
        group=body.group,
        member=body.member,
        offset=body.offset,
        client_id=body.client_id,
        node=body.node,
    )
    released = control.faults.release(params.fault_id, body.count, only, body.to)
    return ReleasedView(released=released, fault=_view(active))


@operation(
    "GET",
    "/v1/faults/{fault_id}/wait",
    answer_example={"reached": True, "fault": _FAULT_EXAMPLE},
    may_wait=True,
)
async def wait_for_fault(control: Looking, params: Wait) -> WaitedView:
    """Wait until a rule has a number of hits. If the timeout expires first, the field reached is false."""
    active = _find(control, params.fault_id)
    try:
        await control.faults.reached(params.fault_id, params.hits, timeout_ms=params.timeout_ms)
    except TimeoutError:
        return WaitedView(reached=False, fault=_view(active))
    except FaultError as error:
        raise HttpError(409, str(error)) from None
    return WaitedView(reached=True, fault=_view(active))


def _find(control: Looking, fault_id: int) -> ActiveRule:
    try:
        return control.faults.get(fault_id)
    except FaultError as error:
        raise HttpError(404, str(error)) from None


def rules_view(faults: Faults) -> FaultsView:
    return FaultsView(faults=[_view(each) for each in faults.list()])


def _view(active: ActiveRule) -> FaultView:
    return msgspec.convert(active.to_json(), type=FaultView)
