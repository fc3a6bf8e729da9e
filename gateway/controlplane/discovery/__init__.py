"""Discovery of backends that come and go: DNS names, SRV records and files list them.

This room knows nothing of requests, versions and offers: `core.fleet.source` has the rules for members that
are listed no more, `core.fleet` their meaning.
"""
