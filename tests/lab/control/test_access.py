"""Access control of the control port."""

from __future__ import annotations

from typing import Any

import pytest

from lab.control.access import Access, ControlConfigError, Role, Tokens, is_loopback
from lab.control.errors import HttpError

SECRET = Tokens("secret")
FINE = {"host": "127.0.0.1:18092", "content-type": "application/json"}


def check(access: Access, changes_state: bool = True, **headers: str) -> None:
    given = {**FINE, **{name.replace("_", "-"): value for name, value in headers.items()}}
    access.check(headers=given, changes_state=changes_state)


def refused(access: Access, changes_state: bool = True, **headers: str) -> HttpError:
    with pytest.raises(HttpError) as caught:
        check(access, changes_state, **headers)
    return caught.value


HERE = Access.of("127.0.0.1")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.9.9.9", "localhost", "LocalHost.", "kafka.localhost", "::1"]
)
def test_loopback_by_any_of_its_names(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "10.0.0.1", "localhost.example.org", "127.0.0.1.example.org", "::"]
)
def test_everything_else_is_not(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "[::1]:18092", "127.0.0.1"])
def test_a_call_by_loopback_is_fine(host: str) -> None:
    check(HERE, host=host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:18092",
        "localhost@evil.example",
        "localhost:x",
        "localhost/evil.example",
        "localhost:99999",
        "[::1",
        "127.0.0.1.evil.example",
        "localhost, evil.example",
    ],
)
@pytest.mark.parametrize("changes_state", [True, False])
def test_a_name_that_was_rebound_to_us_is_refused(host: str, changes_state: bool) -> None:
    refusal = refused(HERE, changes_state, host=host)
    assert refusal.status == 403
    assert "odradek.control.allowed.hosts" in refusal.sentence


@pytest.mark.parametrize("origin", ["http://localhost", "https://127.0.0.1:8080", "http://[::1]:3000"])
def test_a_page_of_this_machine_may_call(origin: str) -> None:
    check(HERE, origin=origin)


@pytest.mark.parametrize(
    "origin",
    ["null", "", "https://evil.example", "file://localhost", "localhost", "http://localhost@evil.example"],
)
def test_a_page_of_somewhere_else_may_not(origin: str) -> None:
    assert refused(HERE, origin=origin).status == 403
    assert refused(HERE, False, origin=origin).status == 403


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "text/plain; application/json",
    ],
)
def test_what_a_form_may_send_changes_nothing(content_type: str) -> None:
    assert refused(HERE, content_type=content_type).status == 415
    check(HERE, changes_state=False, content_type=content_type)


@pytest.mark.parametrize("content_type", ["application/json", "Application/JSON; charset=utf-8"])
def test_json_may_change_something(content_type: str) -> None:
    check(HERE, content_type=content_type)


def test_names_that_are_listed_may_be_called_and_call() -> None:
    access = Access.of("127.0.0.1", allowed_hosts=["Kafka.Test", "[fd00::1]"])
    check(access, host="kafka.test:18092", origin="http://kafka.test")
    check(access, host="[fd00::1]:18092")
    assert refused(access, host="other.test").status == 403


def test_a_port_that_others_reach_wants_a_token() -> None:
    for host in ("0.0.0.0", "", "::", "10.0.0.5", "kafka.test"):
        with pytest.raises(ControlConfigError, match="ODRADEK_CONTROL_TOKEN"):
            Access.of(host)
        Access.of(host, SECRET)


def test_the_address_it_was_opened_at_is_a_name_of_its_own() -> None:
    check(Access.of("10.0.0.5", SECRET), host="10.0.0.5:1", authorization="Bearer secret")


def test_with_the_token_it_may_be_called_by_any_name_but_by_no_page_of_elsewhere() -> None:
    access = Access.of("0.0.0.0", SECRET)
    check(access, host="kafka.test:18092", authorization="Bearer secret")
    assert refused(access, host="kafka.test:18092").status == 401
    page: dict[str, Any] = {"origin": "https://evil.example", "authorization": "Bearer secret"}
    assert refused(access, host="kafka.test:18092", **page).status == 403


def test_a_refusal_says_whether_a_token_was_sent_at_all() -> None:
    access = Access.of("127.0.0.1", SECRET)
    assert "requires its token in the header Authorization: Bearer TOKEN" in refused(access).sentence
    wrong = refused(access, authorization="Bearer other").sentence
    assert wrong == "the token in the header Authorization is not one of this control port's"
    for malformed in ("", "secret", "Basic secret", "Bearer"):
        assert "is not of the form: Bearer TOKEN" in refused(access, authorization=malformed).sentence


@pytest.mark.parametrize(
    "authorization", ["", "secret", "Basic secret", "Bearer", "Bearer Secret", "Bearer secrets", "Bearer ü"]
)
@pytest.mark.parametrize("changes_state", [True, False])
def test_with_a_token_every_call_brings_it_along(authorization: str, changes_state: bool) -> None:
    access = Access.of("127.0.0.1", SECRET)
    assert refused(access, changes_state, authorization=authorization).status == 401
    assert refused(access, changes_state).status == 401
    check(access, changes_state, authorization="Bearer secret")
    check(access, changes_state, authorization="bearer  secret")


ROLES = Tokens(stop="of stop", stage="of stage", look="of look")


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("needed", Role)
def test_a_role_may_do_what_lower_roles_may(role: Role, needed: Role) -> None:
    access = Access.of("127.0.0.1", ROLES)
    headers = {**FINE, "authorization": f"Bearer of {role}"}
    if role >= needed:
        assert access.check(headers=headers, changes_state=True, needed=needed) is role
        return
    with pytest.raises(HttpError) as caught:
        access.check(headers=headers, changes_state=True, needed=needed)
    assert caught.value.status == 403
    assert caught.value.sentence == f"this call needs the role {needed}, and the token has the role {role}"


def test_without_a_token_a_caller_may_do_everything() -> None:
    assert HERE.check(headers=FINE, changes_state=True, needed=Role.STOP) is Role.STOP


def test_a_port_with_a_token_of_one_role_only_wants_it_and_allows_no_more() -> None:
    access = Access.of("0.0.0.0", Tokens(look="of look"))
    for headers in (FINE, {**FINE, "authorization": "Bearer "}, {**FINE, "authorization": "Bearer"}):
        with pytest.raises(HttpError) as caught:
            access.check(headers=headers, changes_state=False)
        assert caught.value.status == 401
    headers = {**FINE, "authorization": "Bearer of look"}
    assert access.check(headers=headers, changes_state=False) is Role.LOOK
    with pytest.raises(HttpError):
        access.check(headers=headers, changes_state=True, needed=Role.STAGE)


@pytest.mark.parametrize("role", ["stop", "stage", "look"])
def test_a_token_can_be_sent_at_all(role: str) -> None:
    with pytest.raises(ControlConfigError, match="ASCII") as caught:
        Access.of("127.0.0.1", Tokens(**{role: "gehéim"}))
    assert "geh" not in str(caught.value)


def test_two_roles_do_not_have_the_same_token() -> None:
    with pytest.raises(ControlConfigError, match="must not have the same token") as caught:
        Access.of("127.0.0.1", Tokens(stop="secret", look="secret"))
    assert "secret" not in str(caught.value)


def test_tokens_are_not_shown() -> None:
    assert repr(ROLES) == "Tokens(stop, stage, look)"
    assert "of " not in repr(Access.of("127.0.0.1", ROLES))
