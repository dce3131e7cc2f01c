"""A database server that a source URI names: where it is, the login, TLS, and how tables are read.

What ``mysql://`` (`binlog_uri`) and ``tidb://`` (`tidb_uri`) have in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar, get_args
from urllib.parse import SplitResult, unquote, urlsplit

from conf.problems import Problems, SettingError, require, unknown
from conf.secret_references import parse_reference
from conf.setting import Above0, setting
from conf.sources.source_parameters import number, unknown_parameter

TlsMode = Literal["off", "preferred", "required", "verify-ca", "verify-identity"]

_IN_A_PASSWORD: Final = "in a user or password, : / ? # @ are written %3A %2F %3F %23 %40"
_Choice = TypeVar("_Choice", bound=str)
_NUMBERS: Final[Mapping[str, tuple[int, str]]] = {
    "connect-timeout-s": (2**31, "must be seconds, above 0"),
    "chunk-rows": (2**31, "must be above 0"),
    "connections": (1025, "must be 1 to 1024"),
    "copy-rows-per-s": (2**31, "must be above 0"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseServer:
    """``…://user:password@host:port/?tls=…``"""

    host: str  # a name or an address, an IPv6 one without brackets
    port: int
    user: str  # may be a reference, as the password: `coordination.secrets.revealed`
    password: str = setting(
        "password", "", "the user's password, if it does not stand before the host", is_secret=True
    )
    tls: TlsMode = setting(
        "tls",
        "preferred",
        "`off`, `preferred` (if the server can), `required`, `verify-ca` (the server's certificate "
        "is checked), `verify-identity` (its name too). With `ca` `verify-identity` is the default",
    )
    ca: str | None = setting(
        "ca", says="the file of the CA that signed the server's certificate; without it, the "
        "system's CAs"
    )  # fmt: skip
    cert: str | None = setting("cert", says="the file of this client's certificate")
    key: str | None = setting("key", says="the file of that certificate's key")
    connect_timeout_s: Above0 = setting(
        "connect-timeout-s", 10, "seconds for a connection to be made"
    )
    chunk_rows: Above0 | None = setting(
        "chunk-rows",
        says="rows that one SELECT of a copy or a comparison reads; without it, some 64 MiB",
    )
    connections: Above0 = setting("connections", 4, "connections by which tables are copied")
    copy_rows_per_s: Above0 | None = setting(
        "copy-rows-per-s",
        says="the most rows that a copy reads in a second, so that the server has time for others; "
        "a table without a key is one SELECT all the same",
    )

    @property
    def address(self) -> str:
        """``host:port``, as a sentence names the server."""
        return place(self.host, self.port)


def place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def noted_server(
    made: dict[str, Any],
    parts: SplitResult,
    given: Mapping[str, str],
    form: str,
    problems: Problems,
) -> None:
    """Put login, TLS and numbers into ``made``, and what is wrong about them into ``problems``."""
    with problems.noted():
        made |= login_of(parts, given, form)
    with problems.noted():
        made |= tls_of(given)
    noted_numbers(made, given, _NUMBERS, problems)


def noted_numbers(
    made: dict[str, Any],
    given: Mapping[str, str],
    numbers: Mapping[str, tuple[int, str]],
    problems: Problems,
) -> None:
    """As `noted_server`. ``numbers``: by name, the bound that each stays below, and its form."""
    for name, (below, form) in numbers.items():
        with problems.noted():
            if (found := number(given, name, below, form)) is not None:
                made[name.replace("-", "_")] = found


def check_parameters(
    parts: SplitResult,
    parameters: Mapping[str, str],
    known: Sequence[str],
    not_built: Mapping[str, str],
) -> None:
    """Raise one SettingError for all parameters that are unknown or not built; the latter are
    ``known`` too."""
    problems = Problems()
    # The text behind a ? or & in a password looks like the name of a parameter.
    shown = "@" not in parts.path + parts.query
    for name in parameters:
        with problems.noted():
            require(name in known, unknown_parameter(name, parameters, known, is_shown=shown))
            require(name not in not_built, str(not_built.get(name)))
    problems.refuse()


def refuse_an_at_sign(parts: SplitResult) -> None:
    require("@" not in parts.path, f"a path has no @: {_IN_A_PASSWORD}")


def places_of(parts: SplitResult, port: int, form: str) -> list[tuple[str, int]]:
    """Hosts and ports, several with commas between. ``port``: where none is given; ``form``: how
    the URI must look."""
    texts = parts.netloc.rpartition("@")[2].split(",")
    places = [_place(text, port, form) for text in texts]
    twice = next((each for each in places if places.count(each) > 1), None)
    require(twice is None, f"{twice and twice[0]} stands twice")
    require(
        parts.path in ("", "/"),
        f"path {parts.path!r}: databases and tables are chosen by [filter] rules, such as "
        "rules = ['shop.*'], and not in the path",
    )
    return places


def _place(text: str, default: int, form: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise SettingError(f"the port must be a number up to 65535; {_IN_A_PASSWORD}") from None
    require(host != "", f"no host; {form}")
    require(port != 0, "port 0 is no server's")
    return host, port or default


def login_of(parts: SplitResult, given: Mapping[str, str], form: str) -> dict[str, str]:
    """User and password, by the names of the fields."""
    user, before = unquote(parts.username or ""), unquote(parts.password or "")
    require(user != "", f"no user; {form}")
    require(parts.netloc.count("@") == 1, f"several @ before the host: {_IN_A_PASSWORD}")
    require(
        not before or "password" not in given,
        "the password is given twice, before the host and as a parameter: leave one out",
    )
    login = {"user": user, "password": before or given.get("password", "")}
    for name, text in login.items():
        parse_reference(name, text)
    return login


def tls_of(given: Mapping[str, str]) -> dict[str, str | None]:
    """The mode and the files, by the names of the fields."""
    ca, cert, key = (given.get(name) for name in ("ca", "cert", "key"))
    default = "verify-identity" if ca else "required" if cert else "preferred"
    tls = choice("tls", given.get("tls", default), get_args(TlsMode))
    require((cert is None) == (key is None), "cert and key go together: one of them is missing")
    require(
        ca is None or tls.startswith("verify"),
        f"ca is given, and tls={tls} checks no certificate: use verify-ca or verify-identity",
    )
    require(cert is None or tls != "off", "cert and key are given, but tls is off")
    return {"tls": tls, "ca": ca, "cert": cert, "key": key}


def choice(name: str, text: str, choices: Sequence[str]) -> str:
    """The text, which must be one of the choices."""
    require(text in choices, unknown(name, text, choices, most_listed=5))
    return text
