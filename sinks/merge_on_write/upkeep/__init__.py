"""Work between commits: small files become large ones, and what no version needs is deleted.

upkeep ─┬─ fold ── fold_choice
        └─ clean_up
"""
