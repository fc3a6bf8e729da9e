"""HTTP/1.1 on the wire, by strict rules (RFC 9112). What two readers could read differently is refused.

- `heads`: the start line and the limits of a head, and the check by llhttp.
- `fields`: the field section: which fields matter to the gateway, and how they frame the content.
- `names`: what the gateway does with a field, by the spelling of its name.
- `chunked`: the chunked transfer coding.

Bytes in, values out. This package opens no socket and reads no clock. It chooses no route and knows no
version, and it imports nothing else of `dataplane`.
"""
