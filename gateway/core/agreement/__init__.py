"""Agreement of several gateways, or workers of one, on the same offer: record, votes, ladder, attachment.

Values in, values out: no store, no clock, no connection. Callers store records, or send them to workers.
"""
