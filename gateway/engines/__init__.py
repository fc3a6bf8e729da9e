"""Other data planes that are driven from the snapshot of a gateway beside them.

They get compiled tables (`table`), never rules of their own: every row is an answer of `decide`.
"""
