"""MOVES BYTES: client connections, backend connections, and the exchange between them.

What happens to a request is decided in `core.decision`, in one pure call; here it is only done. The data
plane reads one snapshot a request and never writes the fleet: facts that it overhears are handed out through
`observe`.
"""
