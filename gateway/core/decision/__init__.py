"""Decisions about requests: route, negotiation, operations, selection, and the headers of responses.

`decision.decide` is the entry point. Everything is computed from one snapshot. Nothing here applies facts
(`core.fleet`), opens a connection or retries (`dataplane`).
"""
