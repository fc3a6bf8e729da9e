"""What every file of `skewgate init` has in common, and how a text is written in it."""

from __future__ import annotations

import json
from typing import Final


def scalar(text: str) -> str:
    """A text as it is written in the file."""
    plain_text = text and not any(sign in text for sign in "#{}[],&*!|>'\"%@` \t\\") and ": " not in text
    return text if plain_text else json.dumps(text, ensure_ascii=False)


HEAD: Final = """\
# Made by `skewgate init` from the answers of a running API. `skewgate check` validates it, and
# `skewgate schema` describes every key.

# Where clients connect, instead of the API's own address.
listen: {listen}

# Where `skewgate status` and Prometheus connect. This is the default.
admin:
  listen: 127.0.0.1:9900

# Without it, offers, pins and drains end with the process.
# state: /var/lib/skewgate/state.json

services:
  {service}:
    dialect: {dialect}
"""

BACKENDS: Final = """\
    # One entry for each server. Each is asked on its own address, never through a load balancer.
    backends:
"""

OFFER: Final = """\
    # What clients are told. The offer rises when every backend can serve it, and falls only when none can.
    # A ceiling keeps it low until an upgrade is complete.
    # offer:
    #   policy: guaranteed
    #   ceiling: "{ceiling}"
    #   stabilization: 5s
"""
