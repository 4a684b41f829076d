/**
 * Everything that this package throws, as one tree of classes.
 *
 * Contract: `code` is for programs and stays as it is, the message is for people. `retry` says that the same call may
 * succeed later. What the server answered is a `ReplyError`; everything else is of this side of the wire.
 */

/** The root of the tree. */
export class PenstockError extends Error {
  constructor(
    message: string,
    /** What it is, for programs: `connection_lost`, `unknown_topic`, ... */
    readonly code: string,
    /** Whether the same call may succeed later. */
    readonly retry: boolean = false,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An address that cannot be one: the message has it, without its password, and says what is accepted. */
export class InvalidUrl extends PenstockError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, "invalid_url", false, options);
  }
}

/** No connection could be opened: refused, unreachable, or not answered in time. */
export class CannotConnect extends PenstockError {
  constructor(message: string, options?: ErrorOptions) {
    super(message, "cannot_connect", true, options);
  }
}

/**
 * The connection ended before the answer. With `sent`, the server may have done what was asked: requests that are safe
 * to repeat are repeated instead of failing with this.
 */
export class ConnectionLost extends PenstockError {
  constructor(
    message: string,
    /** Whether the request was on its way to the server. */
    readonly sent: boolean,
    options?: ErrorOptions,
  ) {
    super(message, "connection_lost", true, options);
  }
}

/** No answer within `timeoutMs`. With `sent`, the server may have done what was asked, or may do it yet. */
export class RequestTimeout extends PenstockError {
  constructor(
    message: string,
    /** Whether the request was on its way to the server. */
    readonly sent: boolean,
  ) {
    super(message, "timeout", true);
  }
}

/** What the server sent is not RESP, or not what the command answers. */
export class ProtocolError extends PenstockError {
  constructor(message: string) {
    super(message, "protocol");
  }
}

/** The client was disconnected, or never connected. */
export class ClientClosed extends PenstockError {
  constructor(message = "the client is disconnected: connect() opens it") {
    super(message, "closed");
  }
}

/** So many bytes of requests wait for answers (`maxPendingBytes`) that no more are taken. */
export class TooManyPending extends PenstockError {
  constructor(message: string) {
    super(message, "too_many_pending", true);
  }
}

/** A task was delivered more often than `maxAttempts`: its workers died while they had it. */
export class AttemptsExceeded extends PenstockError {
  constructor(message: string) {
    super(message, "attempts_exceeded");
  }
}

/** An error that the server answered. */
export class ReplyError extends PenstockError {
  constructor(
    message: string,
    /** The first word of the answer: `ERR`, `NOGROUP`, ... */
    readonly kind: string,
    code: string,
    retry = false,
  ) {
    super(message, code, retry);
  }
}

/** The server wants other credentials, or any. */
export class AuthenticationFailed extends ReplyError {}

/** This user may not do that. */
export class PermissionDenied extends ReplyError {}

/** There is no such group of consumers, or no such stream. */
export class UnknownGroup extends ReplyError {}

/** The group of consumers is there already. */
export class GroupExists extends ReplyError {}

/** There is no such topic. */
export class UnknownTopic extends ReplyError {}

/** The topic is there already. */
export class TopicExists extends ReplyError {}

/** The server's disk or memory is full, or a limit is reached. */
export class OutOfSpace extends ReplyError {}

/** The server cannot do it now: it starts, or cannot reach what it needs. */
export class Unavailable extends ReplyError {}

/** The key holds something other than a stream. */
export class WrongType extends ReplyError {}

/** The server does not have this command, or not in this form. */
export class UnknownCommand extends ReplyError {}

type ReplyErrorClass = new (message: string, kind: string, code: string, retry?: boolean) => ReplyError;

/** By the code that penstock puts in brackets behind the sentence. */
const BY_CODE: ReadonlyMap<string, ReplyErrorClass> = new Map<string, ReplyErrorClass>([
  ["unknown_topic", UnknownTopic],
  ["topic_exists", TopicExists],
  ["unknown_group", UnknownGroup],
  ["storage_full", OutOfSpace],
  ["limit_reached", OutOfSpace],
]);

/** By the first word, with the code where the sentence has none. */
const BY_KIND: ReadonlyMap<string, readonly [ReplyErrorClass, string]> = new Map([
  ["NOAUTH", [AuthenticationFailed, "authentication"]],
  ["WRONGPASS", [AuthenticationFailed, "authentication"]],
  ["NOPERM", [PermissionDenied, "permission"]],
  ["NOGROUP", [UnknownGroup, "unknown_group"]],
  ["BUSYGROUP", [GroupExists, "group_exists"]],
  ["OOM", [OutOfSpace, "out_of_space"]],
  ["TRYAGAIN", [Unavailable, "try_again"]],
  ["LOADING", [Unavailable, "loading"]],
  ["BUSY", [Unavailable, "busy"]],
  ["MASTERDOWN", [Unavailable, "master_down"]],
  ["CLUSTERDOWN", [Unavailable, "cluster_down"]],
  ["WRONGTYPE", [WrongType, "wrong_type"]],
]);

const CODE = /^(.*) \[([a-z][a-z0-9_]*)\]$/s;

/** The error of an answer such as `ERR there is no topic t [unknown_topic]`. */
export function replyError(text: string): ReplyError {
  const space = text.indexOf(" ");
  const kind = space < 0 ? text : text.slice(0, space);
  const coded = CODE.exec(text);
  const sentence = (coded?.[1] ?? text).slice(kind.length).trim() || text;
  const [byKind, kindCode] = BY_KIND.get(kind) ?? byWords(sentence);
  const code = coded?.[2] ?? kindCode;
  return new (BY_CODE.get(code) ?? byKind)(sentence, kind, code, byKind === Unavailable);
}

function byWords(sentence: string): readonly [ReplyErrorClass, string] {
  if (/^unknown (sub)?command\b/i.test(sentence)) {
    return [UnknownCommand, "unknown_command"];
  }
  if (/^max number of clients reached/.test(sentence)) {
    return [Unavailable, "too_many_clients"];
  }
  return [ReplyError, "error"];
}
