"""The Kafka settings that --tls and --sasl expand to."""

from pathlib import Path
from typing import Any

import pytest

from broker.config.sasl_users import given_users
from broker.config.security_presets import Asked, Preset, expand
from broker.config.sources import for_node, from_command_line, from_environment, strongest
from broker.security.sasl.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, parse_config
from storage.config_def import ConfigError

FOLDER = Path("/data/tls")
JAAS = "listener.name.{}.{}.sasl.jaas.config"
MAP = "listener.security.protocol.map"


def preset_of(
    *users: str,
    tls: bool = False,
    given: dict[str, str] | None = None,
    environ: dict[str, str] | None = None,
    nodes: int = 1,
    tls_directory_given: bool = False,
) -> Preset:
    settings = strongest([*from_environment(environ or {}), *from_command_line(given or {})])
    asked = Asked(FOLDER if tls else None, tls_directory_given, given_users(users, ""))
    return expand(asked, settings, nodes=nodes, broker_password="of the nodes")


def refused(*users: str, tls: bool = False, **given: Any) -> str:
    with pytest.raises(ConfigError) as error:
        preset_of(*users, tls=tls, **given)
    assert "hunter" not in str(error.value)
    return str(error.value)


def protocols(preset: Preset) -> dict[str, str]:
    pairs = (each.partition(":") for each in preset.settings[MAP].split(","))
    return {name: protocol for name, _, protocol in pairs}


# -- listeners


@pytest.mark.parametrize(
    ("users", "tls", "protocol"),
    [((), True, "SSL"), (("a:b",), False, "SASL_PLAINTEXT"), (("a:b",), True, "SASL_SSL")],
)
def test_without_listeners_there_is_one_of_the_protocol(users: tuple[str, ...], tls: bool, protocol: str):
    settings = preset_of(*users, tls=tls).settings
    assert settings["listeners"] == f"{protocol}://127.0.0.1:9092"
    assert MAP not in settings


def test_listeners_that_nothing_secures_are_secured_all_of_them():
    listeners = "PLAINTEXT://:9092,INSIDE://:9093,CONTROLLER://:9094"
    preset = preset_of(tls=True, environ={"KAFKA_LISTENERS": listeners})
    assert "listeners" not in preset.settings
    assert protocols(preset) == {
        "CONTROLLER": "PLAINTEXT",
        "PLAINTEXT": "SSL",
        "INSIDE": "SSL",
        "SSL": "SSL",
        "SASL_PLAINTEXT": "SASL_PLAINTEXT",
        "SASL_SSL": "SASL_SSL",
    }
    # The image has a listener for each advertised listener.
    preset = preset_of("a:b", environ={"KAFKA_ADVERTISED_LISTENERS": "OUTSIDE://kafka:9092"})
    assert protocols(preset)["OUTSIDE"] == "SASL_PLAINTEXT"
    assert JAAS.format("outside", "plain") in preset.settings


def test_the_first_node_listens_where_it_alone_advertises():
    given = from_command_line({"odradek.node.1.advertised.listeners": "OUTSIDE://kafka:9092"})
    asked = Asked(users=given_users(("a:b",), ""))
    preset = expand(asked, strongest(for_node(given, 1)), nodes=1, broker_password="")
    assert protocols(preset)["OUTSIDE"] == "SASL_PLAINTEXT"
    assert JAAS.format("outside", "plain") in preset.settings


def test_a_listener_that_is_secured_by_its_name_leaves_the_others_as_they_are():
    preset = preset_of("a:b", tls=True, given={"listeners": "PLAINTEXT://:9092,SASL_SSL://:9093"})
    assert MAP not in preset.settings
    assert JAAS.format("sasl_ssl", "plain") in preset.settings
    assert JAAS.format("plaintext", "plain") not in preset.settings
    # The nodes use the PLAINTEXT listener.
    assert "sasl.mechanism.inter.broker.protocol" not in preset.settings


def test_a_map_that_is_given_decides():
    given = {"listeners": "IN://:1,OUT://:2", MAP: "IN:PLAINTEXT,OUT:SASL_PLAINTEXT"}
    preset = preset_of("a:b", given=given)
    assert JAAS.format("out", "plain") in preset.settings
    assert JAAS.format("in", "plain") not in preset.settings
    message = refused("a:hunter2", tls=True, given=given)
    assert (
        message
        == "--tls applies to none of the listeners of the command line: IN:PLAINTEXT, OUT:SASL_PLAINTEXT"
    )
    message = refused("a:hunter2", environ={"KAFKA_LISTENERS": "SSL://:9092"})
    assert message == "--sasl applies to none of the listeners of the variable KAFKA_LISTENERS: SSL:SSL"


# -- TLS


def test_the_stores_are_those_of_the_authority():
    preset = preset_of(tls=True)
    assert preset.authority == FOLDER
    assert {name: value for name, value in preset.settings.items() if name.startswith("ssl.")} == {
        "ssl.keystore.location": "/data/tls/server.pem",
        "ssl.keystore.type": "PEM",
        "ssl.truststore.location": "/data/tls/ca.pem",
        "ssl.truststore.type": "PEM",
    }


@pytest.mark.parametrize("prefix", ["", "listener.name.ssl."])
def test_a_key_store_that_is_given_is_the_brokers(prefix: str):
    given = {f"{prefix}ssl.keystore.location": "/mine.p12", f"{prefix}ssl.keystore.password": "hunter2"}
    preset = preset_of(tls=True, given=given)
    assert preset.authority is None
    assert not any(name.startswith("ssl.") for name in preset.settings)
    message = refused(tls=True, given=given, tls_directory_given=True)
    assert f"--tls-directory: {prefix}ssl.keystore.location (from the command line)" in message


