"""Every ZeroMQ option that matters, in one table, with the reason for each; and MESSAGE_BYTES_MAX, the limit of a frame
on every transport.

Idea: every option is a decision, also where libzmq has a default. Names are those of zmq_setsockopt without the ZMQ_;
zmq_socket.py applies them before it binds or connects. Times in milliseconds.

Contract: values only; imports nothing.
"""

from __future__ import annotations

SOCKETS_MAX = 16_384
"""Of one context. Each push delivery is one; descriptors (ulimit -n) usually end earlier."""

MESSAGE_BYTES_MAX = 65 << 20
"""Default for one frame, either way: the largest batch and then some. libzmq cuts off a peer that announces more."""

MONITOR_EVENTS = 1001
"""Of one listener: what libzmq keeps for its own side, and one for ours. So many it may accept before we refuse."""

_SECOND = 1000

COMMON = {
    "LINGER": 0,  # closing never waits: what must arrive is acknowledged and resent by the sessions
    "HANDSHAKE_IVL": 3 * _SECOND,  # a peer that connects and stays silent is cut off
    "HEARTBEAT_IVL": 5 * _SECOND,  # a vanished peer (cable, SIGSTOP) is noticed without traffic
    "HEARTBEAT_TIMEOUT": 15 * _SECOND,
    "HEARTBEAT_TTL": 30 * _SECOND,  # what we ask of the peer; over 65 s overflows in libzmq 4.3.4
    "TCP_KEEPALIVE": 1,  # second line behind the heartbeats, for peers that answer none
    "TCP_KEEPALIVE_IDLE": 60,
    "TCP_KEEPALIVE_INTVL": 10,
    "TCP_KEEPALIVE_CNT": 3,
    "IMMEDIATE": 1,  # nothing is queued for a peer that is not there
}
"""For every socket."""

BINDING = {
    "BACKLOG": 1024,  # a restarted broker is met by all its clients at once
    # Fail closed: once a socket names a ZAP domain, a missing handler refuses all peers. Only the domain of listeners
    # that let any peer in says otherwise (zmq_curve.ANYONE).
    "ZAP_ENFORCE_DOMAIN": 1,
}
"""For sockets that listen."""

SERVER = {
    # Without it a send to a peer that is gone or full "succeeds" and the message vanishes.
    "ROUTER_MANDATORY": 1,
    # A new connection with the identity of a live one is refused, not preferred: identities cannot be stolen.
    "ROUTER_HANDOVER": 0,
    "SNDHWM": 4096,  # answers per peer; a peer this far behind does not read and is treated as gone
    "RCVHWM": 128,  # requests per peer read ahead of us; then its own sends are refused
}

CLIENT = {
    "SNDHWM": 1024,  # above any producer's window; a full pipe is back-pressure
    "RCVHWM": 4096,
    "RECONNECT_IVL": 100,  # doubles up to the next line
    "RECONNECT_IVL_MAX": 400,  # as over unix://: a lease that ran out meanwhile has a third of its time to be extended
    "CONNECT_TIMEOUT": 5 * _SECOND,
}

PUSH = {
    "SNDHWM": 64,  # never reached: credit ends first. Bounds a bug, and what dies with a peer
}

PULL = {
    "RCVHWM": 64,
    # Never by itself: what was in the pipe is lost with it, so the member must join again and be sent it anew.
    "RECONNECT_IVL": -1,
    "CONNECT_TIMEOUT": 5 * _SECOND,
}
