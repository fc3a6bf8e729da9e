"""Other data planes that are driven from the snapshot of a gateway beside them.

    SnapshotHolder  ->  TableCompiler  ->  Table  ->  haproxy/  ->  acknowledged, held  ->  Agreement

What belongs here: the table of what may go past the gateway, each row an answer of `decide`, and for each
engine a folder with its texts and its runtime socket. What does not: rules of their own about versions, and
refusals, which the gateway alone says.
"""
