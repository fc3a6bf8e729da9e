"""Serves a WSGI application on loopback: serve_wsgi.py MODULE NAME PORT [FIRST-MODULE]

NAME is the application or, with `()` at its end, a function that returns it. FIRST-MODULE is imported before
anything else. It runs inside a server's environment, on the cheroot in its list, and imports nothing of this
project.
"""

import importlib
import sys

module, name, port, *first = sys.argv[1:]
# The application would read the rest of the command line as its own.
del sys.argv[1:]
for early in first:
    importlib.import_module(early)
application = getattr(importlib.import_module(module), name.removesuffix("()"))
if name.endswith("()"):
    application = application()

from cheroot import wsgi  # noqa: E402  after the application, which may change modules first

server = wsgi.Server(("127.0.0.1", int(port)), application, numthreads=8, server_name="127.0.0.1")
try:
    server.start()
except KeyboardInterrupt:
    server.stop()
