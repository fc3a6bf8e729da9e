"""HAProxy as an engine: the texts that it reads, and what is said to its runtime socket.

`configuration` writes its files, `runtime` talks to it, `driver` holds both at the snapshot. None of them
decides about a version: that is `engines.table`.
"""
