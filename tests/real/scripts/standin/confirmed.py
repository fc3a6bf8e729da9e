"""A paste filter that treats every request as one of an administrator.

It replaces the filter of keystonemiddleware in a server's pipeline, and sets the same variables as that one
does for a valid token. The token is `USER` or `USER:PROJECT`; without a token, both are `admin`. It runs
inside the servers' environments, from those of 2018 to those of today.
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
