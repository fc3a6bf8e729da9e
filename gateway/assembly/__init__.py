"""The composition root: a whole running gateway, put together from its parts.

`gateway` starts and stops them in the right order; the files beside it make those that are several things in
one. Nothing here decides anything about requests or knows a command-line verb.
"""

from gateway.assembly.gateway import Gateway

__all__ = ["Gateway"]