def test_a_trust_store_that_is_given_is_kept():
    preset = preset_of(tls=True, environ={"KAFKA_SSL_TRUSTSTORE_LOCATION": "/clients.pem"})
    assert "ssl.truststore.location" not in preset.settings
    assert preset.authority == FOLDER


def test_a_part_of_a_key_store_is_refused():
    message = refused(tls=True, environ={"KAFKA_SSL_KEYSTORE_TYPE": "PKCS12"})
    assert "ssl.keystore.type (from the variable KAFKA_SSL_KEYSTORE_TYPE) would have no effect" in message


# -- SASL


def test_users_of_plain_are_in_the_login_module():
    preset = preset_of('alice:se"cr\\et:PLAIN', "b b=c:ä;:PLAIN")
    assert preset.users == ()
    assert preset.settings["sasl.enabled.mechanisms"] == "PLAIN"
    assert preset.settings["sasl.mechanism.inter.broker.protocol"] == "PLAIN"
    (module,) = parse_config(preset.settings[JAAS.format("sasl_plaintext", "plain")])
    assert module.name == PLAIN_LOGIN_MODULE
    assert module.options == {"user_alice": 'se"cr\\et', "user_b b=c": "ä;"}


def test_users_of_scram_are_for_the_metadata():
    preset = preset_of("alice:secret:SCRAM-SHA-512", "bob:x:SCRAM-SHA-256")
    assert [(each.name, each.mechanism, each.password) for each in preset.users] == [
        ("alice", "SCRAM-SHA-512", "secret"),
        ("bob", "SCRAM-SHA-256", "x"),
    ]
    assert preset.settings["sasl.enabled.mechanisms"] == "SCRAM-SHA-256,SCRAM-SHA-512"
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        (module,) = parse_config(preset.settings[JAAS.format("sasl_plaintext", mechanism)])
        assert (module.name, module.options) == (SCRAM_LOGIN_MODULE, {})
    assert not any("secret" in value for value in preset.settings.values())
    assert "secret" not in repr(preset)


def test_a_user_without_a_mechanism_has_all_that_the_listener_has():
    assert preset_of("a:b").settings["sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    preset = preset_of("a:b", environ={"KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512, OAUTHBEARER"})
    assert "sasl.enabled.mechanisms" not in preset.settings
    assert [each.mechanism for each in preset.users] == ["SCRAM-SHA-512"]
    of_listener = {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN"}
    assert preset_of("a:b", given=of_listener).users == ()


def test_mechanisms_that_are_given_and_lack_that_of_a_user_are_refused():
    given = {"sasl.enabled.mechanisms": "SCRAM-SHA-256"}
    message = refused("alice:hunter2:PLAIN", given=given)
    assert message == "--sasl alice: sasl.enabled.mechanisms (from the command line) does not enable PLAIN"
    message = refused("alice:hunter2", given={"sasl.enabled.mechanisms": "OAUTHBEARER"})
    assert "enables none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in message


def test_a_login_module_that_is_given_has_the_users_of_plain():
    name = JAAS.format("sasl_plaintext", "plain")
    given = {name: f'{PLAIN_LOGIN_MODULE} required user_bob="hunter2";'}
    assert refused("alice:hunter3", given=given) == (
        f"--sasl: {name} (from the command line) defines users as well. Use only one of the two"
    )
    scram = JAAS.format("sasl_plaintext", "scram-sha-256")
    preset = preset_of("alice:b:SCRAM-SHA-256", given={scram: f"{SCRAM_LOGIN_MODULE} required;"})
    assert scram not in preset.settings
    assert [each.name for each in preset.users] == ["alice"]


# -- between nodes


@pytest.mark.parametrize(("user", "mechanism"), [("a:b", "PLAIN"), ("a:b:SCRAM-SHA-512", "SCRAM-SHA-512")])
def test_several_nodes_log_in_to_each_other_as_a_user_of_their_own(user: str, mechanism: str):
    preset = preset_of(user, nodes=3)
    assert preset.settings["sasl.mechanism.inter.broker.protocol"] == mechanism
    (module,) = parse_config(preset.settings[JAAS.format("sasl_plaintext", mechanism.lower())])
    assert module.options["username"] == "odradek-broker"
    assert module.options["password"] == "of the nodes"
    if mechanism == "PLAIN":
        assert module.options["user_odradek-broker"] == "of the nodes"
    else:
        assert preset.users[-1].name == "odradek-broker"
    assert "super.users" not in preset.settings


def test_with_an_authorizer_the_nodes_are_super_users():
    given = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    assert preset_of("a:b", nodes=2, given=given).settings["super.users"] == "User:odradek-broker"
    assert "super.users" not in preset_of("a:b", given=given).settings
    given["super.users"] = "User:admin;User:CN=ops,O=Example"
    settings = preset_of("a:b", nodes=2, given=given).settings
    assert settings["super.users"] == "User:admin;User:CN=ops,O=Example;User:odradek-broker"


def test_a_mechanism_of_the_nodes_that_is_given_is_kept():
    given = {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}
    preset = preset_of("a:b", nodes=2, given=given)
    assert "sasl.mechanism.inter.broker.protocol" not in preset.settings
    assert [(each.name, each.mechanism) for each in preset.users][-1] == ("odradek-broker", "SCRAM-SHA-256")
    assert "username" not in preset.settings[JAAS.format("sasl_plaintext", "plain")]


def test_the_name_of_the_nodes_is_theirs():
    assert "odradek-broker: this name is reserved" in refused("odradek-broker:b", nodes=2)
    assert preset_of("odradek-broker:b").users
