"""Other data planes (engines) that forward requests by the snapshot of a gateway beside them.

    SnapshotHolder  ->  TableCompiler  ->  Table  ->  haproxy/  ->  acknowledged, held  ->  Agreement

This room holds the table of requests that may bypass the gateway, each row an answer of `decide`, and for
each engine a folder with its configuration and its runtime socket. It has no rules of its own about versions,
and it refuses nothing: only the gateway does.
"""
