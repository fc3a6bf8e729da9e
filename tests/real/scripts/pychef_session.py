"""Makes calls with one pychef, as `session` says. Of the plan also: `user`; `key` (a file)."""

import chef
from session import plan, run, tell

api = chef.ChefAPI(plan["endpoint"], plan["key"], plan["user"])

CALLS = {
    "list": lambda _: sorted(chef.Node.list(api=api)),
    "create": lambda name: chef.Node(name, api=api).save(api=api) and None,
    "delete": lambda name: chef.Node(name, api=api).delete(api=api) and None,
}

tell(run(CALLS))
