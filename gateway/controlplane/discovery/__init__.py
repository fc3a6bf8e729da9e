"""Backends that come and go: what a name or a file lists now, and who leaves because it is listed no more.

Knows nothing of requests, versions and offers: `core.fleet.source` has the rule, `core.fleet` what it means.
"""
