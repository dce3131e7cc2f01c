"""Topics by an expression, as TiCDC's dispatchers have them: ``cdc_{schema}_{table}`` stands for a
topic for each table. Which ones there are the broker knows, and new ones come with new tables.

    topics=audit,cdc_{schema}_{table},!cdc_tmp_{table}
           name  expression           left out of those that an expression matches
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from conf.problems import require

# As TiCDC's own: prefix, {schema}, middle, {table}, suffix.
_FORM: Final = re.compile(r"[A-Za-z0-9._-]*(\{schema\})?([A-Za-z0-9._-]*\{table\})?[A-Za-z0-9._-]*")
_PLACE: Final = re.compile(r"\{schema\}|\{table\}")
_ANY: Final = "[A-Za-z0-9._-]+"  # TiCDC writes ``_`` for any other character of a name
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_LONGEST: Final = 249  # TiCDC cuts a longer name
_OUT: Final = "!"
_INTERNAL: Final = "__"  # Kafka's own topics begin so


@dataclass(frozen=True, slots=True)
class TopicExpressions:
    """``taken``, and what is ``left_out`` of that: expressions or names."""

    taken: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.taken)

    def take(self, topic: str) -> bool:
        """Whether this topic of a broker is one of them."""
        if topic.startswith(_INTERNAL) or any(_matches(each, topic) for each in self.left_out):
            return False
        return any(_matches(each, topic) for each in self.taken)

    @property
    def texts(self) -> tuple[str, ...]:
        """As they were given."""
        return (*self.taken, *(_OUT + each for each in self.left_out))


def parse_topics(given: Iterable[str]) -> tuple[tuple[str, ...], TopicExpressions]:
    """Names of topics, and the expressions among them. Raises SettingError."""
    names, taken, left_out = list[str](), list[str](), list[str]()
    for text in given:
        if is_left_out(text):
            left_out.append(_checked(text.removeprefix(_OUT)))
        elif is_expression(text):
            taken.append(_checked(text))
        else:
            names.append(topic_name(text))
    require(
        bool(taken) or not left_out,
        f"topics: !{left_out[0] if left_out else ''} leaves topics out of those that an expression "
        "such as {schema}_{table} matches, and there is no expression",
    )
    expressions = TopicExpressions(tuple(dict.fromkeys(taken)), tuple(dict.fromkeys(left_out)))
    return tuple(dict.fromkeys(names)), expressions


NO_EXPRESSIONS: Final = TopicExpressions()


def is_left_out(text: str) -> bool:
    return text.startswith(_OUT)


def is_expression(text: str) -> bool:
    return "{" in text


def topic_name(name: str) -> str:
    """Raises SettingError where it is none."""
    require(name != "", "no topic; it is the path: kafka://host:9092/topic")
    require(
        _TOPIC.fullmatch(name) is not None and name not in (".", ".."),
        f"topic {name!r}: letters, digits, '.', '_' and '-', at most 249",
    )
    return name


def _checked(text: str) -> str:
    if not is_expression(text):
        return topic_name(text)
    require(
        _FORM.fullmatch(text) is not None,
        f"topic expression {text!r} must look like prefix{{schema}}middle{{table}}suffix, as in "
        "TiCDC's dispatchers: each of them once or not at all, and letters, digits, '.', '_', '-'",
    )
    return text


def _matches(expression: str, topic: str) -> bool:
    if _pattern(expression).fullmatch(topic) is not None:
        return True
    head = _PLACE.split(expression, 1)[0]
    return len(topic) == _LONGEST and head != expression and topic.startswith(head)


@lru_cache(maxsize=256)
def _pattern(expression: str) -> re.Pattern[str]:
    return re.compile(_ANY.join(map(re.escape, _PLACE.split(expression))))
