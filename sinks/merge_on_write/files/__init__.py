"""Data files: written and read as Parquet, and the keys in them found.

rows ── sorted_files ── data_files ── statistics ──► a file
keys ── file_cache ── key_bounds ── key_index ──► places in files
"""
