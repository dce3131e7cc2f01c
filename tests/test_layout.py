"""docs/architecture.md is true: rooms, their order from the top down, and who imports whom.

A *room* of a folder is a file of it (but ``__init__.py``) or a folder in it. An *arrow* goes from
one room to another where a file of the one imports a file of the other, also within a function or
for type checking alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath
from typing import Final

import pytest

from tests.test_tidy import LAYERS, PRODUCT, ROOT, tree

PAGE: Final = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
MOST_ARROWS: Final = {"streaming": 45}

# What does not look like the page yet: each step of the move takes something out.
NOT_YET: Final[tuple[str, ...]] = ("streaming/apply/letters",)
CIRCLES: Final[tuple[tuple[str, ...], ...]] = ()

# "**cli/** (main, cluster, …)" under "## The folders of `streaming/`"
HEADING: Final = re.compile(r"^## .*`(\w+)/`$", re.MULTILINE)
LISTED: Final = re.compile(r"^\*\*([\w/]+)/\*\* \(([^)]*)\)", re.MULTILINE)
# " ├ cli/ ──── commands, options ──── process, operations": a room, and what it imports
DRAWN: Final = re.compile(r"^ [┌├└] ([\w.]+/?) ─+ .+? ─+ ([\w., ]+)$", re.MULTILINE)
DRAWING: Final = re.compile(r"^ (\w+)/ +\((\d+) arrows\)\n((?: [┌├└].*\n)+)", re.MULTILINE)

FILES: Final = {
    path.as_posix().removesuffix(".py").replace("/", "."): path.as_posix()
    for path in PRODUCT
    if path.name != "__init__.py"
}


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """Which files of the product each of them imports."""
    found = {}
    for path in FILES.values():
        named = set()
        for node in ast.walk(tree(PurePosixPath(path))):  # type: ignore[arg-type]
            if isinstance(node, ast.Import):
                named |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                named |= {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
        found[path] = frozenset(FILES[name] for name in named & FILES.keys()) - {path}
    return found


def room(path: str, folder: str) -> str | None:
    """The room of the folder that the file is in: ``file`` or ``folder/``."""
    if not path.startswith(f"{folder}/"):
        return None
    first, slash, _ = path.removeprefix(f"{folder}/").partition("/")
    return first + slash if slash else first.removesuffix(".py")


FOLDERS: Final = sorted(
    {str(up) for path in FILES.values() for up in PurePosixPath(path).parents if str(up) != "."}
)


def rooms(folder: str) -> set[str]:
    return {found for path in FILES.values() if (found := room(path, folder)) is not None}


@cache
def arrows(folder: str) -> frozenset[tuple[str, str]]:
    return frozenset(
        (above, below)
        for path, imported in imports().items()
        if (above := room(path, folder)) is not None
        for other in imported
        if (below := room(other, folder)) is not None and below != above
    )


def sections() -> Iterable[tuple[str, str]]:
    """The page's text below each heading with a layer's name."""
    pieces = HEADING.split(PAGE)
    yield from zip(pieces[1::2], (text.split("\n## ")[0] for text in pieces[2::2]), strict=True)


LISTS: Final = {
    (layer if folder == layer else f"{layer}/{folder}"): inside.split(", ")
    for layer, text in sections()
    for folder, inside in LISTED.findall(text)
}
DRAWINGS: Final = {
    layer: (
        int(count),
        {name: set(below.split(", ")) - {"nothing"} for name, below in DRAWN.findall(rest)},
    )
    for layer, count, rest in DRAWING.findall(PAGE)
}


def from_the_top(folder: str) -> list[str]:
    """The rooms in the page's order."""
    if folder in DRAWINGS:
        return [name.removesuffix(".py") for name in DRAWINGS[folder][1]]
    return LISTS.get(folder, [])


def faults(folder: str) -> list[str]:
    """What is not as the page and the measures say."""
    order, found = from_the_top(folder), rooms(folder)
    wrong = [f"{each} is not on the page" for each in sorted(found - set(order))]
    wrong += [f"{each} is on the page alone" for each in order if each not in found]
    if len(arrows(folder)) > MOST_ARROWS.get(folder, 1000):
        wrong.append(f"{len(arrows(folder))} arrows, at most {MOST_ARROWS[folder]}")
    wrong += [
        f"{above} imports {below}, which stands above it"
        for above, below in sorted(arrows(folder))
        if above in order and below in order and order.index(above) > order.index(below)
    ]
    if folder in DRAWINGS and not wrong:
        drawn = {
            (above.removesuffix(".py"), below if below in found else below + "/")
            for above, each in DRAWINGS[folder][1].items()
            for below in each
        }
        wrong += [f"{above} imports {below}: not drawn" for above, below in arrows(folder) - drawn]
        wrong += [f"{above} does not import {below}" for above, below in drawn - arrows(folder)]
        if DRAWINGS[folder][0] != len(arrows(folder)):
            wrong.append(f"{len(arrows(folder))} arrows, and the page says {DRAWINGS[folder][0]}")
    return wrong


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_is_as_the_page_says(folder: str) -> None:
    if folder in NOT_YET:
        assert faults(folder), f"{folder} is in its place: take it out of NOT_YET"
    else:
        assert faults(folder) == []


def test_every_folder_on_the_page_is_there() -> None:
    there = {*FOLDERS, *NOT_YET}
    assert {*LISTS, *DRAWINGS} <= there or NOT_YET


def test_the_layers_that_have_folders_are_drawn() -> None:
    assert {*LAYERS} - {"conf"} == {*DRAWINGS}


def circles() -> set[tuple[str, ...]]:
    """Files that import each other, over however many others: one circle at most is found."""
    graph = {path: set(imported) for path, imported in imports().items()}
    found = set()
    while True:
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            circle = list(dict.fromkeys(error.args[1]))
            found.add(tuple(sorted(circle)))
            graph[error.args[1][1]].discard(error.args[1][0])
        else:
            return found


def test_no_files_import_each_other() -> None:
    assert circles() == set(CIRCLES)
