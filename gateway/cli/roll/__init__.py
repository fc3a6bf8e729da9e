"""`skewgate roll`: a rolling upgrade by one command.

    plan      which members are upgraded, in which order, and which are skipped
    gate      what requests say about a member after its upgrade
    progress  what is done, kept in the journal: a second run goes on from it, and the report is made of it
    command   the verb, which carries the plan out

Everything but `command` is values in, values out.
"""
