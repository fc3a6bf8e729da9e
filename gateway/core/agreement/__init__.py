"""How several gateways, or workers of one, come to offer the same: record, votes, ladder, attachment.

Values in, values out: no store, no clock, no connection. Whoever keeps a record somewhere, or hands it to
workers, acts on what is computed here.
"""
