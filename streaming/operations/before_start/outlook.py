"""``tidelake check``: all that a start of `tidelake run` would meet, at once. It starts nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from conf.settings import Changefeed, Settings
from conf.sources.binlog_uri import BinlogSettings
from coordination.errors import TidelakeError
from coordination.etcd.etcd3_client import connect
from coordination.etcd.keys import check_cluster_id
from coordination.transport.grpc_calls import check_free
from streaming.changefeed import preflight
from streaming.operations.before_start.database import database_notes
from streaming.operations.before_start.machine import machine_notes
from streaming.operations.before_start.notes import Note, Outlook

_RIGHT: Final = {
    "etcd": "it answers, or is one of the process itself",
    "settings": "filter, routes and rules of tables can be read, and fit together",
    "warehouse": "it can be written, and no other changefeed has tables of this one there",
    "changefeed": "it is new, or its settings are those with which it has begun",
    "source": "it answers, and has what is needed",
}


def outlook(settings: Settings) -> Outlook:
    """Blocks for as long as Java, etcd, the warehouse and the source take to answer."""
    changefeed, is_away = settings.changefeed, False
    notes = [] if preflight.ends_with_copy(changefeed) else list(machine_notes())
    checks: list[tuple[str, Callable[[Changefeed], None]]] = [
        ("etcd", lambda _: _check_etcd(settings)),
        *preflight.checks(),
        ("warehouse", preflight.refuse_others_tables),
        ("source", preflight.check_beginning),
    ]
    told = {about: dict[str, None]() for about, _ in checks}
    unknown = set[str]()
    for about, check in checks:
        try:
            check(changefeed)
        except TidelakeError as error:
            unknown.add(about)
            if not (told["warehouse"] and changefeed.sink.warehouse in str(error)):
                told[about][str(error)] = None  # two checks may ask the same source
            is_away = is_away or not isinstance(error, preflight.SAME_EVERYWHERE)
    for about, whys in told.items():
        notes += [Note("refused", about, why) for why in whys]
        notes += [] if about in unknown else [Note("ok", about, _RIGHT[about])]
    if isinstance(changefeed.source, BinlogSettings):
        told_already = {note.what for note in notes}
        found = database_notes(changefeed)
        notes += [note for note in found if note.what not in told_already]
    return Outlook(notes=tuple(notes), is_away=is_away)


def _check_etcd(settings: Settings) -> None:
    check_cluster_id(settings.etcd.cluster_id)
    check_free(settings.transport.addr)
    if not settings.etcd.embedded:
        connect(settings.etcd).close()
