//! Calls of librdkafka that `rdkafka` has no safe interface for: the description of a topic with its id, the
//! proof that a record was never sent, the token of an administrator (ADR 0148).
//!
//! Invariants: every object that a function of the library creates is destroyed once, by [`Owned`]; a pointer
//! into an event is not used after the event.
//! Not here: decisions; callers see codes of the library.
#![expect(unsafe_code, reason = "rdkafka has no safe interface for these calls (ADR 0148)")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{NonNull, null_mut};
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::message::BorrowedMessage;

use crate::kafka::client::Description;
use crate::position::TopicId;

/// Pause between two looks if a question is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of a text that the library writes an error to.
const TEXT_BYTES: usize = 256;

/// Object of the library that is destroyed when it is dropped.
struct Owned<T> {
    object: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> Owned<T> {
    /// Takes an object over; `None` for null, which the library returns without memory.
    ///
    /// # Safety
    /// `object` is null, or no other code destroys it and `destroy` is the library's destructor of its type.
    unsafe fn new(object: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Option<Owned<T>> {
        NonNull::new(object).map(|object| Owned { object, destroy })
    }

    fn as_ptr(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `new` was promised that this is the destructor of the object, and that no other code calls
        // it.
        unsafe { (self.destroy)(self.object.as_ptr()) }
    }
}

/// Asks the brokers for a topic, at most `within`; looks every 50 ms if `is_over`, and ends with
/// `OperationTimedOut` if so. Blocks.
///
/// # Errors
/// Code of the library or of the brokers, for example of a topic that does not exist.
pub(super) fn describe_topic<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    within: Duration,
    is_over: &dyn Fn() -> bool,
) -> Result<Description, Code> {
    let queue = ask_for_topic(client, topic, within)?;
    let mut left = within.saturating_add(LOOK_EVERY);
    let event = loop {
        // SAFETY: the queue lives until the end of this function.
        let event = unsafe { sys::rd_kafka_queue_poll(queue.as_ptr(), millis(LOOK_EVERY)) };
        // SAFETY: the library gives an event of a queue to its reader, who destroys it.
        if let Some(event) = unsafe { Owned::new(event, sys::rd_kafka_event_destroy) } {
            break event;
        }
        left = left.saturating_sub(LOOK_EVERY);
        if left.is_zero() || is_over() {
            return Err(Code::OperationTimedOut);
        }
    };
    description(&event)
}

/// Sends the question, whose answer is an event of the returned queue.
fn ask_for_topic<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    within: Duration,
) -> Result<Owned<sys::rd_kafka_queue_t>, Code> {
    let handle = client.native_ptr();
    let topic = CString::new(topic).map_err(|_| Code::InvalidArgument)?;
    let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    // SAFETY: the handle lives as long as `client`.
    let options = unsafe { sys::rd_kafka_AdminOptions_new(handle, operation) };
    // SAFETY: the options were just created, for this owner.
    let options = unsafe { Owned::new(options, sys::rd_kafka_AdminOptions_destroy) }.ok_or(Code::Fail)?;
    let mut text: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
    let ms = millis(within);
    // SAFETY: the options live; the library writes at most the given bytes of the text.
    let set = unsafe {
        sys::rd_kafka_AdminOptions_set_request_timeout(options.as_ptr(), ms, text.as_mut_ptr(), TEXT_BYTES)
    };
    check(set)?;
    let mut names = [topic.as_ptr()];
    // SAFETY: one name, which the library copies.
    let topics = unsafe { sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len()) };
    // SAFETY: the collection was just created, for this owner.
    let topics = unsafe { Owned::new(topics, sys::rd_kafka_TopicCollection_destroy) }.ok_or(Code::Fail)?;
    // SAFETY: the handle lives as long as `client`.
    let queue = unsafe { sys::rd_kafka_queue_new(handle) };
    // SAFETY: the queue was just created. The library counts references to it: an answer that comes after
    // this owner's end is destroyed with the queue.
    let queue = unsafe { Owned::new(queue, sys::rd_kafka_queue_destroy) }.ok_or(Code::Fail)?;
    // SAFETY: all four live; the library copies topics and options, and keeps a reference to the queue.
    unsafe { sys::rd_kafka_DescribeTopics(handle, topics.as_ptr(), options.as_ptr(), queue.as_ptr()) };
    Ok(queue)
}

