"""One session of a client library: the calls of a plan, and one line of JSON with their results.

The scripts that import it run inside the clients' environment, and neither they nor this import anything of
the project. Their only argument is the plan, a JSON object: `endpoint`, `calls` (each `[name, argument]`) and
what each script says. A call that fails does not end the session, as in a program that catches the error: its
entry is `{"error": class, "text": message}`.
"""

import json
import sys

plan = json.loads(sys.argv[1])


def result_of(call, *arguments):
    try:
        return {"value": call(*arguments)}
    except Exception as error:  # whatever the library raises is the result
        return {"error": type(error).__name__, "text": " ".join(str(error).split())}


def run(calls):
    """Make the calls of the plan, by their names. Returns their entries."""
    return [result_of(calls[name], argument) for name, argument in plan["calls"]]


def endpoint_of(proxy):
    """What an openstacksdk proxy has found about its service."""
    found = proxy.get_endpoint_data()
    return {
        "url": found.url,
        "minimum": ".".join(map(str, found.min_microversion or ())),
        "maximum": ".".join(map(str, found.max_microversion or ())),
    }


def announced_by(proxy):
    """The next minimum that an openstacksdk proxy has found in the document of its service, and its day."""
    found = proxy.get_endpoint_data()
    return {"next": ".".join(map(str, found.next_min_version or ())), "from": found.not_before}


def tell(results, **more):
    print(json.dumps({"results": results, **more}))
