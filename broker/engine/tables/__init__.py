"""Tables: effects, and the state they add up to for one partition. Pure data: no requests, answers or waiters."""
