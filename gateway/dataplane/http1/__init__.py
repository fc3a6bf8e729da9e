"""HTTP/1.1 on the wire, by strict rules (RFC 9112). What two readers could read differently is refused.

Heads, field names, bodies and their codings, the fields that describe a client to the next hop, and request
ids belong here.

Bytes in, values out: this package opens no socket, reads no clock, chooses no route, knows no version, and
imports nothing else of `dataplane`.
"""
