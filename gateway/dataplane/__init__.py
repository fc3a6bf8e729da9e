"""MOVES BYTES: client connections, backend connections, and the exchange between them.

`core.decision` decides what happens to a request, in one pure call; here it is done. A request is decided by
the snapshot that it took at its start, and takes a newer one only when it has to be re-routed. The data plane
never writes the fleet: its passive observations are handed out through `Context.observe`.

A folder for each noun: `edge` (clients), `exchange` (one request), `backends`, `limits`, `documents`,
`local_responses`, `http1` (the wire), `sockets`. At the top stand the worker, and the context that all its
connections share.
"""
