"""Rows with typed values: which are written, and what is wrong with the others."""
