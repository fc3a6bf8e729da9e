"""Heads of requests and responses as values, with header edits, links, request ids and bounded JSON.

Nothing here reads or writes a socket, parses HTTP/1.1 (`dataplane.http1`) or gives a header a meaning (the
dialects).
"""
