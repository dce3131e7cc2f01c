"""The pages of docs/ name what is there, and what the code cites of them is there too."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from streaming.cli.main import app
from tests.setting_tables import with_tables
from tests.state_tables import page as state_page
from tests.test_tidy import PRODUCT, TRACKED

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
PROGRAM = "tidelake"
SPAN = re.compile(rf"`{PROGRAM} ([^`]+)`")
CITED = [path for path in TRACKED if path.suffix in (".py", ".md", ".toml", ".yml")]
# "rule 4", "rules 5 and 6", "docs/cluster.md 10, 11", "docs/cluster.md I6"
RULES = re.compile(r"\brules? (\d+(?:(?:, | and | or |-|,? to )\d+)*)")
PAGE = re.compile(r"\bdocs/([\w-]+\.md)((?: |, | and )I?\d+)*")
NUMBER = re.compile(r"I?\d+")
ELSEWHERE = re.compile(r"[\w./-]+\.md\b|\b(?:facts|design|issue|lab) \d|\bseeds? \d{3}\b")


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
    assert missing == {
        *("table rebalance", "table pause", "table resume"),
        *("ddl list", "ddl skip", "ddl apply", "warehouse check", "warehouse gather"),
        *(f"dead-letters {each}" for each in ("list", "show", "replay", "resolve")),
    }, "what is ours alone"


def cited_text(path: Path) -> str:
    """The file on one line: a citation may go over the end of a line."""
    return re.sub(r"\s*\n\s*(?:# |> )?", " ", (ROOT / path).read_text(encoding="utf-8"))


def headings(page: str) -> set[str]:
    """The numbers that may be cited: of headings ("Rule 4", "4.") and of a table's first cells."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return set(re.findall(r"^(?:#+ (?:Rule )?|\| )(I?\d+)\b", text, re.MULTILINE))


def test_every_rule_that_is_cited_is_a_heading() -> None:
    known = headings("rules.md")
    wrong = {
        f"{path}: {cited[0]}"
        for path in CITED
        if path.suffix == ".py"
        for cited in RULES.finditer(cited_text(path))
        if not set(NUMBER.findall(cited[1])) <= known
    }
    assert len(known) == 8
    assert wrong == set()


def test_every_page_that_is_cited_has_what_is_cited_of_it() -> None:
    pages = {page.name for page in PAGES}
    wrong = {
        f"{path}: {cited[0]}"
        for path in CITED
        for cited in PAGE.finditer(cited_text(path))
        if cited[1] not in pages
        or not set(NUMBER.findall(cited[0].partition(".md")[2])) <= headings(cited[1])
    }
    assert wrong == set()


def test_nothing_points_to_a_page_that_is_not_in_the_repository() -> None:
    tracked = {path.as_posix() for path in TRACKED}
    wrong = {
        f"{path}: {cited}"
        for path in CITED
        if path.suffix == ".py" and path != Path("tests/test_docs.py")
        for cited in ELSEWHERE.findall(cited_text(path))
        if cited not in tracked
    }
    assert wrong == set()


def test_the_states_are_those_of_the_tables() -> None:
    written = (ROOT / "docs" / "states.md").read_text(encoding="utf-8")
    assert written == f"{state_page()}\n", "python -m tests.state_tables > docs/states.md"


def test_what_waits_says_so_in_these_words() -> None:
    """The third column has words of the program's own lines."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = page.partition("### What waits, and where it says so")[2].partition("\n### ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    assert {len(row) for row in rows} == {4}, "what, for what, where, the way out"
    said = {text for path in PRODUCT for text in texts_of(ROOT / path)}
    lines = [words for row in rows for words in re.findall(r"`([^`]+)`", row[2]) if " " in words]
    unsaid = [
        words
        for words in lines
        if not words.startswith(("task query", "changefeed query"))
        and not any(words in text for text in said)
    ]
    assert unsaid == []


def texts_of(path: Path) -> set[str]:
    """The texts of a file, with ``…`` for each value in them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = (each.value if isinstance(each, ast.Constant) else "…" for each in node.values)
            found.add("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(re.sub(r"%\S*?[sdfg]", "…", node.value))
    return found


def test_the_settings_are_those_of_the_models() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == with_tables(page), "python -m tests.setting_tables"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings: words in lower case, hyphens between."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"], ids=lambda page: page.name
)
def test_a_link_leads_to_a_file_and_a_heading_that_are_there(page: Path) -> None:
    wrong = [
        f"{target}#{anchor}"
        for target, anchor in re.findall(
            r"\]\((?!https?:)([^()#\s]*)#?([^()\s]*)\)", page.read_text(encoding="utf-8")
        )
        if not (found := page.parent / target if target else page).exists()
        or (anchor and anchor not in anchors(found))
    ]
    assert wrong == []


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


# A sentence names its own subject.
SUBJECTLESS = re.compile(
    r"(?:^|[.!?]\s+|\n\s*\n\s*|^\s*(?:- |\| )|^)\**((?:Of|Who|Whose|What of)\b[^.!?|]*[.!|]?)", re.M
)


def docstrings(path: Path) -> list[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return [text for text in found if text]


def test_every_sentence_begins_with_its_subject() -> None:
    wrong = [
        f"{page.name}: {found[1]}"
        for page in [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"]
        for found in SUBJECTLESS.finditer(page.read_text(encoding="utf-8"))
    ]
    wrong += [
        f"{path}: {found[1]}"
        for path in PRODUCT
        for text in docstrings(path)
        for found in SUBJECTLESS.finditer(text)
    ]
    assert wrong == []


PLANNED = {"coordination/dm/", "sinks/catalogs/"}  # "Where new things go"


def test_every_file_that_a_page_names_is_there() -> None:
    name = re.compile(r"`((?:conf|coordination|sinks|streaming|tests)/[\w./-]+)`")
    wrong = {
        f"{page.name}: {path}"
        for page in [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"]
        for path in name.findall(page.read_text(encoding="utf-8"))
        if path not in PLANNED and not (ROOT / path).exists()
    }
    assert wrong == set()
