"""What a MySQL and a MariaDB make of old values when a DDL changes a column, each by its own rules.

The rules are found out by differential tests against the servers (``tests/differential``). What is
not known to be so raises ValueError with a reason: the table is held, and nothing is guessed.
"""
