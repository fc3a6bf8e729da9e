"""What happens to a request: route, negotiation, operations, selection, and the lines of its response.

`decision.decide` is the entrance. Everything is computed from one snapshot. Nothing here changes what is
known (`core.fleet`), opens a connection or tries again (`dataplane`).
"""
