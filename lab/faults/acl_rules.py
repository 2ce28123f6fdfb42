"""Executes rules that change ACLs. The request is handled after the change is in the metadata log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from broker.logging import get_logger
from broker.metadata.results import ApiError
from broker.net.calls import CallEvent
from lab.faults.acl_words import acl_of, filter_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.metadata.acls import Acl, AclFilter
    from broker.net.calls import Call
    from lab.faults.active_rule import ActiveRule

log = get_logger()


class AclControl(Protocol):
    """The methods of `broker.metadata.acl_control.AclControlManager` that the rules need."""

    async def create_acls(self, wanted: Sequence[Acl]) -> list[ApiError | None]: ...

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[ApiError | list[Acl]]: ...


class AclRules:
    """The executor of `remove-acls` and `add-acl`, in a broker that has an authorizer."""

    def __init__(self, control: Callable[[], AclControl]) -> None:
        self._control = control
        self._under_way: set[asyncio.Task[None]] = set()

    def change(self, active: ActiveRule, call: Call) -> None:
        """Change ACLs as the rule says, then handle the request."""
        task = asyncio.get_running_loop().create_task(self._change(active, call))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _change(self, active: ActiveRule, call: Call) -> None:
        try:
            refusal = await self._changed(active, call.context.principal)
        except ApiError as error:
            refusal = error
        if refusal is not None:
            log.warning("a rule cannot change ACLs", rule=active.id, reason=str(refusal))
        if call.connection.is_closed:
            call.note(CallEvent.GONE)
        else:
            call.proceed()

    async def _changed(self, active: ActiveRule, principal: str) -> ApiError | None:
        action, control = active.rule.action, self._control()
        if action.do == "add-acl":
            (created,) = await control.create_acls([acl_of(action.acl or {}, principal)])
            return created
        (removed,) = await control.delete_acls([filter_of(action.acl or {}, principal)])
        return removed if isinstance(removed, ApiError) else None
