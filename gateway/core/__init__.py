"""THINKS: what is known, what is offered, and what happens to a request, as values in and values out.

    versions/   what a version is             fleet/      what is configured, known and offered
    http/       heads, links, ids as values   decision/   what happens to a request
    agreement/  one offer for many replicas   dialect     the contract that every dialect implements

Nothing here performs I/O, reads a clock, draws a random number or writes a log: time, requests in flight and
random bits are parameters. Values are immutable and compare by content. Core knows the contract of a dialect
(`core.dialect`) and no dialect. Expected refusals are values, never exceptions.
"""
