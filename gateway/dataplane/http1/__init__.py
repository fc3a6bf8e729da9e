"""HTTP/1.1 on the wire, by strict rules (RFC 9112). What two readers could read differently is refused.

Heads, field names, bodies and their codings, the fields that describe a client to the next hop, request ids.
Bytes in, values out: no sockets, clocks, routes or versions, and no imports from the rest of `dataplane`.
"""
