"""A paste filter that takes every request for an administrator's.

Stands in a server's own pipeline where keystonemiddleware's filter was, and tells the server what that one
tells it after a token has been found good. The token is `USER` or `USER:PROJECT`; without one both are
`admin`. Runs inside the servers' environments, from 2018's to today's.
"""

ROLES = "admin,member,reader"


def factory(global_conf, **local_conf):
    def wrap(application):
        def confirmed(environ, start_response):
            user, _, project = environ.get("HTTP_X_AUTH_TOKEN", "").partition(":")
            known = {
                "IDENTITY_STATUS": "Confirmed",
                "ROLES": ROLES,
                "ROLE": ROLES,
                "SERVICE_CATALOG": "[]",
                "USER_DOMAIN_ID": "default",
                "USER_DOMAIN_NAME": "Default",
                "PROJECT_DOMAIN_ID": "default",
                "PROJECT_DOMAIN_NAME": "Default",
            }
            for name in ("USER", "USER_ID", "USER_NAME"):
                known[name] = user or "admin"
            for name in ("PROJECT_ID", "PROJECT_NAME", "TENANT", "TENANT_ID", "TENANT_NAME"):
                known[name] = project or "admin"
            environ.update({"HTTP_X_" + name: value for name, value in known.items()})
            return application(environ, start_response)

        return confirmed

    return wrap
