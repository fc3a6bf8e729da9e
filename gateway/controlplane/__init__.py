"""LEARNS: `prober` asks backends for their versions, `cell` holds what is known, `reload` changes what is
configured, `journal` tells operators.

Nothing here is on a request's path, and nothing here decides what is offered or who is chosen: facts go to
the cell, the rest is core's.
"""
