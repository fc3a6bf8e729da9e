"""MOVES BYTES: client connections, backend connections, and the exchange between them.

`core.decision` decides what happens to a request, in one pure call; here it is done. A request is decided by
the snapshot that it took at its start, and takes a newer one only when it has to be re-routed. The data plane
never writes the fleet: its passive observations are handed out through `Context.observe`.
"""
