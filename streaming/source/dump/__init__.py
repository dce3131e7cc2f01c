"""The copy of existing tables: chunks of a MySQL or MariaDB, read into staged Parquet."""
