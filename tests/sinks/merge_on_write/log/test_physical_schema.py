"""Which tables the engine leaves to others."""

from __future__ import annotations

import pytest

from sinks.merge_on_write.log.physical_schema import NotForThisEngine, PhysicalSchema
from tests.sinks.merge_on_write.log_tables import metadata, protocol


@pytest.mark.parametrize("configuration", [{}, {"delta.enableRowTracking": "false"}])
def test_row_ids_are_due_as_soon_as_the_protocol_lists_them(configuration: dict[str, str]) -> None:
    """A table whose property is off again keeps the feature."""
    with pytest.raises(NotForThisEngine, match="rowTracking"):
        PhysicalSchema.of(protocol("rowTracking", "domainMetadata"), metadata(**configuration))


def test_but_not_where_they_are_suspended() -> None:
    suspended = metadata(**{"delta.rowTrackingSuspended": "true"})
    assert PhysicalSchema.of(protocol("rowTracking", "domainMetadata"), suspended).columns
