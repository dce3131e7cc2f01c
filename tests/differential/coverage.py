"""What a run has covered: how often each kind of change ended in which way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

Covered = tuple[str, str, str]  # a kind of change, from which type, to which
VERDICTS = ("equal", "held", "failure", "refused")


@dataclass(slots=True)
class Coverage:
    """Of one server. ``refused``: by the server itself, so it is not covered."""

    server: str
    counts: Counter[tuple[Covered, str, str]] = field(default_factory=Counter)

    def add(self, covers: Iterable[Covered], mode: str, verdict: str) -> None:
        covers = tuple(covers)
        if verdict == "held" and len(covers) > 1:  # by which of them, nobody knows
            covers = (("several", "", ""),)
        for each in covers:
            self.counts[each, mode, verdict] += 1

    def add_ddl(self, verdict: str) -> None:
        self.counts[("", "", ""), "", verdict] += 1

    def of_ddls(self, verdict: str) -> int:
        return self.counts[("", "", ""), "", verdict]

    def table(self) -> str:
        """At most 80 columns."""
        head = f"{'change':<12}{'from':<11}{'to':<11}{'mode':<7}"
        lines = [head + "".join(f"{each:>9}" for each in VERDICTS)]
        keys = sorted({(covers, mode) for covers, mode, _ in self.counts if any(covers)})
        for covers, mode in keys:
            change, was, now = covers
            counts = "".join(f"{self.counts[covers, mode, each] or '':>9}" for each in VERDICTS)
            lines.append(f"{change:<12}{was:<11}{now:<11}{mode:<7}" + counts)
        return "\n".join(lines)

    def write(self, file: Path) -> None:
        """Add it to the file, for ``tests.differential.conversions``."""
        counts = [[*covers, mode, verdict, n] for (covers, mode, verdict), n in self.counts.items()]
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({"server": self.server, "counts": counts}) + "\n")

    def summary(self) -> str:
        counts = ", ".join(f"{self.of_ddls(each)} {each}" for each in VERDICTS)
        pairs = {
            (covers, mode)
            for covers, mode, verdict in self.counts
            if verdict == "equal" and any(covers)
        }
        return f"{self.server}: DDLs {counts}; {len(pairs)} changes in a mode came out equal"
