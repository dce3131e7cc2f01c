"""The pages of docs/ name commands and options that are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from streaming.cli import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
PROGRAM = "tidelake"
SPAN = re.compile(rf"`{PROGRAM} ([^`]+)`")


def commands(page: Path) -> set[str]:
    """What stands as code and begins with the program's name, without that."""
    text = page.read_text(encoding="utf-8")
    return set(SPAN.findall(text)) | set(re.findall(rf"^{PROGRAM} (.+)$", text, re.MULTILINE))


def unknown(command: str) -> list[str]:
    """The words of it that the program would not understand."""
    found: Any = typer.main.get_command(app)
    words = [word for word in command.split() if word[0] not in "'<#"]
    while words and isinstance(found, TyperGroup) and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in found.commands:
            return [name]
        found = found.commands[name]
    known = {name for parameter in found.params for name in parameter.opts} | {"--help"}
    return [word for word in words if word.startswith("-") and word not in known]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_commands_and_options_that_are_there(page: Path) -> None:
    assert {each: found for each in commands(page) if (found := unknown(each))} == {}


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"(docs/{page.name})" not in readme] == []


def test_who_comes_from_ticdc_finds_every_command() -> None:
    named = commands(ROOT / "docs" / "from-ticdc.md")
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    groups = {name: each for name, each in root.commands.items() if isinstance(each, TyperGroup)}
    wanted = {f"{name} {each}" for name, group in groups.items() for each in group.commands}
    missing = {each for each in wanted if not any(one.startswith(each) for one in named)}
    assert missing == {"table rebalance", "table pause", "table resume"}, "what is ours alone"
