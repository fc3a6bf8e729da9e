"""The one test kit: servers, clients, gateways, clocks, networks, certificates, each made in one way.

- Something belongs here when two folders of tests need it, or when it stands for the world around a gateway.
- Of a gateway it knows what can be seen from outside; `workers` also checks what one worker has left.
- What only one folder needs stands beside the tests of that folder; expectations and judges are no kit.
- Nothing here is a fixture: a folder's `conftest.py` makes fixtures of it.
"""
