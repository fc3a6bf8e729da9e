"""The composition root: a whole running gateway, put together from its parts.

`running` enters all of them, each at its place; every other file is one part, or something that several parts
need. Nothing here decides anything about requests or knows a command-line verb.
"""

from gateway.assembly.gateway import Gateway

__all__ = ["Gateway"]
