"""How TiCDC writes rows of the protocol csv: its ``[sink.csv]``, by the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from conf.problems import require, unknown
from conf.sources.kafka_security import boolean

Binary = Literal["base64", "hex"]
PARAMETERS: Final = (
    *("delimiter", "quote", "null", "include-commit-ts", "binary-encoding-method"),
    *("output-old-value", "output-handle-key", "output-field-header"),
)
_BINARY: Final = ("base64", "hex")
_MOST_DELIMITER: Final = 3  # characters, as TiCDC allows
_TERMINATORS: Final = ("\r\n", "\n")
_NO_COMMIT_TS: Final = (
    "include-commit-ts=true is needed: without it nobody can tell which row is newer; set "
    "include-commit-ts = true under [sink.csv] in the TiCDC changefeed, and here"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvFormat:
    """``quote``: a character, or empty: then characters have backslashes before them."""

    delimiter: str = ","
    quote: str = '"'
    null: str = "\\N"
    binary: Binary = "base64"
    has_old: bool = False  # an UPDATE is a D and an I, and `is-update` is a column
    has_handle_key: bool = False
    has_header: bool = False

    @property
    def lost_text(self) -> str | None:
        """The text that cannot be told from NULL; None: there is none."""
        return None if self.quote or self.null == "\\N" else self.null

    @property
    def told(self) -> dict[str, str | int | None]:
        """By setting, for captures to agree on."""
        return {
            "delimiter": self.delimiter,
            "quote": self.quote,
            "null": self.null,
            "binary-encoding-method": self.binary,
            "output-old-value": str(self.has_old).lower(),
            "output-handle-key": str(self.has_handle_key).lower(),
            "output-field-header": str(self.has_header).lower(),
        }


def parse_csv_format(parameters: Mapping[str, str]) -> CsvFormat:
    """Raises SettingError."""
    delimiter, quote = parameters.get("delimiter", ","), parameters.get("quote", '"')
    null, binary = parameters.get("null", "\\N"), parameters.get("binary-encoding-method", "base64")
    require(_flag(parameters, "include-commit-ts"), _NO_COMMIT_TS)
    require(
        0 < len(delimiter) <= _MOST_DELIMITER and not set("\r\n") & set(delimiter),
        f"delimiter={delimiter!r} must have 1 to {_MOST_DELIMITER} characters, and none of a line's"
        " end",
    )
    require(
        len(quote) <= 1 and quote not in ("\r", "\n") and (not quote or quote not in delimiter),
        f"quote={quote!r} must be one character that is not in the delimiter, or empty",
    )
    require(
        not set("\r\n") & set(null) and delimiter not in null and (not quote or quote not in null),
        f"null={null!r} must have neither the delimiter nor the quote in it",
    )
    require(binary in _BINARY, unknown("binary-encoding-method", binary, _BINARY, most_listed=2))
    terminator = parameters.get("terminator", "") or "\r\n"
    require(terminator in _TERMINATORS, "terminator: CRLF (\\r\\n) and LF (\\n) alone are read")
    return CsvFormat(
        delimiter=delimiter,
        quote=quote,
        null=null,
        binary=cast(Binary, binary),
        has_old=_flag(parameters, "output-old-value"),
        has_handle_key=_flag(parameters, "output-handle-key"),
        has_header=_flag(parameters, "output-field-header"),
    )


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    return boolean(name, parameters.get(name) or "false")
