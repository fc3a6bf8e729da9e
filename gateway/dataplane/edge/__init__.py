"""The side of the clients: listening sockets, the accept phase, TLS, client connections.

A connection belongs here from its acceptance until a request head is complete, and again between two
requests. What happens to one request belongs to `exchange`.
"""
