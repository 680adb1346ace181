//! Limits that are not settings: sizes and deadlines that protect the process from its clients.
//! Invariants: everything that a client can make grow or wait is named here or in the options.

use std::time::Duration;

/// Connections at once, unless the limit of open files asks for fewer.
pub const CONNECTION_COUNT_MAX: usize = 16_384;
/// Connections that the kernel holds until they are accepted: a burst beyond it waits a second for its retry.
pub const ACCEPT_QUEUE_MAX: u32 = 4096;
/// Open files that connections leave for the store and its maps.
pub const FILES_RESERVED: usize = 512;
/// Connections that are always allowed, however low the limit of open files.
pub const CONNECTION_COUNT_MIN: usize = 64;
/// From the first byte of a request to the end of its headers.
pub const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// From the start of a connection to the end of its TLS handshake.
pub const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// TLS handshakes at the same time; a further one takes the place of the oldest.
pub const TLS_HANDSHAKE_COUNT_MAX: usize = 4096;
/// Requests of one HTTP/2 connection at the same time.
pub const HTTP2_STREAM_COUNT_MAX: u32 = 128;
/// Streams that a client has reset before the server has taken them; more end the connection.
pub const HTTP2_PENDING_RESET_COUNT_MAX: usize = 20;
/// Streams that the server has reset for errors of the client; more end the connection.
pub const HTTP2_ERROR_RESET_COUNT_MAX: usize = 128;
/// Bytes of a request body that a client may send before a handler takes them, of one stream and of all.
pub const HTTP2_WINDOW_BYTES: u32 = 1 << 20;
/// Bytes of responses that wait for the client, of one stream.
pub const HTTP2_SEND_BYTES_MAX: usize = 256 << 10;
/// Pause without bytes after which an HTTP/2 connection with requests is asked for a sign of life.
pub const HTTP2_PING_PAUSE: Duration = Duration::from_secs(30);
/// A connection without a request is closed after this.
pub const KEEP_ALIVE_IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Request line and headers together.
pub const HEADER_BYTES_MAX: usize = 128 << 10;
/// Headers of one request: with a proxy's and a browser's, some clients send more than a hundred.
pub const HEADER_COUNT_MAX: usize = 256;
/// Longest pause between two parts of a body.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Room made at once for a body of announced length. Pages without bytes take no memory.
pub const BODY_GROWTH_BYTES: usize = 1 << 20;
/// A write with a body up to this size is read before it waits for a permit.
pub const UNADMITTED_BODY_BYTES: u64 = 64 << 10;
/// Longest time for which a write may send its body while it holds a permit: a megabyte at 40 Mbit/s.
pub const PERMIT_READ_TIME: Duration = Duration::from_millis(250);
/// A whole body.
pub const BODY_READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a refused body that are still read, so that the client sees the answer.
pub const DISCARDED_BYTES_MAX: usize = 64 << 20;
/// Longest time for which the bytes of a refused body are read.
pub const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest a client may take no byte of an answer.
pub const ANSWER_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest a client may take over a whole answer, however steadily it takes a few bytes.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
/// Part of an answer that is sent, and whose memory is given back, at once.
pub const ANSWER_PART_BYTES: usize = 64 << 10;
/// Shortest time between two log lines about requests that are not valid HTTP: any client can send them.
pub const INVALID_REQUEST_LOG_PAUSE_NS: u64 = 1_000_000_000;
/// Pause between two attempts to reserve memory for a write.
pub const MEMORY_POLL_PAUSE: Duration = Duration::from_millis(10);
/// Form body of a query.
pub const FORM_BYTES_MAX: usize = 4 << 20;
/// Body of a remote read request, as sent and unpacked; as in Prometheus.
pub const REMOTE_READ_BYTES_MAX: usize = 32 << 20;
/// Path of selects between nodes.
pub const SELECT_PATH: &str = "/internal/v1/select";
/// Path of reports of nodes.
pub const NODE_PATH: &str = "/internal/v1/node";
/// A call of another node up to this size is decoded on an async worker, in some microseconds.
pub const INLINE_CALL_BYTES_MAX: usize = 4 << 10;
/// Rule files of a backfill, in one body.
pub const BACKFILL_BYTES_MAX: usize = 32 << 20;
/// Bytes of an answer to remote read that is sent as one message.
pub const REMOTE_READ_ANSWER_BYTES_MAX: usize = 1 << 30;
/// Parts of a streamed answer that wait for the client to take them.
pub const STREAM_PARTS_MAX: usize = 4;
/// Parameters of one request.
pub const PARAM_COUNT_MAX: usize = 4096;
/// Points of one series that a range query may ask for, as in Prometheus.
pub const POINTS_PER_SERIES_MAX: i64 = 11_000;
/// `Retry-After` of refused requests.
pub const RETRY_AFTER_SECONDS: u32 = 5;
/// Seconds after which a client that met the memory limit of the head may try again: windows and idle series
/// leave in minutes.
pub const HEAD_FULL_RETRY_AFTER_SECONDS: u32 = 30;
/// A stop, from the signal to the end of the process: as long as Kubernetes waits before it kills.
pub const STOP_TIME_MAX: Duration = Duration::from_secs(29);
/// The part of it that closing the store always has.
pub const STOP_CLOSE_TIME: Duration = Duration::from_secs(7);
/// Longest time in which requests may finish after the listener has closed.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(20);
/// Longest time in which alerts that wait are sent at a stop, unless requests took the time before.
pub const NOTIFIER_DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// Longest wait for the end of interrupted rounds of rules at a stop.
pub const RULES_STOP_TIME_MAX: Duration = Duration::from_secs(1);
/// Longest time for which readiness may be withdrawn before the listener closes.
pub const SHUTDOWN_DELAY_MAX: Duration = Duration::from_secs(20);
/// Responses shorter than this are not compressed.
pub const COMPRESSION_BYTES_MIN: u64 = 1024;
/// Content that is compressed on an async worker at once, in 100 us.
pub const COMPRESSION_INLINE_BYTES_MAX: usize = 24 << 10;
/// Content of one block of a compressed response: a job of half a millisecond.
pub const COMPRESSION_BLOCK_BYTES: usize = 128 << 10;
/// Blocks of one response that are compressed, or wait for the client, at once.
pub const COMPRESSION_BLOCKS_AHEAD_MAX: usize = 4;
/// Entries of each list of `/api/v1/status/tsdb` at most.
pub const CARDINALITY_LIMIT_MAX: usize = 10_000;

/// Series that `/api/v1/status/tsdb` reads for `match[]`, `start` or `end`.
pub const CARDINALITY_SERIES_MAX: usize = 1_000_000;
/// Blocks of `/api/v1/status/tsdb/blocks` at most.
pub const BLOCK_LIST_MAX: usize = 1000;

/// Terms of one search.
pub const SEARCH_TERMS_MAX: usize = 32;
/// Bytes of one search term.
pub const SEARCH_TERM_BYTES_MAX: usize = 1024;
/// Results of one search at most.
pub const SEARCH_LIMIT_MAX: usize = 10_000;

/// Entries of one list of `/api/v1/status/tenants`, `rejects`, `top_queries` and `metric_usage` at most.
pub const ACTIVITY_LIMIT_MAX: usize = 1000;

/// Pause after a failed accept (no file descriptors, no memory): trying again at once would only spin.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
