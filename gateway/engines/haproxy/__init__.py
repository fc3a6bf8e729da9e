"""HAProxy as an engine: its configuration, its map, and its runtime socket.

`configuration` makes the texts, `runtime` talks to the process, `driver` keeps both up to date with the
snapshot. None of them decides about versions: `engines.table` does.
"""
