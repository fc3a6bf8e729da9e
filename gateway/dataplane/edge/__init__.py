"""The side of the clients: listening sockets, who accepts from them, PROXY headers, TLS, client connections.

`accept_phase` takes a connection through its PROXY header and TLS, `client_connection` reads requests from it
and sets its deadlines, which `worker` looks at. A connection belongs here from its acceptance until a request
head is complete, and again between two requests. What happens to one request belongs to `exchange`.
"""
