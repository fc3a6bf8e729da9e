"""Makes calls with one pychef. Prints one line of JSON with their results.

It runs inside the clients' environment and imports nothing of this project. The only argument is a JSON
object: `endpoint`; `user`; `key` (a file); `calls`, each `[name, argument]`. A call that fails does not end
the session: its entry is `{"error", "text"}`.
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
