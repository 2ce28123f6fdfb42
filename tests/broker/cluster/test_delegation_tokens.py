"""Delegation tokens in a broker: expired tokens are removed, and a snapshot contains the tokens."""

from __future__ import annotations

from pathlib import Path

from lab.cluster.reset import reset
from lab.cluster.snapshots import Snapshots
from tests.support.in_process import InProcess

ALICE = "User:alice"


def test_a_token_expires_is_restored_and_goes_with_a_reset(tmp_path: Path):
    with InProcess(tmp_path, settings={"delegation.token.secret.key": "secret"}) as broker:
        metadata, snapshots = broker.cluster.metadata, Snapshots(broker.cluster)
        control = metadata.token_control
        token = broker.run(control.create(ALICE, ALICE, [], -1))
        snapshot = broker.run(snapshots.take())
        broker.advance("7d")
        assert metadata.image.tokens == {token.token_id: token}
        broker.advance("26h", ["credentials"])
        assert metadata.image.tokens == {}
        other = broker.run(control.create(ALICE, ALICE, [], -1))
        broker.run(snapshots.restore(snapshot.id))
        assert metadata.image.tokens == {token.token_id: token}
        assert other.token_id != token.token_id
        hmac = broker.call(lambda: control.hmac_of(token.token_id))
        assert broker.run(control.renew(hmac, ALICE, 1)) < token.expiration_timestamp_ms
        broker.run(reset(broker.cluster))
        assert metadata.image.tokens == {}, "the reset removes all tokens"
