"""The hand-over (hot restart): a new gateway process gets sockets, state and lock of the old one, and no
request is lost.

    old     Predecessor  ->  HandoverServer  --STATE.handover-->  take_over  ->  TakenOver    new

`predecessor` is the old side, `take_over` the new one, `connection` carries messages and descriptors.

What belongs here: the messages of two gateway processes, perhaps of two releases, the steps and the way back,
and what a start finds of an earlier process (sockets of systemd, the socket of a killed gateway). What does
not: the parts that are handed over (`assembly`), and the workers of one gateway (`workers`).
"""
