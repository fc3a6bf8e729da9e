"""Versions: schemes that read and write them, ranges, and the algebra of version sets.

Nothing here depends on a header, a backend or a policy: `core.fleet` forms offers, `core.decision`
negotiates.
"""
