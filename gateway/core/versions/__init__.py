"""What a version is: schemes that read and write versions, ranges, and the algebra of version sets.

Nothing here knows a header, a backend or a policy. What a service offers is `core.fleet`; which version a
request gets is `core.decision`.
"""
