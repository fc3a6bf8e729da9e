"""The bench: the gateway beside other proxies, same routing, same backends, same load, one core each.

It measures and reports. It judges no ratio by its exit code: a slow machine is not a broken one.
Nothing in the gateway may import it.
"""
