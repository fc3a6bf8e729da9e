"""The side of the backends: connections, their pools, the queues before them, ejection.

`core.decision` decides which backend serves a request, `exchange` what becomes of the request.
"""
