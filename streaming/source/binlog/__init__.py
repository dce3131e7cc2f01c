"""The binlog of MySQL and MariaDB as a source. ``format/`` is what its bytes mean."""
