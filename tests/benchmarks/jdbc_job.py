"""The copy that most people write: Spark reads a table by JDBC, side by side by its key, and writes
a Delta table. Runs as a process of its own: ``python -m tests.benchmarks.jdbc_job``.

MariaDB's driver is downloaded by Spark itself, the first time."""

from __future__ import annotations

import argparse
import time

from tests.benchmarks.measure import REPOSITORY, tell

DRIVER = "org.mariadb.jdbc:mariadb-java-client:3.5.3"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--rows", required=True, type=int)
    parser.add_argument("--connections", required=True, type=int)
    parser.add_argument("--target", required=True)
    args = parser.parse_args()
    from pyspark.sql import SparkSession

    jars = ",".join(str(jar) for jar in sorted((REPOSITORY / ".jars" / "spark").glob("*.jar")))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.jars.packages", DRIVER)
        .config("spark.jars.ivy", str(REPOSITORY / ".jars" / "naive"))
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    begun = time.time()
    (
        spark.read.format("jdbc")
        .options(url=args.url, dbtable="shop.orders", user="root", password="")
        .options(driver="org.mariadb.jdbc.Driver", fetchsize=10_000)
        .options(partitionColumn="id", lowerBound=0, upperBound=args.rows)
        .options(numPartitions=args.connections)
        .load()
        .write.format("delta")
        .save(args.target)
    )
    tell("copied", begun=begun, ended=time.time())
    spark.stop()


if __name__ == "__main__":
    main()
