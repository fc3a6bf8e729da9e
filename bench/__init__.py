"""The bench: the gateway and other proxies with the same routing, backends and load, on one core each.

It measures and reports. No ratio changes its exit code: a slow machine is not a failure. The gateway must not
import it.
"""
