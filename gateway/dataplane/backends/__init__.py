"""The side of the backends: connections, the pools that keep them, the queues before them, ejection.

The keys for them are `core.fleet.failures` and `core.fleet.connections`. Which backend serves a request is
decided in `core.decision`; what becomes of the request in `exchange`.
"""
