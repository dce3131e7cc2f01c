"""The tables of docs/configuration.md, from the models of the files: run it as a module to write
them into the page: ``python -m tests.setting_tables``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from conf.files.keys import SERVER_KEYS
from conf.files.models import ChangefeedFile, ServerFile, Table

PAGE = Path(__file__).resolve().parents[1] / "docs/configuration.md"
HEAD = "| key | default | what it says |\n|---|---|---|\n"
CITED = re.compile(r"docs/([\w-]+\.md)(#[\w-]+)?")
BEGIN, END = "<!-- {name}: made by tests/setting_tables.py -->\n", "<!-- end -->"


def tables() -> dict[str, str]:
    """The tables by name."""
    of_server = (row for row in _rows(ServerFile) if row.split("`")[1].split()[-1] in SERVER_KEYS)
    return {
        "changefeed file": HEAD + "".join(_rows(ChangefeedFile)),
        "server file": HEAD + "".join(of_server),
    }


def with_tables(page: str) -> str:
    """The page with each table between its marks."""
    for name, table in tables().items():
        begin = BEGIN.format(name=name)
        pattern = f"{re.escape(begin)}.*?{END}"
        page, found = re.subn(pattern, lambda _: begin + table + END, page, flags=re.DOTALL)  # noqa: B023
        assert found == 1, begin
    return page


def _rows(model: type[Table], place: str = "") -> Iterator[str]:
    for field in model.model_fields.values():
        of: Any = field.annotation
        if of is Any:  # TiCDC's alone: ignored, or not built
            continue
        inner = next(iter(get_args(of)), None) if get_origin(of) is list else of
        if isinstance(inner, type) and issubclass(inner, Table):
            path = f"{place.strip('[] ')}.{field.alias}".strip(".")
            yield from _rows(inner, f"[[{path}]] " if inner is not of else f"[{path}] ")
            continue
        name = place + str(field.alias)
        if get_origin(of) is dict:
            name = f"[{place.strip('[] ')}{'.' if place else ''}{field.alias}]"
        says = CITED.sub(r"[\1](\1\2)", str(field.description))
        yield f"| `{name}` | {_default(field.default)} | {says} |\n"


def _default(value: object) -> str:
    match value:
        case None | () | "":
            return ""
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value:.10g}"
        case tuple():
            return ", ".join(f"`{each}`" for each in value)
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
