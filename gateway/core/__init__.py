"""THINKS: knowledge, offers and decisions about requests, as values in and values out.

    versions/   versions and version sets     fleet/      services, backends, facts, offers
    http/       heads, links, ids as values   decision/   decisions about requests
    agreement/  one offer for many replicas   dialect     the contract that every dialect implements

Nothing here performs I/O, reads a clock, draws a random number or writes a log: time, requests in flight and
random bits are parameters. Values are immutable and compare by content. Core depends on the contract of a
dialect (`core.dialect`) and on no dialect. Expected refusals are values, never exceptions.
"""
