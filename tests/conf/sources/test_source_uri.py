"""What TiCDC was given, read from the other end."""

from __future__ import annotations

import pytest

from conf.problems import SettingError
from conf.sources.kafka_security import KafkaSecurity
from conf.sources.source_parameters import PRODUCER_ONLY, PROTOCOLS_NOT_BUILT
from conf.sources.source_uri import SCHEMES_NOT_BUILT, parse_source_uri

GOOD = "kafka://127.0.0.1:9092/shop?protocol=canal-json&enable-tidb-extension=true"
OAUTH = (
    f"{GOOD}&sasl-mechanism=OAUTHBEARER&sasl-oauth-client-id=id"
    "&sasl-oauth-client-secret=c2VjcmV0&sasl-oauth-token-url=https://h/token"
)


def test_the_usual_uri():
    source = parse_source_uri(
        "kafka://10.0.0.1:9092,kafka-2:9093,[::1]:9094/shop.orders_v1"
        "?protocol=canal-json&partition-num=6&enable-tidb-extension=true&time-zone=Asia/Shanghai"
    )
    assert source.brokers == ("10.0.0.1:9092", "kafka-2:9093", "[::1]:9094")
    assert (source.topic, source.topics) == ("shop.orders_v1", ("shop.orders_v1",))
    assert (source.protocol, source.partition_num) == ("canal-json", 6)
    assert source.time_zone == "Asia/Shanghai"
    assert source.security == KafkaSecurity()


def test_defaults_are_ticdcs():
    source = parse_source_uri(GOOD)
    assert (source.partition_num, source.time_zone) == (None, "UTC")


def test_what_steers_the_producer_alone_is_ignored():
    every = "&".join(f"{name}=1" for name in PRODUCER_ONLY)
    assert parse_source_uri(f"{GOOD}&{every}") == parse_source_uri(GOOD)


def test_the_uri_wins_over_the_file():
    defaults = {"partition-num": "9", "protocol": "avro", "sasl-mechanism": "plain"}
    source = parse_source_uri(
        f"{GOOD}&partition-num=4&sasl-user=u&sasl-password=p", defaults=defaults
    )
    assert source.partition_num == 4
    assert source.security.sasl_mechanism == "PLAIN"


def test_several_topics_keep_their_order_and_come_once():
    source = parse_source_uri(f"{GOOD}&topics=b,shop,a", topics=("a", "c"))
    assert source.topics == ("shop", "a", "c", "b")


@pytest.mark.parametrize("zone", ["%2B08:00", "-03:30", "UTC", "Europe/Berlin"])
def test_time_zones(zone: str):
    assert parse_source_uri(f"{GOOD}&time-zone={zone}").time_zone == zone.replace("%2B", "+")


def test_sasl_and_tls_as_ticdc_names_them():
    security = parse_source_uri(
        f"{GOOD}&sasl-mechanism=scram-sha-512&sasl-user=u&sasl-password=a%2Bb%26c"
        "&ca=/ca.pem&cert=/c.pem&key=/k.pem&insecure-skip-verify=true"
    ).security
    assert security == KafkaSecurity(
        tls=True,
        ca="/ca.pem",
        cert="/c.pem",
        key="/k.pem",
        insecure_skip_verify=True,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_user="u",
        sasl_password="a+b&c",
    )
    assert "a+b" not in repr(security)


def test_oauth_as_ticdc_names_it():
    security = parse_source_uri(
        f"{OAUTH}&sasl-oauth-scopes=a,b&sasl-oauth-grant-type=client_credentials"
    ).security
    assert security == KafkaSecurity(
        sasl_mechanism="OAUTHBEARER",
        oauth_client_id="id",
        oauth_client_secret="c2VjcmV0",
        oauth_token_url="https://h/token",
        oauth_scopes=("a", "b"),
    )
    assert "c2VjcmV0" not in repr(security)


