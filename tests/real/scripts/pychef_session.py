"""One pychef, a list of calls, one line of JSON about what came of them.

Runs inside the clients' environment, not the tests': nothing of this project is imported. The only
argument is a JSON object: `endpoint`; `user`; `key` (a file); `calls`, each `[name, argument]`. A call that
fails does not end the session: its entry is `{"error", "text"}`.
"""

import json
import sys

import chef

plan = json.loads(sys.argv[1])
api = chef.ChefAPI(plan["endpoint"], plan["key"], plan["user"])

CALLS = {
    "list": lambda _: sorted(chef.Node.list(api=api)),
    "create": lambda name: chef.Node(name, api=api).save(api=api) and None,
    "delete": lambda name: chef.Node(name, api=api).delete(api=api) and None,
}

results = []
for call, argument in plan["calls"]:
    try:
        results.append({"value": CALLS[call](argument)})
    except Exception as error:  # whatever the client raises is the result
        results.append({"error": type(error).__name__, "text": " ".join(str(error).split())})
print(json.dumps({"results": results}))
