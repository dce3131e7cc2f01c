"""The documentation's table of conversions, from what runs have covered.

python -m tests.differential --server mysql --coverage runs.json
python -m tests.differential.conversions runs.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Final

Pair = tuple[str, str]
_FEW: Final = 3  # tries that came out equal, of which nothing is told yet
PAGE: Final = Path(__file__).parents[2] / "docs/conversions.md"


def pairs_of(file: Path) -> dict[str, Counter[tuple[Pair, str]]]:
    """By MariaDB and MySQL: how often each pair of kinds came to which verdict."""
    found: dict[str, Counter[tuple[Pair, str]]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        server = "MySQL" if "mysql" in run["server"].lower() else "MariaDB"
        counts = found.setdefault(server, Counter())
        for change, was, now, _mode, verdict, count in run["counts"]:
            if change == "modify":
                counts[(was, now), verdict] += count
    return found


def table(counts: Counter[tuple[Pair, str]]) -> str:
    lines = ["| from | as the server | by the value | held |", "|---|---|---|---|"]
    pairs = sorted({pair for pair, _ in counts})
    for kind in sorted({was for was, _ in pairs}):
        cells: dict[str, list[str]] = {"equal": [], "either": [], "held": []}
        for pair in pairs:
            equal, held = counts[pair, "equal"], counts[pair, "held"]
            if pair[0] == kind and equal + held >= _FEW:
                verdict = "either" if equal and held else "equal" if equal else "held"
                cells[verdict].append(pair[1])
        if any(cells.values()):
            lines.append(f"| {kind} | {' | '.join(map(', '.join, cells.values()))} |")
    return "\n".join(lines)


def main() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    for server, counts in sorted(pairs_of(Path(sys.argv[1])).items()):
        tries = sum(n for (_, verdict), n in counts.items() if verdict in ("equal", "held"))
        page += f"\n\n## {server}\n\n{tries} tries.\n\n{table(counts)}"
    PAGE.write_text(f"{page}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
