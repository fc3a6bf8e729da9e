"""The composition root: a whole running gateway, put together from its parts.

`running` enters all of them, each at its place. What belongs here: the parts with a lifetime, the values that
several parts need (`plan`, `parts`), and `Gateway`, which `run`, `demo` and the tests use. What does not: any
decision about requests, any verb of the command line, and the parts of a worker process
(`workers.worker_parts`).
"""

from gateway.assembly.gateway import Gateway

__all__ = ["Gateway"]
