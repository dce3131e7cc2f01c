"""How much of everything a bench measures; figures of different sizes are not compared."""

from __future__ import annotations

from dataclasses import dataclass, replace

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """So many changes of a cell's topic, and how often each contender applies them (0: not)."""

    changes: int
    tidelake: int
    delta_rs: int
    naive: int

    def rounds(self, contender: str) -> int:
        rounds: int = getattr(self, contender.replace("-", "_"))
        return rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """``bulk``: rows of the target -> stages, rising in changes, over one topic."""

    bulk: dict[int, tuple[Stage, ...]]
    keys: tuple[str, ...] = ("recent", "uniform")
    freshness_rows: tuple[int, ...]
    freshness_s: tuple[int, int]  # warm-up, measured
    tables: tuple[tuple[int, int], ...]  # tables, changes in each a round
    table_rounds: int
    naive_tables: int  # 0: naive is left out there
    backlogs: tuple[int, ...]  # changes, over a million rows
    garbage_changes: int
    idle_s: int
    captures_s: int  # of changes, with a move in the middle
    scaling_changes: int
    ddl_rows: int
    ddl_changes: int
    parts: tuple[str, ...] | None = None  # None: all


FULL = Size(
    bulk={
        1 * MILLION: (
            Stage(changes=1 * MILLION, tidelake=3, delta_rs=3, naive=1),
            Stage(changes=5 * MILLION, tidelake=3, delta_rs=1, naive=0),
        ),
        10 * MILLION: (
            Stage(changes=1 * MILLION, tidelake=3, delta_rs=3, naive=1),
            Stage(changes=5 * MILLION, tidelake=1, delta_rs=0, naive=0),
        ),
        30 * MILLION: (
            Stage(changes=1 * MILLION, tidelake=3, delta_rs=1, naive=0),
            Stage(changes=5 * MILLION, tidelake=1, delta_rs=0, naive=0),
        ),
    },
    freshness_rows=(1 * MILLION, 10 * MILLION),
    freshness_s=(15, 45),
    tables=((100, 50), (1_000, 5)),
    table_rounds=3,
    naive_tables=5,
    backlogs=(1 * MILLION, 10 * MILLION),
    garbage_changes=500_000,
    idle_s=60,
    captures_s=90,
    scaling_changes=2_000_000,  # more than one read of eight tasks
    ddl_rows=1 * MILLION,
    ddl_changes=2 * MILLION,  # twenty DDLs
)
QUICK = Size(
    bulk={1 * MILLION: (Stage(changes=500_000, tidelake=1, delta_rs=1, naive=1),)},
    keys=("recent",),
    freshness_rows=(1 * MILLION,),
    freshness_s=(8, 15),
    tables=((100, 50),),
    table_rounds=1,
    naive_tables=0,
    backlogs=(1 * MILLION,),
    garbage_changes=200_000,
    idle_s=20,
    captures_s=60,
    scaling_changes=200_000,
    ddl_rows=1 * MILLION,
    ddl_changes=500_000,
    parts=("bulk", "freshness", "tables"),
)


def scaled(size: Size, scale: float) -> Size:
    """The same shape, smaller: for trying the bench itself."""

    def small(count: int, least: int) -> int:
        return max(int(count * scale) // 10_000 * 10_000, least)

    return replace(
        size,
        bulk={
            small(rows, 20_000): tuple(
                Stage(
                    changes=small(stage.changes, 20_000),
                    tidelake=min(stage.tidelake, 1),
                    delta_rs=min(stage.delta_rs, 1),
                    naive=min(stage.naive, 1),
                )
                for stage in stages
            )
            for rows, stages in size.bulk.items()
        },
        freshness_rows=tuple(small(rows, 20_000) for rows in size.freshness_rows),
        freshness_s=(5, 10),
        table_rounds=1,
        naive_tables=min(size.naive_tables, 2),
        backlogs=tuple(small(count, 20_000) for count in size.backlogs),
        garbage_changes=small(size.garbage_changes, 20_000),
        idle_s=min(size.idle_s, 20),
        captures_s=min(size.captures_s, 60),
        scaling_changes=small(size.scaling_changes, 20_000),
        ddl_rows=small(size.ddl_rows, 20_000),
        ddl_changes=small(size.ddl_changes, 50_000),
    )
