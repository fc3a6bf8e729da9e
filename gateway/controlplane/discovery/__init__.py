"""Discovery of backends that come and go: DNS names, SRV records and files list them.

This room knows nothing of requests and offers: `core.fleet.source` decides about backends that are listed no
more.
"""
