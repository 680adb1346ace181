//! Appends: records in the queue of the producer.
//!
//! Not here: outcomes (`queued`, `events`).

use std::sync::Arc;

use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::BaseRecord;

use super::connection::Connection;
use super::failure;
use super::queued::{AckedEnds, LibrdkafkaDelivery, Queued};
use crate::in_flight::InFlightPermit;
use crate::kafka::client::{Cause, Failure, partition_number};
use crate::kafka::failed_append::FailedAppend;
use crate::ticket::Outcome;

/// Queues a record after those that were queued before; the library gets a copy of it.
///
/// # Errors
/// [`Failure`]: it was not queued.
pub(super) fn enqueue(
    connection: &Connection,
    topic: &str,
    acked_ends: &Arc<AckedEnds>,
    value: &[u8],
    append: FailedAppend,
    permit: InFlightPermit,
) -> Result<LibrdkafkaDelivery, Failure> {
    let outcome = Arc::<Outcome<Option<u64>>>::default();
    let acked_ends = acked_ends.clone();
    let queued = Box::new(Queued { append, acked_ends, outcome: outcome.clone(), permit });
    let Err((code, queued)) = send(connection, topic, value, queued) else {
        return Ok(LibrdkafkaDelivery::new(outcome));
    };
    if failure::cause(code) != Cause::Topic {
        return Err(append.before_queue(code));
    }
    // The library may not know of a partition that was added since it looked last.
    connection.refresh(topic, append.ack_timeout / 2);
    match send(connection, topic, value, queued) {
        Ok(()) => Ok(LibrdkafkaDelivery::new(outcome)),
        Err((code, _)) => Err(append.before_queue(code)),
    }
}

/// Gives the library a copy of the value; it takes the state over, or returns it with the error.
fn send(
    connection: &Connection,
    topic: &str,
    value: &[u8],
    queued: Box<Queued>,
) -> Result<(), (Code, Box<Queued>)> {
    let producer = match connection.producer_of_append() {
        Ok(producer) => producer,
        Err(error) => {
            tracing::warn!(%error, "starting a producer of the replicated log failed, the next append tries again");
            return Err((Code::Fatal, queued));
        }
    };
    let number = partition_number(queued.append.partition);
    let record: BaseRecord<'_, (), [u8], Box<Queued>> =
        BaseRecord::with_opaque_to(topic, queued).partition(number).payload(value);
    producer.send(record).map_err(|(error, record)| (failure::code(&error), record.delivery_opaque))
}
