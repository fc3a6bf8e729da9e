"""Reading a configuration leaves nothing that only the collector of reference cycles frees.

A process that reloads a thousand services keeps what it has read out of the collector's sight
(`process.keep_for_long`), so what is garbage then stays for ever.
"""

from __future__ import annotations

import gc

from gateway.settings import load

TEXT = "listen: 127.0.0.1:8080\nservices:\n" + "".join(
    f"  s{number}:\n    dialect: ironic\n    match: {{path: /s{number}}}\n"
    f"    backends: [{{url: 'http://127.0.0.1:{6000 + number}', versions: 1.1-1.58}}]\n"
    for number in range(50)
)


def test_a_configuration_that_is_dropped_is_freed_without_the_collector() -> None:
    load(TEXT, filename="x.yaml", environ={}).require()  # what is made once, such as the model
    gc.collect()
    gc.disable()
    try:
        load(TEXT, filename="x.yaml", environ={}).require()
        assert gc.collect() == 0
    finally:
        gc.enable()
