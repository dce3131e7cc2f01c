"""Work between commits: small files become large ones, and what no version needs is deleted.

upkeep ─┬─ fold ── fold_choice      gather ── fold
        └─ clean_up                 outside_files
"""
