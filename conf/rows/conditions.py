"""Conditions on the values of a row: the expressions of ``ignore-insert-value-expr`` and its like.

They are SQL with MySQL's precedence, of which a subset is read: comparisons, AND, OR, XOR, NOT, IN,
BETWEEN, LIKE, IS, whole-number arithmetic, columns and constants. Everything else is refused, with
its place. Pure: `streaming/apply/values/conditions.py` evaluates them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, cast

from conf.problems import SettingError
from conf.rows.tokens import Token, refusal, tokens

Calculation = Literal["+", "-", "*", "%", "DIV"]
Comparison = Literal["=", "<>", "<", "<=", ">", ">=", "<=>"]
MOST_DEPTH: Final = 50
MOST_DIGITS: Final = 38


@dataclass(frozen=True, slots=True)
class Name:
    """A column; names are compared in any case."""

    at: int  # of its first character, from 1: as in all nodes
    text: str


@dataclass(frozen=True, slots=True)
class Constant:
    """``value``: a float for a number with an exponent, which is inexact; None: NULL."""

    at: int
    value: int | Decimal | float | str | None


@dataclass(frozen=True, slots=True)
class Arithmetic:
    at: int
    op: Calculation
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Compare:
    at: int
    op: Comparison
    left: Value
    right: Value


@dataclass(frozen=True, slots=True)
class Like:
    """``escape``: the character before one that means itself."""

    at: int
    value: Value
    pattern: str | None
    escape: str


@dataclass(frozen=True, slots=True)
class IsNull:
    at: int
    value: Value


@dataclass(frozen=True, slots=True)
class Is:
    """IS TRUE, IS FALSE, IS UNKNOWN (None)."""

    at: int
    condition: Condition
    truth: bool | None


@dataclass(frozen=True, slots=True)
class Not:
    at: int
    condition: Condition


@dataclass(frozen=True, slots=True)
class Logic:
    at: int
    op: Literal["AND", "OR", "XOR"]
    parts: tuple[Condition, ...]  # two or more


@dataclass(frozen=True, slots=True)
class Truth:
    """TRUE and FALSE where a condition stands."""

    at: int
    value: bool


Value = Name | Constant | Arithmetic
Condition = Compare | Like | IsNull | Is | Not | Logic | Truth
Node = Value | Condition
_VALUES: Final = (Name, Constant, Arithmetic)


def columns_of(node: Node) -> Iterator[Name]:
    """The columns that it names, each as often as it does."""
    match node:
        case Name():
            yield node
        case Arithmetic() | Compare():
            yield from columns_of(node.left)
            yield from columns_of(node.right)
        case Logic():
            for each in node.parts:
                yield from columns_of(each)
        case Like() | IsNull():
            yield from columns_of(node.value)
        case Is() | Not():
            yield from columns_of(node.condition)


def read_condition(text: str) -> Condition:
    """Raises SettingError with the place and the reason."""
    reader = _Reader(text)
    found = reader.any_of_or()
    reader.end()
    return reader.condition(found)


_ESCAPE: Final = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_CONTROL: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "0": "\0", "Z": "\x1a"}
_COMPARISONS: Final = {"=": "=", "<>": "<>", "!=": "<>", **{m: m for m in ("<", "<=", ">", ">=")}}
_COMPARISONS["<=>"] = "<=>"
_RESERVED: Final = frozenset(
    (
        *("AND", "OR", "XOR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE"),
        *("DIV", "MOD", "CASE", "COLLATE", "BINARY", "REGEXP", "RLIKE", "INTERVAL", "EXISTS"),
        "SELECT",
    )
)


class _Reader:
    """Descends from OR to constants: each method reads what binds at least so tightly."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(tokens(text))
        self._next = 0
        self._depth = 0

    def any_of_or(self) -> Node:
        return self._joined("OR", ("OR", "||"), self._xor)

    def condition(self, node: Node) -> Condition:
        """The node where only a condition can stand."""
        if isinstance(node, Constant) and isinstance(node.value, int) and node.value in (0, 1):
            return Truth(node.at, bool(node.value))
        if isinstance(node, _VALUES):
            raise self._wrong(node.at, "a value stands where a condition must, such as c <> 0")
        return node

    def end(self) -> None:
        token = self._tokens[self._next]
        if token.kind != "end":
            raise self._wrong(token.at, "this is not read here")

    def _joined(
        self, op: Literal["AND", "OR", "XOR"], marks: tuple[str, ...], inner: Callable[[], Node]
    ) -> Node:
        found = inner()
        first, parts = self._tokens[self._next], [found]
        while self._accept(*marks):
            parts.append(inner())
        if len(parts) == 1:
            return found
        return Logic(first.at, op, tuple(self.condition(each) for each in parts))

    def _xor(self) -> Node:
        return self._joined("XOR", ("XOR",), self._and)

    def _and(self) -> Node:
        return self._joined("AND", ("AND", "&&"), self._not)

    def _not(self) -> Node:
        if token := self._accept("NOT"):
            with_more = self._deeper(token, self._not)
            return Not(token.at, self.condition(with_more))
        return self._comparison()

    def _comparison(self) -> Node:
        found = self._predicate()
        while True:
            token = self._tokens[self._next]
            if self._accept("IS"):
                found = self._is(token, found)
            elif op := _COMPARISONS.get(token.upper):
                self._next += 1
                left, right = self._value(found), self._value(self._predicate())
                found = Compare(token.at, cast("Comparison", op), left, right)
            else:
                return found

    def _is(self, token: Token, found: Node) -> Condition:
        negated = bool(self._accept("NOT"))
        said = self._accept("NULL", "TRUE", "FALSE", "UNKNOWN")
        if said is None:
            raise self._wrong(
                self._tokens[self._next].at, "NULL, TRUE, FALSE or UNKNOWN must stand"
            )
        made: Condition
        if said.upper == "NULL" and isinstance(found, _VALUES):
            made = IsNull(token.at, found)
        else:
            truth = {"TRUE": True, "FALSE": False}.get(said.upper)
            made = Is(token.at, self.condition(found), truth)
        return Not(token.at, made) if negated else made

    def _predicate(self) -> Node:
        found = self._sum()
        token = self._tokens[self._next]
        negated = bool(self._accept("NOT"))
        made: Condition
        if self._accept("IN"):
            made = self._in(token, self._value(found))
        elif self._accept("BETWEEN"):
            value, low = self._value(found), self._value(self._sum())
            self._need("AND")
            high = self._value(self._predicate())
            above, below = Compare(token.at, ">=", value, low), Compare(token.at, "<=", value, high)
            made = Logic(token.at, "AND", (above, below))
        elif self._accept("LIKE"):
            made = self._like(token, self._value(found))
        elif negated:
            raise self._wrong(token.at, "IN, BETWEEN or LIKE must follow")
        else:
            return found
        return Not(token.at, made) if negated else made

    def _in(self, token: Token, value: Value) -> Condition:
        self._need("(")
        found = [Compare(token.at, "=", value, self._value(self._sum()))]
        while self._accept(","):
            found.append(Compare(token.at, "=", value, self._value(self._sum())))
        self._need(")")
        return found[0] if len(found) == 1 else Logic(token.at, "OR", tuple(found))

    def _like(self, token: Token, value: Value) -> Condition:
        pattern, escape = self._primary(), "\\"
        if not isinstance(pattern, Constant) or not isinstance(pattern.value, str | None):
            raise self._wrong(pattern.at, "the pattern of LIKE must be a text")
        if self._accept("ESCAPE"):
            said = self._primary()
            if not isinstance(said, Constant) or not isinstance(said.value, str):
                raise self._wrong(said.at, "one character must follow ESCAPE")
            escape = said.value
            if len(escape) > 1:
                raise self._wrong(said.at, "one character must follow ESCAPE")
        return Like(token.at, value, pattern.value, escape)

    def _sum(self) -> Node:
        return self._calculated(("+", "-"), self._product)

    def _product(self) -> Node:
        return self._calculated(("*", "%", "MOD", "DIV"), self._unary)

    def _calculated(self, marks: tuple[str, ...], inner: Callable[[], Node]) -> Node:
        found = inner()
        while token := self._accept(*marks):
            op = cast("Calculation", "%" if token.upper == "MOD" else token.upper)
            found = Arithmetic(token.at, op, self._value(found), self._value(inner()))
        return found

    def _unary(self) -> Node:
        if token := self._accept("-"):
            found = self._deeper(token, self._unary)
            if isinstance(found, Constant) and isinstance(found.value, int | Decimal | float):
                return Constant(token.at, -found.value)
            return Arithmetic(token.at, "-", Constant(token.at, 0), self._value(found))
        return self._primary()

    def _primary(self) -> Node:
        token = self._tokens[self._next]
        self._next += 1
        match token.kind:
            case "number":
                return Constant(token.at, self._number(token))
            case "text":
                return self._string(token)
            case "name":
                return self._column(token, token.text[1:-1].replace("``", "`"))
            case "word":
                return self._word(token)
            case "mark" if token.text == "(":
                found = self._deeper(token, self.any_of_or)
                self._need(")")
                return found
        raise self._wrong(token.at, "a value is missing here")

    def _word(self, token: Token) -> Node:
        word = token.upper
        if word == "NULL":
            return Constant(token.at, None)
        if word in ("TRUE", "FALSE"):
            return Constant(token.at, int(word == "TRUE"))
        following = self._tokens[self._next]
        if word in ("DATE", "TIMESTAMP") and following.kind == "text":
            self._next += 1
            return self._string(following)
        if following.text == "(" and following.kind == "mark":
            raise self._wrong(token.at, f"the function {token.text} is not known here")
        if word in _RESERVED:
            raise self._wrong(token.at, f"{word} is not read here")
        return self._column(token, token.text)

    def _column(self, token: Token, name: str) -> Name:
        if self._accept("."):
            raise self._wrong(token.at, "name the column alone, without its table")
        return Name(token.at, name)

    def _string(self, token: Token) -> Constant:
        quote = token.text[0]

        def plain(escape: re.Match[str]) -> str:
            if escape[1] is None:
                return quote if escape[0][0] == quote else escape[0]
            return escape[0] if escape[1] in "%_" else _CONTROL.get(escape[1], escape[1])

        return Constant(token.at, _ESCAPE.sub(plain, token.text[1:-1]))

    def _number(self, token: Token) -> int | Decimal | float:
        if "e" in token.text.lower():
            return float(token.text)
        if len(token.text.replace(".", "").lstrip("0")) > MOST_DIGITS:
            raise self._wrong(token.at, f"a number has at most {MOST_DIGITS} digits")
        return Decimal(token.text) if "." in token.text else int(token.text)

    def _value(self, node: Node) -> Value:
        if not isinstance(node, _VALUES):
            raise self._wrong(node.at, "a condition stands where a value must")
        return node

    def _deeper(self, token: Token, inner: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise self._wrong(token.at, f"it is nested more than {MOST_DEPTH} deep")
        found = inner()
        self._depth -= 1
        return found

    def _accept(self, *texts: str) -> Token | None:
        token = self._tokens[self._next]
        if token.upper not in texts:
            return None
        self._next += 1
        return token

    def _need(self, text: str) -> None:
        if self._accept(text) is None:
            raise self._wrong(self._tokens[self._next].at, f"{text} is missing here")

    def _wrong(self, at: int, why: str) -> SettingError:
        return refusal(self._text, at, why)
