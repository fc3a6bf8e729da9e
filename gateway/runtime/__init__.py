"""The process around the gateway: event loop, signals, service manager, CPUs, which build, terminal, files.

    compiled         which build runs: the sources, or what was compiled from them; which event loop
    process          the event loop, the collector of reference cycles and the signals of a process
    service_manager  what systemd is told
    timer            a call that is due, and can be put off
    cpus             how many CPUs the process may use
    file_trust       whose files it relies on
    terminal         tables, colour and error lines for people

What belongs here: what a process asks of its interpreter and its operating system, whatever it serves, and
what more than one room above needs of that. What does not: all that knows a version, a backend, a request
or the configuration. It imports `errors` alone, and all rooms above may import it. Nothing is imported here,
because every verb of the command begins with `compiled`.
"""
