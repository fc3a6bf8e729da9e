"""From one gateway process to the next without losing a request: the new one gets the sockets, the state and
the lock of the old one.

    old     Predecessor  ->  HandoverServer  --STATE.handover-->  take_over  ->  TakenOver    new

What both say is in `messages`: form 1, read by releases before and after this one. What is done with the
parts that are handed over is `assembly`'s.
"""
