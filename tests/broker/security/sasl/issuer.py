"""A token issuer: its keys, its JSON Web Key Sets, and the tokens that it signs."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import (
    Algorithm,
    ECAlgorithm,
    HMACAlgorithm,
    OKPAlgorithm,
    RSAAlgorithm,
    get_default_algorithms,
)

from tests.broker.security.sasl.world import encoded

SECRET = b"a-symmetric-key-of-the-issuer-that-is-a-secret-of-64-bytes-or-so"


@cache
def private_key(name: str) -> Any:
    match name:
        case "ec" | "other":
            return ec.generate_private_key(ec.SECP256R1())
        case "p384":
            return ec.generate_private_key(ec.SECP384R1())
        case "rsa":
            return rsa.generate_private_key(65537, 2048)
        case "short":
            return rsa.generate_private_key(65537, 1024)
        case "ed":
            return ed25519.Ed25519PrivateKey.generate()
    return SECRET if name == "hmac" else b"short"


def jwk(name: str, **members: Any) -> dict[str, Any]:
    """The JSON Web Key of the public key with this name. The name is also the key id."""
    key = private_key(name)
    if isinstance(key, bytes):
        found = {**HMACAlgorithm.to_jwk(key, as_dict=True), "kty": "oct"}
    else:
        of_type: type[Algorithm] = {"e": ECAlgorithm, "o": ECAlgorithm, "p": ECAlgorithm}.get(
            name[0], RSAAlgorithm
        )
        of_type = OKPAlgorithm if name == "ed" else of_type
        found = of_type.to_jwk(key.public_key(), as_dict=True)
    found = {each: value for each, value in found.items() if each not in ("alg", "key_ops")}
    return {**found, "kid": name, **members}


def jwks(*keys: Any) -> str:
    return json.dumps({"keys": list(keys)})


def signed(claims: Any, name: str = "ec", algorithm: str = "ES256", **header: Any) -> str:
    """A token that is signed with the key of this name. Header members that are None are omitted."""
    members = {"alg": algorithm, "kid": name, **header}
    signed = (
        f"{encoded({each: value for each, value in members.items() if value is not None})}.{encoded(claims)}"
    )
    signer = get_default_algorithms()[algorithm]
    return f"{signed}.{encoded(signer.sign(signed.encode(), signer.prepare_key(private_key(name))))}"
