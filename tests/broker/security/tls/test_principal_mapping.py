"""``ssl.principal.mapping.rules``: the expected names are those of Kafka's ``SslPrincipalMapper`` on Java 17."""

import pytest

from broker.security.tls.principal_mapping import MappingFailed, map_name, parse_rules, principal_of
from storage.config_def import ConfigError

NAME = "CN=kafka-Server1,OU=KAFKA,O=Odradek"
THREE = "RULE:CN=(.*),OU=(.*),O=(.*)"


@pytest.mark.parametrize(
    ("rules", "distinguished_name", "name"),
    [
        # examples of Kafka's documentation
        (
            "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
            "CN=serviceuser,OU=ServiceUsers,O=Unknown,C=Unknown",
            "serviceuser",
        ),
        (
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
            "CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            "adminuser@admin",
        ),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", NAME, "kafka"),
        ("RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U", "cn=a,ou=b,dc=c,dc=d", "A@B"),
        # the order of rules
        ("  DEFAULT ", NAME, NAME),
        ("DEFAULT,RULE:a/b/", NAME, NAME),
        ("RULE:CN=a/b/,,,DEFAULT", NAME, NAME),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,DEFAULT", NAME, NAME),
        ("RULE:CN=.*/x/L , RULE:.*/y/", NAME, "x"),
        ("RULE:CN=.*/x\\/y/", NAME, "x/y"),
        ("RULE:^CN=(.*)\\/(.*)$/$1\\/$2/", "CN=a/b", "a/b"),
        # the replacement
        ("RULE:.*/x/", NAME, "xx"),
        ("RULE:^CN=(.*?),(.*)$/ $1 /L", NAME, " kafka-server1 "),
        (f"{THREE}/$1@$4/", NAME, "kafka-Server1@$4"),
        (f"{THREE}/$12 $0 $123 $45/", NAME, f"kafka-Server12 {NAME} kafka-Server123 $45"),
        ("RULE:(a)?CN=(.*?),.*/[$1]$2/", NAME, "[]kafka-Server1"),
        ("RULE:CN=(.*?),.*/$01/", NAME, "kafka-Server1"),
        ("RULE:CN=.*/a\\$b\\\\c/", NAME, "a$b\\c"),
        ("RULE:(?<who>CN=.*),OU.*/${who}/", NAME, "CN=kafka-Server1"),
        # Java's regular expressions
        ("RULE:(?i)cn=(.*?),.*/$1/", NAME, "kafka-Server1"),
        ("RULE:CN=\\w++-(\\w+),.*/$1/", NAME, "Server1"),
        ("RULE:CN=(\\Qkafka-\\E.*?),.*/$1/", NAME, "kafka-Server1"),
    ],
)
def test_a_name_becomes_what_kafka_makes_of_it(rules, distinguished_name, name):
    assert map_name(parse_rules(rules), distinguished_name) == name


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("NONSENSE", "Invalid rule: `NONSENSE`, unmatched substring: `NONSENSE`"),
        ("RULE:x/y/, FOO", "Invalid rule: `FOO`, unmatched substring: `FOO`"),
        ("RULE:a/$1/LU", "Invalid rule: `RULE:a/$1/LU`, unmatched substring: `U`"),
        ("RULE:a/$1", "Invalid rule: `RULE:a/$1`, unmatched substring: `RULE:a/$1`"),
        ("RULE://y/", "Invalid rule: `RULE://y/`, unmatched substring: `y/`"),
        ("RULE:a/x\\/", "Invalid rule: `RULE:a/x\\/`, unmatched substring: `RULE:a/x\\/`"),
        (
            "RULE:(CN=.*/x/",
            "the pattern of a rule cannot be read: missing ), unterminated subpattern at position 0",
        ),
        (
            "RULE:[a-z&&[^b]]*/x/",
            "the pattern of a rule cannot be read: Possible set intersection at position 4",
        ),
        ("RULE:\\p{Lu}.*/x/", "the pattern of a rule cannot be read: bad escape \\p at position 0"),
    ],
)
def test_rules_that_cannot_be_read_are_refused(rules, reason):
    with pytest.raises(ConfigError) as refused:
        parse_rules(rules)
    assert str(refused.value).startswith("Invalid value ")
    assert str(refused.value).endswith(f" for configuration ssl.principal.mapping.rules: {reason}")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("", f"No rules apply to {NAME}, rules []"),
        ("RULE:x/y/,RULE:a(.)/$1/U", f"No rules apply to {NAME}, rules [RULE:x/y, RULE:a(.)/$1/U]"),
        ("RULE:CN=.*/$1/", f"Rule RULE:CN=.*/$1 cannot be applied to {NAME}: No group 1"),
        ("RULE:CN=.*/$/", f"Rule RULE:CN=.*/$ cannot be applied to {NAME}: Illegal group reference"),
        (
            "RULE:CN=(.*)/${1}/",
            f"Rule RULE:CN=(.*)/${{1}} cannot be applied to {NAME}: Illegal group reference",
        ),
        ("RULE:CN=(.*)/${who}/", f"Rule RULE:CN=(.*)/${{who}} cannot be applied to {NAME}: no such group"),
    ],
)
def test_a_name_that_no_rule_maps_is_no_principal(rules, reason):
    with pytest.raises(MappingFailed) as failed:
        map_name(parse_rules(rules), NAME)
    assert str(failed.value) == reason


def test_the_principal_of_a_certificate(client):
    rules = parse_rules("RULE:^CN=(.*?),.*$/$1/U")
    assert principal_of(client.certificate, rules) == "User:ALICE"
    assert principal_of(None, rules) == "User:ANONYMOUS"
    with pytest.raises(MappingFailed, match="The certificate cannot be read"):
        principal_of(b"0", rules)
