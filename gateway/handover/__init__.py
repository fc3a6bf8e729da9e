"""From one gateway process to the next without losing a request: the new one gets the sockets, the state and
the lock of the old one.

    old     Predecessor  ->  HandoverServer  --STATE.handover-->  take_over  ->  TakenOver    new

`predecessor` is the old side, `take_over` the new one, `line` carries messages and descriptors.

What belongs here: what two gateway processes, perhaps of two releases, say to each other, the steps and the
way back, and what a start finds of whoever was there before (sockets of systemd, a socket that a
killed gateway has left). What does not: the parts that are handed over, which are `assembly`'s, and the
workers of one gateway (`workers`).
"""
