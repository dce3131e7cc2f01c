"""Debezium's JSON: as TiCDC writes it, and as Debezium's own MySQL and MariaDB connectors do."""
