"""The columns of a change log (write mode ``append``): every event of a table's rows, once.

They stand behind the table's own columns. What an event is says ``_op`` in the words of Delta's
change data feed; an UPDATE is two rows where the message has the old values, else the second alone.
"""

from __future__ import annotations

EVENT = "_op"
INSERTED, DELETED = "insert", "delete"
BEFORE_UPDATE, AFTER_UPDATE = "update_preimage", "update_postimage"
COMMIT_TS = "_commit_ts"  # TiDB's TSO
COMMIT_TIME = "_commit_time"  # the same as a moment, to the millisecond
LOG_COLUMNS = {EVENT: "string", COMMIT_TS: "bigint", COMMIT_TIME: "timestamp"}  # in Spark SQL
