"""The commands: options in, a table or JSON out. They call ``process`` and ``operations``.

main ── cluster, ddl ── options, terminal
"""
