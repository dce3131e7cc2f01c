"""`tidelake diff`: whether each table's cells are the database's."""
