"""Which claims came and went since a commit: a claim is the name of a test, wherever it stands.

    python -m tests.claims <commit>

A test that moved to another module is the same claim. One that is gone or was renamed is printed
for the one who commits: its commit's message says where its assertions are now. Exit code 1 where a
claim is gone.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def tests_in(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node.name


def claims_at(commit: str) -> Counter[str]:
    paths = git("ls-tree", "-r", "--name-only", commit, "tests").splitlines()
    python = [path for path in paths if path.endswith(".py")]
    return Counter(name for path in python for name in tests_in(git("show", f"{commit}:{path}")))


def claims_now() -> Counter[str]:
    files = (ROOT / "tests").rglob("*.py")
    return Counter(name for file in files for name in tests_in(file.read_text(encoding="utf-8")))


def main(commit: str) -> int:
    before, now = claims_at(commit), claims_now()
    gone, new = before - now, now - before
    for title, names in (("gone", gone), ("new", new)):
        for name, count in sorted(names.items()):
            print(f"{title}: {name}" + (f" ({count} times)" if count > 1 else ""))
    print(f"{before.total()} claims before, {now.total()} now")
    return int(bool(gone))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
