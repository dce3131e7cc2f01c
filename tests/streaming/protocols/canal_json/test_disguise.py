"""A disguised message is a message of the same shape, and tells less."""

from __future__ import annotations

import json

from streaming.protocols.canal_json.disguise import disguise

TYPES = {"id": "bigint", "name": "varchar(20)", "at": "datetime(3)", "j": "json", "e": "enum('a')"}


def message(**data: str | None) -> bytes:
    body = {
        "type": "UPDATE", "sql": "", "mysqlType": TYPES,
        "data": [data], "old": [{**data, "id": "6"}],
        "_tidb": {"commitTs": 47},
    }  # fmt: skip
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()


def row_of(value: bytes) -> dict[str, str | None]:
    found: dict[str, str | None] = json.loads(value)["data"][0]
    return found


def test_texts_are_exchanged_and_all_else_stays() -> None:
    data = {"id": "5", "name": "Anna-9 Ärger 東京", "at": "2026-01-02", "j": '{"k": 1}', "e": "a"}
    before = message(**data)
    after = disguise(1)(before)
    found = row_of(after)
    assert {name: found[name] for name in ("id", "at", "e")} == {
        name: data[name] for name in ("id", "at", "e")
    }
    name = found["name"]
    assert name is not None
    assert name != data["name"]
    assert (len(name), name[4], name[6]) == (len(data["name"]), "-", " ")
    assert name[0].isupper()
    assert (
        name[0].lower()
        == disguise(1)(message(name="a")).decode()[
            disguise(1)(message(name="a")).decode().index('"data":[{"name":"') + 17
        ]
    )
    assert json.loads(after) | {"data": 0, "old": 0} == json.loads(before) | {"data": 0, "old": 0}


def test_equal_values_stay_equal_and_others_differ() -> None:
    change = disguise(7)
    words = ["a", "b", "Ab", "aB", "z9", "9z", "", "é", "è", "日", "月", "straße", "a" * 100]
    once = [row_of(change(message(name=word)))["name"] for word in words]
    again = [row_of(change(message(name=word)))["name"] for word in words]
    assert once == again
    assert len(set(once)) == len(words)
    assert row_of(change(message(name=None)))["name"] is None


def test_what_is_no_message_is_not_given_away() -> None:
    assert disguise(1)(b"secret \xff") == b"????????"
    assert disguise(1)(b"[1]") == b"???"
