"""A changefeed as options, environment and file describe it, on its way into etcd.

What needs etcd or a broker is imported when it is called: a wrong setting is answered at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from conf.load import changefeed_document, load_settings
from coordination.errors import ConfigError, TidelakeError

if TYPE_CHECKING:
    from coordination.metadata.model import ChangefeedInfo


def described_by(arguments: Mapping[str, object], config: Path | None) -> ChangefeedInfo:
    from streaming.cluster.changefeed_settings import described

    settings = load_settings(
        config=config, environment=os.environ, arguments={**arguments, "etcd": "embedded"}
    )
    document = changefeed_document(config, os.environ)
    return described(settings.changefeed, arguments, document)


def changed_by(
    arguments: Mapping[str, object], config: Path | None
) -> Callable[[ChangefeedInfo], ChangefeedInfo]:
    """What they make of one that is there: they need not say all of it."""
    from streaming.cluster.changefeed_settings import updated

    document = changefeed_document(config, os.environ)
    return lambda info: updated(info, arguments, document)


def checking(*, no_check: bool, is_new: bool) -> Callable[[ChangefeedInfo], None]:
    """Raises what ``run`` would before it starts, for the very info that goes into etcd."""

    def check(info: ChangefeedInfo) -> None:
        from streaming import preflight
        from streaming.cluster.changefeed_settings import changefeed_settings
        from streaming.source.kafka import SourceLost

        changefeed = changefeed_settings(info)
        if no_check:
            return
        try:
            preflight.check_changefeed(changefeed)
            if is_new:
                preflight.check_beginning(changefeed)
        except preflight.NoWarehouse as error:
            raise ConfigError(_or_elsewhere(error)) from error
        except (ConfigError, SourceLost):
            raise  # broker and storage were reached: it is so for the captures too
        except TidelakeError as error:
            raise TidelakeError(_or_elsewhere(error)) from error

    return check


def _or_elsewhere(error: TidelakeError) -> str:
    return (
        f"{str(error).rstrip('.')} (if that is so here alone, and not for the captures: --no-check)"
    )