/// Returns the first topic of an answer.
fn description(event: &Owned<sys::rd_kafka_event_t>) -> Result<Description, Code> {
    // SAFETY: the event lives.
    check(unsafe { sys::rd_kafka_event_error(event.as_ptr()) })?;
    // SAFETY: the event lives; null for an event of another kind.
    let result = unsafe { sys::rd_kafka_event_DescribeTopics_result(event.as_ptr()) };
    let result = NonNull::new(result.cast_mut()).ok_or(Code::Fail)?;
    let mut count = 0;
    // SAFETY: the result is a part of the event.
    let topics = unsafe { sys::rd_kafka_DescribeTopics_result_topics(result.as_ptr(), &raw mut count) };
    if topics.is_null() || count == 0 {
        return Err(Code::UnknownTopicOrPartition);
    }
    // SAFETY: the array has `count` entries, at least one, and is a part of the event.
    let topic = unsafe { *topics };
    // SAFETY: the topic is a part of the event.
    let error = unsafe { sys::rd_kafka_TopicDescription_error(topic) };
    // SAFETY: a part of the event, or null, for which the library returns no error.
    check(unsafe { sys::rd_kafka_error_code(error) })?;
    // SAFETY: the topic is a part of the event.
    let id = unsafe { sys::rd_kafka_TopicDescription_topic_id(topic) };
    let id = NonNull::new(id.cast_mut()).ok_or(Code::Fail)?;
    // SAFETY: the id is a part of the event.
    let high = unsafe { sys::rd_kafka_Uuid_most_significant_bits(id.as_ptr()) };
    // SAFETY: as above.
    let low = unsafe { sys::rd_kafka_Uuid_least_significant_bits(id.as_ptr()) };
    let mut partition_count = 0;
    // SAFETY: the topic is a part of the event.
    let partitions = unsafe { sys::rd_kafka_TopicDescription_partitions(topic, &raw mut partition_count) };
    let has_leaders = (0..partition_count).all(|idx| {
        // SAFETY: the array has `partition_count` entries and is a part of the event.
        let partition = unsafe { *partitions.add(idx) };
        // SAFETY: the partition is a part of the event.
        !unsafe { sys::rd_kafka_TopicPartitionInfo_leader(partition) }.is_null()
    });
    Ok(Description { id: topic_id(high, low), partition_count: partition_count as u32, has_leaders })
}

/// Returns true if the library knows that no broker has the record of a failed append: no request with it was
/// sent, or the broker's answer proves it.
pub(super) fn is_not_written(message: &BorrowedMessage<'_>) -> bool {
    // SAFETY: the message lives as long as its reference.
    let status = unsafe { sys::rd_kafka_message_status(message.ptr()) };
    status == sys::rd_kafka_msg_status_t::RD_KAFKA_MSG_STATUS_NOT_PERSISTED
}

/// Gives a client its token; an administrator of `rdkafka` does not ask for one.
///
/// # Errors
/// Text of the library, without the token.
pub(super) fn set_token<C: ClientContext>(
    client: &Client<C>,
    token: &str,
    principal: &str,
    expires_ms: i64,
) -> Result<(), String> {
    let zero = |_| "expected text without a zero byte".to_owned();
    let token = CString::new(token).map_err(zero)?;
    let principal = CString::new(principal).map_err(zero)?;
    let mut text: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
    // SAFETY: handle and texts live; no extensions; the library writes at most the given bytes of the text.
    let set = unsafe {
        sys::rd_kafka_oauthbearer_set_token(
            client.native_ptr(),
            token.as_ptr(),
            expires_ms,
            principal.as_ptr(),
            null_mut(),
            0,
            text.as_mut_ptr(),
            TEXT_BYTES,
        )
    };
    if set == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    // SAFETY: the library ends the text with a zero within its bytes, which are zero otherwise.
    Err(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}

fn check(code: sys::rd_kafka_resp_err_t) -> Result<(), Code> {
    if code == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR { Ok(()) } else { Err(code.into()) }
}

/// Returns an id from its halves, in the order of the protocol.
fn topic_id(high: i64, low: i64) -> TopicId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&high.to_be_bytes());
    id[8..].copy_from_slice(&low.to_be_bytes());
    TopicId(id)
}

fn millis(duration: Duration) -> c_int {
    c_int::try_from(duration.as_millis()).unwrap_or(c_int::MAX)
}
