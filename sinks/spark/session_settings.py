"""The settings that Delta and the Spark engine need in each session that writes tables."""

from __future__ import annotations

SESSION_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",  # near the core count
    "spark.sql.autoBroadcastJoinThreshold": str(64 * 1024 * 1024),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # INT96 cannot be pruned
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.delete.deletionVectors.persistent": "true",
    "spark.databricks.delta.merge.deletionVectors.persistent": "true",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
}
# Of work on many rows. A new session has those of the application, whose small reads cost less
# without.
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
