"""DDLs that bring a column of which the messages lose something (``strict-types``)."""

from __future__ import annotations

from coordination.model import TableName
from streaming.changefeed.schema_file import read_definitions
from streaming.changefeed.target_forms import WriteModes
from streaming.protocols.decoders import losses_of
from streaming.protocols.rows.losses import LossyTypes
from tests.streaming.owner.ddl.test_plan import ddl, planned


def test_with_strict_types_a_ddl_that_brings_a_lossy_column_waits() -> None:
    losses = losses_of("debezium", is_numbered=False)
    schema = read_definitions("CREATE TABLE shop.t (id INT PRIMARY KEY);", lambda _: True).schema(
        TableName("shop", "t")
    )
    lossy = ddl(40, "ALTER TABLE `t` ADD COLUMN `d` DECIMAL(20,4)", kind="ALTER")
    exact = ddl(40, "ALTER TABLE `t` ADD COLUMN `d` DECIMAL(10,4)", kind="ALTER")
    for is_strict, event, waits in (
        (True, lossy, True),
        (True, exact, False),
        (False, lossy, False),
    ):
        forms = WriteModes(lossy=LossyTypes(losses, "protocol=debezium", is_strict))
        found = planned([event], known=["t"], schema=schema, forms=forms)
        assert bool(found.held) is waits
        assert (found.runs is None) is waits
        if waits:
            assert "loses values of d (a decimal comes as a double" in found.held[0].why