def test_tls_without_files_trusts_the_system():
    security = parse_source_uri(f"{GOOD}&enable-tls=true").security
    assert security.tls
    assert security.ca is None


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("127.0.0.1:9092/shop", "scheme"),
        ("", "no scheme"),
        ("http://h:1/t?protocol=canal-json", "scheme 'http' is not a source"),
        ("kafka:///shop?protocol=canal-json&enable-tidb-extension=true", "no broker"),
        ("kafka://h/shop?protocol=canal-json&enable-tidb-extension=true", "'h' must be host:port"),
        ("kafka://h:0/shop?protocol=canal-json&enable-tidb-extension=true", "must be host:port"),
        ("kafka://u:p@h:1/shop?protocol=canal-json&enable-tidb-extension=true", "sasl-user"),
        ("kafka://h:1/?protocol=canal-json&enable-tidb-extension=true", "no topic"),
        ("kafka://h:1/a/b?protocol=canal-json&enable-tidb-extension=true", "topic 'a/b'"),
        ("kafka://h:1/shop", "protocol is missing"),
        ("kafka://h:1/shop?protocol=canal-jsn", "did you mean canal-json?"),
        ("kafka://h:1/shop?protocol=canal-json", "no commit-ts"),
        (f"{GOOD}&enable-tidb-extension=true", "given twice"),
        (f"{GOOD}&partion-num=3", "'partion-num'; did you mean partition-num?"),
        (f"{GOOD}&zzz=3", "unknown parameter 'zzz'"),
        (f"{GOOD}&partition-num=0", "partition-num=0 must be above 0"),
        (f"{GOOD}&partition-num=many", "partition-num=many"),
        (f"{GOOD}&time-zone=Mars", "time-zone=Mars"),
        (f"{GOOD}&time-zone=Europe", "time-zone=Europe"),
        (f"{GOOD}&time-zone=+08:00", "%2B"),
        (f"{GOOD}&topics=a%20b", "topic 'a b'"),
        (f"{GOOD}&large-message-handle-compression=zstd", "large-message-handle-compression"),
        (f"{GOOD}&sasl-gssapi-user=x&sasl-gssapi-realm=y", "Kerberos (sasl-mechanism=GSSAPI"),
        (f"{GOOD}&sasl-mechanism=gssapi", "Kerberos (sasl-mechanism=GSSAPI"),
        (f"{GOOD}&sasl-mechanism=OAUTHBEARER", "needs sasl-oauth-client-id, sasl-oauth-client-sec"),
        (f"{OAUTH}&sasl-oauth-grant-type=password", "client_credentials (the default) is"),
        (f"{OAUTH}&sasl-oauth-audience=x", "sasl-oauth-audience is not built"),
        (OAUTH.replace("https://", ""), "sasl-oauth-token-url must be a URL"),
        (OAUTH.replace("OAUTHBEARER", "PLAIN"), "only with sasl-mechanism=OAUTHBEARER"),
        (f"{GOOD}&sasl-oauth-scopes=x", "sasl-oauth-scopes without sasl-mechanism"),
        (f"{GOOD}&max-message-bytes=10MB", "max-message-bytes=10MB must be bytes"),
        (f"{GOOD}&sasl-mechanism=DIGEST", "must be one of PLAIN"),
        (f"{GOOD}&sasl-mechanism=PLAIN&sasl-user=u", "needs sasl-user and sasl-password"),
        (f"{GOOD}&sasl-user=u&sasl-password=p", "without sasl-mechanism"),
        (f"{GOOD}&cert=/c.pem", "cert and key go together"),
        (f"{GOOD}&ca=/ca.pem&enable-tls=false", "enable-tls is false"),
        (f"{GOOD}&enable-tls=yes", "enable-tls=yes must be true or false"),
    ],
)
def test_what_cannot_be_read_is_one_clear_line(uri: str, says: str):
    with pytest.raises(SettingError) as raised:
        parse_source_uri(uri)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "refused: (1)" not in str(raised.value)


@pytest.mark.parametrize("protocol", PROTOCOLS_NOT_BUILT)
def test_binary_protocols_are_refused_and_the_line_says_what_to_do(protocol: str):
    with pytest.raises(
        SettingError, match=f"={protocol} is not read.*: let TiCDC write protocol=canal-"
    ):
        parse_source_uri(f"kafka://h:1/t?protocol={protocol}")


@pytest.mark.parametrize("scheme", SCHEMES_NOT_BUILT)
def test_other_sources_are_not_built_yet(scheme: str):
    with pytest.raises(SettingError, match="not built yet: use kafka"):
        parse_source_uri(f"{scheme}://h:1/t?protocol=canal-json")
