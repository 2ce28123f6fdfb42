"""Applies rules to requests and their responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from broker.net.calls import CallEvent
from broker.requests.api import NO_RESPONSE
from broker.requests.error_answers import error_answer
from lab.faults.active_rule import ActiveRule
from lab.faults.altered_answers import altered
from lab.faults.fields import SHARE_FETCH
from lab.faults.login_rules import is_login, refuse
from lab.faults.matching import acquired_meets, asks_for_subjects, circumstances_meet, subjects_meet
from lab.faults.request_subjects import acquired_in, subjects_of
from lab.faults.rule_executor import RuleExecutor
from lab.faults.values import parse_code

PRODUCE: Final = 0

if TYPE_CHECKING:
    from broker.net.calls import Call
    from lab.faults.request_subjects import RequestSubjects


class RequestRules:
    """A `broker.net.calls.CallInterceptor`, which is in use while a rule names an API."""

    def __init__(self, executor: RuleExecutor) -> None:
        self._executor = executor
        self._by_api: dict[int, tuple[ActiveRule, ...]] = {}

    def look(self, rules: Iterable[ActiveRule]) -> None:
        """Replace the rules that are applied to requests and responses."""
        self._by_api = {}
        for active in rules:
            for key in active.api_keys:
                self._by_api[key] = (*self._by_api.get(key, ()), active)

    @property
    def looks(self) -> bool:
        return bool(self._by_api)

    def wants(self, api_key: int) -> bool:
        return api_key in self._by_api

    def arrived(self, call: Call) -> bool:
        return self._may_be_handled(call, self._by_api.get(call.context.api_key, ()))

    def goes_on_to(self, active: ActiveRule, call: Call) -> None:
        """Apply ``active`` to a request that another rule released. Handle the request unless the rule hits."""
        looks = call.context.api_key in active.api_keys
        if self._may_be_handled(call, (active,) if looks else ()):
            call.proceed()
        elif call.connection.is_closed:
            call.note(CallEvent.GONE)

    def _may_be_handled(self, call: Call, rules: Iterable[ActiveRule]) -> bool:
        subjects: RequestSubjects | None = None
        for active in rules:
            match = active.rule.match
            if not circumstances_meet(match, call):
                continue
            if asks_for_subjects(match):
                subjects = subjects or subjects_of(call.request, call.context)
                if not subjects_meet(match, subjects):
                    continue
            if match.acquired is not None:
                if call.context.api_key == SHARE_FETCH:
                    call.on_outcome(partial(self._act_on_response, active, call))
            elif active.has_reordered:
                _count_down(self._executor, active, call)
            elif self._executor.takes_call(active, call):
                return _ACTIONS[active.rule.action.do](self._executor, active, call)
        return True

    def _act_on_response(self, active: ActiveRule, call: Call, outcome: Any) -> object:
        """Apply a rule for records that the response to a ShareFetch delivers. Return the response to send."""
        if active.removed or isinstance(outcome, BaseException):
            return outcome
        acquired = acquired_in(outcome, call.node.topic_name)
        if not acquired_meets(active.rule.match, acquired) or not self._executor.takes_call(active, call):
            return outcome
        if active.rule.action.do == "answer":
            return _altered(active, call, outcome)
        _ACTIONS[active.rule.action.do](self._executor, active, call)
        return outcome

    def answering(self, call: Call) -> bool:
        # Call every callback, even if an earlier one has decided that nothing is sent.
        return all([may_be_sent() for may_be_sent in call.before_answer or ()])


def _before_answer(call: Call, may_be_sent: Callable[[], bool]) -> None:
    if call.before_answer is None:
        call.before_answer = []
    call.before_answer.append(may_be_sent)


# -- actions: each returns True if the request is to be handled now ---------------------------------------------------


def _error(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    if _wants_no_answer(call):
        call.connection.hang_up()
        return False
    assert active.rule.action.code is not None, "a rule without it is refused"
    code = parse_code(active.rule.action.code)
    if is_login(call):
        refuse(call, code)
        return False
    context = call.context
    call.rule = active.id
    answer = error_answer(context.api_key, context.api_version, call.request, code)
    call.connection.answer_held(call, answer)
    return False


def _lose_request(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    if active.rule.action.silent:
        call.connection.mute()
        call.connection.answer_held(call, NO_RESPONSE)  # go on with the next request
    else:
        call.connection.hang_up()
    return False


def _lose_answer(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    def lose() -> bool:
        if active.removed:
            return True
        if active.rule.action.silent:
            call.connection.mute()
        else:
            call.connection.hang_up()
        return False

    _before_answer(call, lose)
    return True


def _answer(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    def alter(outcome: object) -> object:
        if active.removed or outcome is NO_RESPONSE or isinstance(outcome, BaseException):
            return outcome
        return _altered(active, call, outcome)

    call.on_outcome(alter)
    return True


def _altered(active: ActiveRule, call: Call, response: object) -> object:
    context = call.context
    call.rule = active.id
    return altered(context.api_key, context.api_version, response, active.rule.action.fields or {})


def _drop(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    call.connection.reset()
    return False


def _duplicate(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    # Decode the request again, because the first handling may change the decoded values.
    again = replace(
        call,
        context=replace(call.context),
        received=call.route.decode(call.frame, call.header.body_offset),
    )

    def handle_again() -> bool:
        again.handle_without_response()
        return True

    _before_answer(call, handle_again)
    return True


def _hold(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    executor.held_items.hold(active, executor.held_items.of_call(call), active.rule.action.delay_ms)
    return False


def _detach(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    executor.held_items.hold(active, executor.held_items.of_bytes(call))
    call.connection.hang_up()
    return False


def _reorder(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    executor.held_items.hold(active, executor.held_items.of_bytes(call, active.rule.action.by or 1))
    executor.changed()
    call.connection.hang_up()
    return False


def _count_down(executor: RuleExecutor, active: ActiveRule, call: Call) -> None:
    """Count ``call`` for the requests that a reorder rule holds: each of them then waits for one match fewer.

    When ``call`` has been handled, the requests whose count has reached 0 are released, before its response is
    sent.
    """

    def take_along() -> bool:
        for held in tuple(active.held_things):
            if held.later_matches is not None and held.later_matches <= 0:
                executor.held_items.let_go(held)
        executor.changed()
        return True

    for held in active.held_things:
        if held.later_matches is not None:
            held.later_matches -= 1
    _before_answer(call, take_along)


def _change_acls(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    assert executor.acls is not None, "a rule that needs it is refused"
    executor.acls.change(active, call)
    return False


def _kill(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    executor.kill(call.node.node_id)
    return False


def _crash(executor: RuleExecutor, active: ActiveRule, call: Call) -> bool:
    executor.crash(f"rule {active.id}")
    return False


_ACTIONS: Final[dict[str, Callable[[RuleExecutor, ActiveRule, Call], bool]]] = {
    "error": _error,
    "lose-request": _lose_request,
    "lose-answer": _lose_answer,
    "answer": _answer,
    "delay": _hold,
    "drop": _drop,
    "duplicate": _duplicate,
    "hold": _hold,
    "detach": _detach,
    "reorder": _reorder,
    "remove-acls": _change_acls,
    "add-acl": _change_acls,
    "kill": _kill,
    "crash": _crash,
}


def _wants_no_answer(call: Call) -> bool:
    """Whether this is a Produce with acks=0, where Kafka reports an error only by closing the connection."""
    return call.context.api_key == PRODUCE and call.request.acks == 0
