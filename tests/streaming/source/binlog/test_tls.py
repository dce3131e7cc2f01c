"""TLS to a real MariaDB: what each mode accepts, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from conf.sources.binlog_uri import BinlogSettings
from conf.sources.source_uri import parse_source_uri
from coordination.errors import ConfigError
from streaming.source.binlog.database import connected
from tests.services.certificates import Authority
from tests.services.database_server import DatabaseServer

pytestmark = pytest.mark.mariadb


@dataclass(frozen=True)
class Secured:
    server: DatabaseServer
    authority: Authority
    folder: Path

    def settings(self, parameters: str, host: str = "127.0.0.1") -> BinlogSettings:
        found = parse_source_uri(f"mysql://root@{host}:{self.server.port}/?{parameters}")
        assert isinstance(found, BinlogSettings)
        return found


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder, "ours")
    files = authority.issue("server")
    settings = {
        "ssl-ca": str(authority.ca),
        "ssl-cert": str(files.cert),
        "ssl-key": str(files.key),
    }
    with DatabaseServer(settings=settings) as server:
        server.execute(
            "CREATE USER named@'%' IDENTIFIED BY 'pässwörd€' REQUIRE X509",
            "GRANT SELECT ON *.* TO named@'%'",
        )
        yield Secured(server, authority, folder)


def cipher(settings: BinlogSettings) -> str:
    connection = connected(settings)
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        ((_, found),) = cursor.fetchall()
    connection.close()
    return str(found)


def test_modes_that_trust_the_server(secured: Secured) -> None:
    ca = f"ca={secured.authority.ca}"
    assert not cipher(secured.settings("tls=off"))
    for parameters in ("tls=preferred", "tls=required", f"tls=verify-ca&{ca}", ca):
        assert cipher(secured.settings(parameters)), parameters


def test_another_ca_is_refused(secured: Secured, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    for parameters in (f"tls=verify-ca&ca={other.ca}", "tls=verify-ca", "tls=verify-identity"):
        with pytest.raises(pymysql.err.OperationalError, match="certificate verify failed"):
            connected(secured.settings(parameters))


def test_another_name_is_refused_where_it_is_looked_at(secured: Secured) -> None:
    ca = f"ca={secured.authority.ca}"
    assert cipher(secured.settings(f"tls=verify-ca&{ca}", host="localhost"))
    with pytest.raises(pymysql.err.OperationalError, match="not valid for 'localhost'"):
        connected(secured.settings(f"tls=verify-identity&{ca}", host="localhost"))


@pytest.mark.parametrize("mode", ["required", "verify-ca", "verify-identity"])
def test_a_server_without_tls_is_refused(mariadb: DatabaseServer, mode: str) -> None:
    found = parse_source_uri(f"mysql://root@127.0.0.1:{mariadb.port}/?tls={mode}")
    assert isinstance(found, BinlogSettings)
    with pytest.raises(pymysql.err.OperationalError, match="SSL is required"):
        connected(found)


def test_a_client_with_a_certificate_and_a_password_in_any_letters(secured: Secured) -> None:
    files = secured.authority.issue("client")
    parameters = f"ca={secured.authority.ca}&cert={files.cert}&key={files.key}"
    uri = f"mysql://named:p%C3%A4ssw%C3%B6rd%E2%82%AC@127.0.0.1:{secured.server.port}/?{parameters}"
    settings = parse_source_uri(uri)
    assert isinstance(settings, BinlogSettings)
    assert cipher(settings)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ("ca=/nowhere.pem", r"source-uri: ca=/nowhere\.pem: it cannot be read"),
        ("ca={text}", "it is no such PEM file"),
        ("cert=/nowhere.pem&key=/k.pem", r"cert=/nowhere\.pem with key=/k\.pem: it cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used(
    secured: Secured, tmp_path: Path, parameters: str, says: str
) -> None:
    (tmp_path / "text").write_text("no certificate")
    with pytest.raises(ConfigError, match=says):
        connected(secured.settings(parameters.format(text=tmp_path / "text")))
