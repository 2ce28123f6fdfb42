"""ApiVersions: the handshake."""

from __future__ import annotations

from typing import Any

from tests.differential.story import Story, story
from tests.support import raw

SOFTWARE: dict[str, Any] = {"client_software_name": "raw", "client_software_version": "1.0"}


@story("api-versions")
def every_version(s: Story) -> None:
    """ApiVersions v3 omits supported features with minimum 0, v4 lists them (KIP-1022). The response header is always v0."""
    for v in range(6):
        s.ask("api_versions", v, **SOFTWARE)


@story("api-versions")
def too_new(s: Story) -> None:
    """An unsupported version gets UNSUPPORTED_VERSION in the layout of v0, with ApiVersions' own range.

    The connection stays open.
    """
    for v in (6, 7, 99, 32767):
        frame = raw.encode_header(18, v, 7, "raw", True) + raw.encode_body("api_versions", 4, SOFTWARE)
        s.raw_request(f"api_versions v{v}", "api_versions", 99, frame)
    s.ask("api_versions", 4, **SOFTWARE)


@story("api-versions")
def too_new_with_other_bytes(s: Story) -> None:
    """Body and header tags of an unsupported version are not parsed."""
    s.raw_request("v99, no body", "api_versions", 99, raw.encode_header(18, 99, 7, "raw", True))
    s.raw_request("v99, header v1, no body", "api_versions", 99, raw.encode_header(18, 99, 7, "raw", False))
    s.raw_request(
        "v99, body of noise", "api_versions", 99, raw.encode_header(18, 99, 7, "raw", True) + b"\xff" * 40
    )
    s.alive()


@story("api-versions")
def negative_version(s: Story) -> None:
    frame = raw.encode_header(18, -1, 7, "raw", False)
    s.raw_request("api_versions v-1", "api_versions", 99, frame)
    s.alive()


@story("api-versions")
def software_names(s: Story) -> None:
    """A software name or version that does not match a pattern gets INVALID_REQUEST with an empty list.

    The connection stays open.
    """
    names = ["", "-a", "a-", "a b", "1+2", "ü", ".a", "a.", "a" * 300, "1.0-SNAPSHOT", "a-.b", "A"]
    for v in (3, 4):
        for name in names:
            shown = name if len(name) < 20 else "300 a"
            answer = s.quiet("api_versions", v, client_software_name=name, client_software_version="1")
            s.put(f"api_versions v{v} (name {shown!r})", [answer["error_code"], bool(answer["api_keys"])])
    for version in ("", "a b", "2.8.0"):
        answer = s.quiet("api_versions", 3, client_software_name="raw", client_software_version=version)
        s.put(f"api_versions v3 (version {version!r})", [answer["error_code"], bool(answer["api_keys"])])


@story("api-versions")
def expected_ids(s: Story) -> None:
    """ApiVersions v5 may have the cluster id and node id that the client expects behind the address (KIP-1242).

    Other ids than the broker's get REBOOTSTRAP_REQUIRED, one id without the other INVALID_REQUEST, each with an empty
    list. The connection stays open.
    """
    own = s.quiet("describe_cluster", 0)["cluster_id"]
    for note, cluster_id, node_id in (
        ("right ids", own, 1),
        ("another node", own, 2),
        ("another cluster", "another", 1),
        ("another node and cluster", "another", 2),
        ("no node", own, -1),
        ("no cluster", None, 1),
        ("no node, another cluster", "another", -1),
        ("empty cluster", "", 1),
        ("empty cluster, no node", "", -1),
        ("negative node", own, -2),
        ("negative node, no cluster", None, -2),
    ):
        answer = s.quiet("api_versions", 5, cluster_id=cluster_id, node_id=node_id, **SOFTWARE)
        s.put(f"api_versions v5 ({note})", [answer["error_code"], len(answer["api_keys"]) > 0])
    s.ask("api_versions", 5, cluster_id="another", node_id=1, note="all fields", **SOFTWARE)
    wrong = SOFTWARE | {"client_software_name": "a b"}
    s.ask("api_versions", 5, cluster_id="another", node_id=1, note="another cluster, wrong name", **wrong)
    s.alive()


@story("api-versions")
def client_ids(s: Story) -> None:
    for client_id in (None, "", "ü", "a b", "x" * 300):
        for v in (0, 3):
            answer = s.quiet("api_versions", v, client_id=client_id, **SOFTWARE)
            s.put(f"api_versions v{v} (client id {str(client_id)[:9]!r})", answer["error_code"])


@story("api-versions")
def body_cut(s: Story) -> None:
    """ApiVersions v3 with a truncated body."""
    frame = raw.encode_request("api_versions", 3, SOFTWARE, 7)
    for cut in (1, 4, 6, 9):
        s.raw(f"api_versions v3 without its last {cut} bytes", frame[:-cut], on=f"c{cut}")
    s.alive()


@story("api-versions")
def again_and_again(s: Story) -> None:
    s.ask("api_versions", 4, **SOFTWARE)
    s.ask("api_versions", 0)
    s.ask("api_versions", 3, client_software_name="other", client_software_version="2")


@story("api-versions")
def unknown_tags(s: Story) -> None:
    """Unknown tagged fields, in the header and in the body, are skipped."""
    header = raw.encode_header(18, 3, 7, "raw", True, {0: b"x", 77: b"yy"})
    body = raw.encode_body("api_versions", 3, SOFTWARE | {"_tags": {5: b"abc", 1000: b""}})
    s.raw_request("api_versions v3 with tags", "api_versions", 3, header + body)
