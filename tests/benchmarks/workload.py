"""The changes that every contender reads: who changes which row, in which order.

What a row says is a pure function of ``(id, ver)`` (rows.py): so the state that any prefix of the
changes leads to is an array ``id -> ver``, and every cell of a table can be checked without
keeping a copy of it. All is vectorised but the choice of live keys, sequential by nature.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

INSERT, UPDATE, DELETE = 0, 1, 2
DEAD = -1  # in a state: no such row
SHARES = (0.40, 0.55, 0.05)
RECENT_SHARE, RECENT_PART = 0.9, 0.1  # 90 % of updates and deletes on the newest 10 % of keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """A history over ``base_rows`` rows (ids 1 … base_rows at ver 0), in the order of commit."""

    base_rows: int
    ids: np.ndarray
    vers: np.ndarray  # after the change; of a delete the version that is deleted
    ops: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def counts(self) -> tuple[int, int, int]:
        """Inserts, updates, deletes."""
        inserts, updates, deletes = (int((self.ops == op).sum()) for op in (INSERT, UPDATE, DELETE))
        return inserts, updates, deletes

    def state(self, read: np.ndarray | None = None) -> np.ndarray:
        """``id -> ver`` (index 0 unused, DEAD: no row) after all changes, or the ``read``.

        ``read`` is a mask that for each key holds a prefix of its changes: what a consumer that
        stopped half-way has seen.
        """
        ids, vers, ops = self.ids, self.vers, self.ops
        if read is not None:
            ids, vers, ops = ids[read], vers[read], ops[read]
        highest = max(self.base_rows, int(self.ids.max(initial=0)))
        state = np.full(highest + 1, DEAD, dtype=np.int32)
        state[1 : self.base_rows + 1] = 0
        state[ids] = np.where(ops == DELETE, DEAD, vers)  # numpy: the last assignment stands
        return state


def make_changes(
    base_rows: int, count: int, *, recent: bool, seed: int = 1, inserts_first: int = 0
) -> Changes:
    """``count`` changes in this mix; updates and deletes hit keys that are alive."""
    rng = np.random.default_rng(seed)
    drawn = rng.choice(3, size=count, p=SHARES).astype(np.int8)
    drawn[:inserts_first] = INSERT
    ops = drawn.tolist()
    spots = rng.random(count).tolist()
    near = (rng.random(count) < (RECENT_SHARE if recent else 0.0)).tolist()
    spare = iter(rng.random(count).tolist() * 4)
    vers = [0] * (base_rows + 1 + count)
    out_ids, out_vers, highest = [0] * count, [0] * count, base_rows
    for i, op in enumerate(ops):
        if op == INSERT:
            highest += 1
            out_ids[i] = highest
            continue
        low = int(highest * (1 - RECENT_PART)) if near[i] else 0
        key = low + 1 + int(spots[i] * (highest - low))
        while vers[key] == DEAD:
            low = max(0, 2 * low - highest)  # a small table's few recent keys may all be dead
            key = low + 1 + int(next(spare) * (highest - low))
        out_ids[i] = key
        if op == DELETE:
            out_vers[i], vers[key] = vers[key], DEAD
        else:
            vers[key] = out_vers[i] = vers[key] + 1
    return Changes(
        base_rows=base_rows,
        ids=np.array(out_ids, dtype=np.int64),
        vers=np.array(out_vers, dtype=np.int32),
        ops=np.array(ops, dtype=np.int8),
    )
