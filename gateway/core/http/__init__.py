"""Request and response heads as values: header names, local responses, links.

Nothing here reads or writes a socket, knows the grammar of HTTP/1.1 (`dataplane.http1`) or gives a header a
meaning (the dialects).
"""
