/** What the package offers. */
export {
  Client,
  type ClientEvents,
  connect,
  type ListenOptions,
  type MessagesOptions,
  type ServerStats,
  type TopicOptions,
  type TopicStats,
} from "./client.js";
export { Entry, type Fields, type FieldValue, millisecondsOf, offsetOf } from "./entries.js";
export {
  AttemptsExceeded,
  AuthenticationFailed,
  CannotConnect,
  ClientClosed,
  ConnectionLost,
  GroupExists,
  InvalidUrl,
  OutOfSpace,
  PenstockError,
  PermissionDenied,
  ProtocolError,
  ReplyError,
  RequestTimeout,
  TooManyPending,
  TopicExists,
  Unavailable,
  UnknownCommand,
  UnknownGroup,
  UnknownTopic,
  WrongType,
} from "./errors.js";
export {
  type AutoClaimed,
  type ClaimOptions,
  type ConsumerInfo,
  type CreateGroupOptions,
  Group,
  type GroupReadOptions,
  type PendingEntry,
  type PendingOptions,
  type PendingSummary,
} from "./groups.js";
export type { ClientOptions, ReconnectOptions } from "./options.js";
export type { SendOptions } from "./pool.js";
export { type Argument, Push, type Reply, ReplyMap } from "./replies.js";
export {
  type AddOptions,
  type FollowOptions,
  type GroupInfo,
  type RangeOptions,
  type StreamInfo,
  Streams,
  type Trim,
} from "./streams.js";
export type { OnError } from "./telling.js";
export type { WaitOptions } from "./waiting.js";
export { type Task, type TaskHandler, Worker, type WorkerOptions } from "./worker.js";
