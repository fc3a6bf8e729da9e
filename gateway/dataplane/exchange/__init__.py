"""One request, from its complete head to the last byte of its response.

An exchange makes attempts, and an attempt uses one backend connection. The heads of both sides, what may be
sent again, and tunnels belong here. How connections are made and reused belongs to `edge` and `backends`.
"""
