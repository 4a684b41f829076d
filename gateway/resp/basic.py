"""Commands about the connection and the server: what clients send beside their work."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any

from .command import Command, RespSession
from .refusals import SYNTAX, CommandRefused, whole
from .replies import Status

NO_USERS = "AUTH is not needed: this gateway has no users"
WRONG = CommandRefused("invalid username-password pair or user is disabled.", "WRONGPASS")
OK = Status("OK")

REDIS_VERSION = "7.0.15"
"""What INFO tells clients that look at it: the commands here are those of that version."""


def ping(session: RespSession, arguments: list[bytes]) -> Any:
    """PING."""
    return arguments[0] if arguments else Status("PONG")


def echo(session: RespSession, arguments: list[bytes]) -> Any:
    """ECHO."""
    return arguments[0]


def quit_(session: RespSession, arguments: list[bytes]) -> Any:
    """QUIT."""
    session.close_after_replies()
    return OK


def reset(session: RespSession, arguments: list[bytes]) -> Any:
    """RESET."""
    session.reset()
    return Status("RESET")


def select(session: RespSession, arguments: list[bytes]) -> Any:
    """SELECT."""
    if whole(arguments[0], "index") != 0:
        raise CommandRefused("DB index is out of range: there is one database, 0")
    return OK


async def auth(session: RespSession, arguments: list[bytes]) -> Any:
    """AUTH."""
    if len(arguments) > 2:
        raise CommandRefused(SYNTAX)
    name, password = arguments if len(arguments) == 2 else (b"default", arguments[0])
    await _authenticate(session, name, password)
    return OK


async def _authenticate(session: RespSession, name: bytes, password: bytes) -> None:
    if session.door.users is None:
        raise CommandRefused(NO_USERS)
    principal = await session.door.users.verify(
        name.decode("utf-8", "replace"), password.decode("utf-8", "surrogateescape"),
        session.peer.rpartition(":")[0], session.wrong,
    )  # fmt: skip
    if principal is None:
        session.wrong += 1
        raise WRONG
    session.authenticated(principal)


def hello(session: RespSession, arguments: list[bytes]) -> Any:
    """HELLO."""
    version, words = session.version, list(arguments)
    if words:
        text = words.pop(0)
        if text not in (b"2", b"3"):
            raise CommandRefused("unsupported protocol version", "NOPROTO")
        version = int(text)
    user: tuple[bytes, bytes] | None = None
    name = session.name
    while words:
        option = words.pop(0).upper()
        if option == b"AUTH" and len(words) >= 2:
            user = (words.pop(0), words.pop(0))
        elif option == b"SETNAME" and words:
            name = _client_name(words.pop(0))
        else:
            raise CommandRefused(f"Syntax error in HELLO option '{option[:32].decode('latin-1')}'")
    return _greet(session, version, name, user)


async def _greet(session: RespSession, version: int, name: bytes, user: tuple[bytes, bytes] | None) -> Any:
    if user is not None:
        await _authenticate(session, *user)
    if session.principal is None:
        raise CommandRefused("HELLO must be called with the client already authenticated, or with AUTH", "NOAUTH")
    session.version, session.name = version, name
    return {
        "server": "redis", "version": REDIS_VERSION, "proto": version, "id": session.id, "mode": "standalone",
        "role": "master", "modules": [],
    }  # fmt: skip


# -- CLIENT --------------------------------------------------------------------------------------------


def client(session: RespSession, arguments: list[bytes]) -> Any:
    """CLIENT."""
    what, rest = arguments[0].upper(), arguments[1:]
    if what == b"ID" and not rest:
        return session.id
    if what == b"GETNAME" and not rest:
        return session.name or None
    if what == b"SETNAME" and len(rest) == 1:
        session.name = _client_name(rest[0])
        return OK
    if what == b"SETINFO" and len(rest) == 2:
        return _set_info(session, rest[0].upper(), rest[1])
    if what == b"INFO" and not rest:
        return _described(session)
    if what == b"LIST":
        assert session.principal is not None, "only PING and the like come before AUTH"
        return "".join(f"{_described(each)}\n" for each in session.door.sessions(session.principal))
    if what in (b"NO-EVICT", b"NO-TOUCH") and len(rest) == 1 and rest[0].upper() in (b"ON", b"OFF"):
        return OK
    raise CommandRefused(f"unknown subcommand or wrong arguments of CLIENT {what[:32].decode('latin-1')}")


def _set_info(session: RespSession, what: bytes, content: bytes) -> Any:
    if what not in (b"LIB-NAME", b"LIB-VER"):
        raise CommandRefused(f"Unrecognized option '{what[:32].decode('latin-1')}'")
    library, version = session.library
    content = _client_name(content)
    session.library = (content, version) if what == b"LIB-NAME" else (library, content)
    return OK


def _client_name(name: bytes) -> bytes:
    if len(name) > 200 or not all(0x21 <= each <= 0x7E for each in name):
        raise CommandRefused("Client names cannot contain spaces, newlines or special characters.")
    return name


def _described(session: RespSession) -> str:
    library, version = (part.decode() for part in session.library)
    user = session.principal.name if session.principal is not None else ""
    return (
        f"id={session.id} addr={session.peer} name={session.name.decode()} age={session.seconds()} db=0 user={user} "
        f"resp={session.version} lib-name={library} lib-ver={version}"
    )


# -- what the server says of itself ----------------------------------------------------------------------


def info(session: RespSession, arguments: list[bytes]) -> Any:
    """INFO."""
    facts = session.door.facts()
    wanted = {word.decode("latin-1").lower() for word in arguments}
    every = not wanted or wanted & {"all", "default", "everything"}
    lines: list[str] = []
    for section, values in facts.items():
        if every or section in wanted:
            lines += [f"# {section.capitalize()}", *(f"{name}:{value}" for name, value in values.items()), ""]
    return "\r\n".join(lines)


SETTINGS = {
    "appendonly": "yes", "databases": "1", "save": "", "timeout": "0", "maxmemory": "0",
    "maxmemory-policy": "noeviction",
}  # fmt: skip
"""What CONFIG GET answers: how Redis would be configured to behave like this."""


NAMES_MAX = 256
"""Of COMMAND and CONFIG, which look at each while other connections wait."""


def config(session: RespSession, arguments: list[bytes]) -> Any:
    """CONFIG."""
    if arguments[0].upper() != b"GET" or len(arguments) < 2:
        raise CommandRefused("CONFIG is GET only: settings are those of the broker and its topics")
    _bound(arguments)
    patterns = [pattern.decode("latin-1").lower() for pattern in arguments[1:]]
    return {
        name: value for name, value in SETTINGS.items() if any(fnmatch.fnmatchcase(name, each) for each in patterns)
    }


def help_(session: RespSession, arguments: list[bytes]) -> Any:
    """HELP."""
    rows = session.door.table.values()
    if arguments:
        named = arguments[0].decode("latin-1").upper()
        rows = [row for row in rows if row.name == named]
        if not rows:
            raise CommandRefused(f"there is no command {named[:32]!r}")
    return [f"{row.usage} - {row.summary}" for row in rows]


def command(session: RespSession, arguments: list[bytes]) -> Any:
    """COMMAND."""
    table = session.door.table
    if not arguments:
        return [_row(row) for row in table.values()]
    what, names = arguments[0].upper(), [name.decode("latin-1").upper() for name in arguments[1:]]
    _bound(names)
    if what == b"COUNT":
        return len(table)
    if what == b"LIST":
        return [row.name.lower() for row in table.values()]
    if what == b"INFO":
        return [_row(table[name]) if name in table else None for name in names or table]
    if what == b"DOCS":
        return {name.lower(): _docs(table[name]) for name in names or table if name in table}
    raise CommandRefused(f"unknown subcommand of COMMAND: {what[:32].decode('latin-1')}")


def _bound(names: Sequence[Any]) -> None:
    if len(names) > NAMES_MAX:
        raise CommandRefused(f"there are {len(names)} names, and {NAMES_MAX} is the most")


def _row(row: Command) -> list[Any]:
    flags = [Status(flag) for flag in row.flags]
    return [row.name.lower(), row.arity, flags, *row.keys, [], [], [], []]


def _docs(row: Command) -> dict[str, Any]:
    return {"summary": row.summary, "since": "1.0.0", "group": row.group, "usage": row.usage}


COMMANDS = [
    Command("PING", -1, ping, "connection", "PING [message]", "Answers PONG, or the message", flags=("fast",)),
    Command("ECHO", 2, echo, "connection", "ECHO message", "Answers the message", flags=("fast",)),
    Command(
        "QUIT", -1, quit_, "connection", "QUIT", "Closes the connection", flags=("no_auth", "fast"), before_auth=True
    ),
    Command(
        "HELLO", -1, hello, "connection", "HELLO [2|3 [AUTH user password] [SETNAME name]]",
        "Chooses RESP 2 or 3; AUTH and SETNAME as the commands of these names", flags=("no_auth", "fast"),
        before_auth=True,
    ),
    Command(
        "AUTH", -2, auth, "connection", "AUTH [user] password", "Authenticates; the user is `default` if not given",
        flags=("no_auth", "fast"), before_auth=True,
    ),
    Command(
        "RESET", 1, reset, "connection", "RESET", "Makes the connection as new: RESP 2, no name, no MULTI",
        flags=("no_auth", "fast"), before_auth=True,
    ),
    Command("SELECT", 2, select, "connection", "SELECT 0", "There is one database", flags=("fast",)),
    Command(
        "CLIENT", -2, client, "connection",
        "CLIENT ID | GETNAME | SETNAME name | SETINFO LIB-NAME|LIB-VER text | INFO | LIST | NO-EVICT ON|OFF",
        "About this connection; LIST has those of the same user", flags=("fast",),
    ),
    Command(
        "COMMAND", -1, command, "server", "COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]]",
        "The commands that there are",
    ),
    Command("HELP", -1, help_, "server", "HELP [command]", "A line about each command, or about one"),
    Command("INFO", -1, info, "server", "INFO [section ...]", "What runs here, in the manner of Redis"),
    Command("CONFIG", -2, config, "server", "CONFIG GET pattern [pattern ...]", "Fixed answers that clients look for"),
]  # fmt: skip
