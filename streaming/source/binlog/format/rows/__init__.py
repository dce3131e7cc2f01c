"""Events of rows: which table each is of, where its rows' images begin, and their block's body."""
