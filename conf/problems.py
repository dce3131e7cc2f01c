"""Settings that are refused: one error, with a line for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


class SettingError(ValueError):
    """Settings that are refused. The message is one line that names each error and the right form;
    several are numbered. ``place`` is put before all of them: where they stand (such as the file),
    with its separator."""

    def __init__(self, *problems: str, place: str = "") -> None:
        self.problems = problems
        super().__init__(f"{place}{_one_line(problems)}")


def _one_line(problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    numbered = " ".join(f"({number}) {each}" for number, each in enumerate(problems, 1))
    return f"{len(problems)} settings are refused: {numbered}"


class Problems:
    """Collects the settings that are refused, so that a user reads of all of them at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    @contextmanager
    def noted(self, prefix: str = "") -> Iterator[None]:
        """Keep a SettingError that is raised inside, each problem with the prefix, and go on."""
        try:
            yield
        except SettingError as error:
            self.found += [f"{prefix}{each}" for each in error.problems]

    def refuse(self, place: str = "") -> None:
        """Raise one SettingError for all problems that were found, if there are any."""
        if self.found:
            raise SettingError(*dict.fromkeys(self.found), place=place)


def require(condition: bool, message: str) -> None:
    """Raise ``SettingError(message)`` unless the condition holds."""
    if not condition:
        raise SettingError(message)


def unknown(what: str, name: str, known: Iterable[str], *, most_listed: int = 0) -> str:
    """A message such as ``unknown parameter 'partion-num'; did you mean partition-num?``, which
    ends with its question. ``most_listed``: where no more are known it lists them."""
    known = list(known)
    nearest = get_close_matches(name.rpartition(".")[2], known, n=1, cutoff=0.6)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    listed = f": one of {', '.join(known)}" if len(known) <= most_listed else ""
    return f"unknown {what} {name!r}{listed}{hint}"
