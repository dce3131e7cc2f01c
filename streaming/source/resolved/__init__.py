"""How far a source is resolved, W (rule 2): by watermarks in its messages, or by numbers that its
reader gives (*pins*)."""
