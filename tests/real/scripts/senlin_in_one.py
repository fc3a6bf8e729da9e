"""Runs all of senlin in one process: API, engine and, if the release has one, conductor.

    senlin_in_one.py --config-file FILE

So the in-process message bus (`fake://`) is enough to connect them. It runs inside a server's environment, on
eventlet, with the service classes of the release, and imports nothing of this project.
"""

import sys

import eventlet

eventlet.monkey_patch(os=False)

# Import it early: when two green threads import it at the same time, one of them gets half of it.
import futurist  # noqa: E402, F401
from oslo_config import cfg  # noqa: E402
from oslo_log import log  # noqa: E402
from oslo_service.service import ServiceLauncher  # noqa: E402
from senlin import objects  # noqa: E402
from senlin.api.common import wsgi  # noqa: E402
from senlin.common import config, consts, messaging  # noqa: E402

NAME = "senlin-api"

if hasattr(config, "parse_args"):
    import senlin.conf  # noqa: F401  registers the options

    config.parse_args(sys.argv, NAME)
else:
    log.register_options(cfg.CONF)
    cfg.CONF(sys.argv[1:], project="senlin", prog=NAME)
log.setup(cfg.CONF, NAME)
objects.register_all()
messaging.setup()

from senlin.engine.service import EngineService  # noqa: E402  reads the options when it is imported

workers = [EngineService(cfg.CONF.host, consts.ENGINE_TOPIC)]
if hasattr(consts, "CONDUCTOR_TOPIC"):
    from senlin.conductor.service import ConductorService

    workers.insert(0, ConductorService(cfg.CONF.host, consts.CONDUCTOR_TOPIC))
launcher = ServiceLauncher(cfg.CONF)
for worker in workers:
    launcher.launch_service(worker)
api = wsgi.Server(NAME, cfg.CONF.senlin_api)
api.start(wsgi.load_paste_app(), default_port=cfg.CONF.senlin_api.bind_port)
launcher.wait()
