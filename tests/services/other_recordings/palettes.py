# ruff: noqa: RUF001 - such names are meant
"""Names as people give them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tests.services.other_recordings.json_protocols import sanitized
from tests.services.other_recordings.names import COLUMNS, TABLES, Names

PALETTES: dict[str, Sequence[str]] = {}


def _add(name: str, words: str, separator: str = " ") -> None:
    PALETTES[name] = [
        each for each in words.replace("\n        ", separator).split(separator) if each
    ]


_add(
    "reserved",
    """select order key group table index values primary from where update delete insert unique
        check default null column add drop rename to like partition constraint references foreign
        generated always virtual stored character set collate int unsigned comment as after first
        using btree range list hash if exists not""",
)
_add(
    "protocol",
    """data old type op after before source u p d commitTs _tidb schema payload ts_ms table
        database sql es ts id isDdl pkNames sqlType mysqlType watermarkTs onlyHandleKey
        claimCheckLocation version tableID schemaVersion buildTs tableSchema preTableSchema
        handleKeyOnly checksum commit_ts position index error_class error_message h f v t q scm
        tbl rid ptn ohk ccl fields field name optional parameters transaction query gtid db value
        location null true false UPDATE INSERT DELETE meta metadata""",
)
_add(
    "own",
    """_tidb_commit_ts _tidb_op _tidb_commit_physical_time _tidb_row_level_checksum op commit_ts
        position index _tidelake key __key _op _position _commit_ts _deleted is_deleted deleted
        valid_from valid_to is_current _metadata metadata file_path row_index _change_type
        _commit_version _commit_timestamp _row_id partition part element key_value list map struct
        array hit old new l r row rows shape target digest hash""",
)
_add(
    "case",
    """ShopDB OrderLines ID Name NAME aMount CREATED_at Order nOte ReMark A B C aA Bb cC
        KeyColumn XMLHttp iOS İstanbul straße STRASSE Ǆ ﬁ ſ K""",
)
_add(
    "unicode",
    """中文 é emoji😀 😀 列名 ñandú Ελληνικά русский עברית العربية 日本語 한국어 e\u0301 a\u200bb
        ｆｕｌｌ Å ﷽ a\u00a0b 订单 用户 表 键 值""",
)
_add(
    "marks",
    """a-b|a.b|a b|a$b|a`b|a"b|a'b|a%b|a/b|a\\b|a,b|a;b|a#b|a?b|a{b}|a[b]|(a)|a=b|a&b|a<b>|a:b
        a@b|a!b|a*b|a|a~b|a^b|a+b| a|.a|a.|..|.|``|`|"|'|%|%s|{}|$1|--|/*|*/|#|a\tb|a\nb|\\|\\n
        ''|%2F|~2F|a/../b|:|-1|,|;|""|[]|{0}|`a`|"a"|`a`.`b`|</x>|&amp;|?x=1|*|$|@|=""",
    "|",
)
_add(
    "numbers",
    """1 007 1e5 0x10 123abc 1_000 18446744073709551615 0 00 2020-01-02 1.5 -0 NaN nan inf NULL
        null None true TRUE false""",
)

ZONES = ("Asia/Shanghai", "America/New_York", "Asia/Kathmandu", "+05:45", "UTC", "Pacific/Apia")


def long_name(word: str, number: int) -> str:
    return (word * 64)[: 64 - len(str(number))] + str(number)


def some_names(palette: str, seed: int) -> Names:
    """From a palette, or from all: ``any``."""
    dice = random.Random(f"{palette}{seed}")
    words = (
        [word for each in PALETTES.values() for word in each]
        if palette == "any"
        else list(PALETTES[palette])
    )

    def chosen(names: Sequence[str]) -> dict[str, str]:
        taken: set[str] = set()
        found = {}
        pool = dice.sample(words, len(words))
        for number, name in enumerate(names):
            word = pool[number % len(pool)]
            if number >= len(pool) or word.lower() in taken or dice.random() < 0.03:
                word = dice.choice((f"{word}{number}", f"{number}{word}", long_name(word, number)))
            word = word[:64]
            while word.lower() in taken:
                word = (word + "_")[-64:]
            taken.add(word.lower())
            found[name] = word
        return found

    tables = chosen(TABLES)
    return Names(
        schema=dice.choice(words),
        tables=tables,
        columns={table: chosen(columns) for table, columns in COLUMNS.items()},
        others=chosen(("uk_main", "uk_v", "idx_name", "idx_qty", "p0", "p1", "p2", "p3")),
    )


def for_avro(names: Names) -> Names:
    """Tables have names that TiCDC does not make equal, and so have their columns."""

    def unlike(of: Mapping[str, str]) -> dict[str, str]:
        taken: set[str] = set()
        made = {}
        for number, (was, now) in enumerate(of.items()):
            is_ours = sanitized(now).startswith("_tidb")  # it would be a field of TiCDC's own name
            if is_ours or sanitized(now).lower() in taken:
                now = f"x{now[:50]}" if is_ours else f"{now[:60]}{number}"
            taken.add(sanitized(now).lower())
            made[was] = now
        return made

    tables = unlike(names.tables)
    columns = {table: unlike(of) for table, of in names.columns.items()}
    return replace(names, tables=tables, columns=columns)
