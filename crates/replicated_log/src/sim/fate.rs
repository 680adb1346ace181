//! Fates of appended records: when they arrive, if at all, and when their sender knows.
//!
//! Not here: the records themselves (`broker`).

use chronolith_base::Rng;

/// Frequencies of faults, per mille of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SimFaults {
    /// Appends that never arrive; the sender learns nothing.
    pub lost_requests: u16,
    /// Appends that arrive and whose acknowledgement is lost.
    pub lost_acks: u16,
    /// Appends that arrive after the sender gave up.
    pub late_arrivals: u16,
    /// Appends that are stored twice, as by a broker that does not recognise a repeat.
    pub stored_twice: u16,
    /// Appends that the broker refuses.
    pub refused: u16,
    /// Reads that fail.
    pub failed_reads: u16,
    /// Reads that return fewer records than they could.
    pub short_reads: u16,
    /// Longest delay on one way, microseconds.
    pub delay_us_max: u32,
}

impl SimFaults {
    /// Returns some of each fault but records that are stored twice.
    #[must_use]
    pub fn some() -> SimFaults {
        SimFaults {
            lost_requests: 10,
            lost_acks: 10,
            late_arrivals: 10,
            stored_twice: 0,
            refused: 20,
            failed_reads: 50,
            short_reads: 200,
            delay_us_max: 20_000,
        }
    }
}

/// Outcome of an append for its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolution {
    Acknowledged,
    /// No answer within the timeout.
    TimedOut,
    /// The timeout passed before it was sent.
    NotSent,
    /// The broker answered that it does not store the record.
    Refused,
}

/// Everything that happens to an appended record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) resolution: Resolution,
    /// Time at which the sender knows the resolution.
    pub(super) resolved_ns: u64,
    /// Time at which the record is in the log, if it ever is.
    pub(super) arrival_ns: Option<u64>,
    pub(super) is_stored_twice: bool,
}

/// Time of an append, and the sender's patience.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    pub(super) now_ns: u64,
    pub(super) timeout_ns: u64,
}

/// Order of what happens in one partition.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PartitionOrder {
    arrival_ns: u64,
    resolved_ns: u64,
    /// No record is sent before: an earlier one is not acknowledged yet.
    blocked_until_ns: u64,
}

impl PartitionOrder {
    /// Draws the fate of the next record of the partition.
    pub(super) fn draw(&mut self, rng: &Rng, faults: SimFaults, timing: Timing, is_reachable: bool) -> Fate {
        let delay_ns = || u64::from(faults.delay_us_max) * 1000 * rng.below(1024) / 1024;
        let deadline_ns = timing.now_ns.saturating_add(timing.timeout_ns).max(self.resolved_ns);
        let sent_ns = timing.now_ns.max(self.blocked_until_ns);
        let arrival_ns = (sent_ns + delay_ns()).max(self.arrival_ns);
        let answered_ns = (arrival_ns + delay_ns()).max(self.resolved_ns);
        let draw = rng.below(1000);
        let mut threshold = 0;
        let mut is_drawn = |rate: u16| {
            let before = threshold;
            threshold += u64::from(rate);
            (before..threshold).contains(&draw)
        };
        let is_lost = is_drawn(faults.lost_requests) || !is_reachable;
        let has_lost_ack = is_drawn(faults.lost_acks);
        let is_late = is_drawn(faults.late_arrivals);
        let is_refused = is_drawn(faults.refused);
        let is_stored_twice = is_drawn(faults.stored_twice);
        let fate = |resolution, resolved_ns, arrival_ns| Fate {
            resolution,
            resolved_ns,
            arrival_ns,
            is_stored_twice,
        };
        let fate = if arrival_ns >= deadline_ns {
            fate(Resolution::NotSent, deadline_ns, None)
        } else if is_lost {
            fate(Resolution::TimedOut, deadline_ns, None)
        } else if is_late {
            fate(Resolution::TimedOut, deadline_ns, Some(deadline_ns + delay_ns()))
        } else if is_refused {
            fate(Resolution::Refused, answered_ns.min(deadline_ns), None)
        } else if has_lost_ack || answered_ns > deadline_ns {
            fate(Resolution::TimedOut, deadline_ns, Some(arrival_ns))
        } else {
            fate(Resolution::Acknowledged, answered_ns, Some(arrival_ns))
        };
        self.note(&fate);
        fate
    }

    fn note(&mut self, fate: &Fate) {
        self.resolved_ns = fate.resolved_ns;
        self.arrival_ns = self.arrival_ns.max(fate.arrival_ns.unwrap_or(0));
        if matches!(fate.resolution, Resolution::TimedOut | Resolution::NotSent) {
            self.blocked_until_ns = self.blocked_until_ns.max(fate.resolved_ns);
        }
    }
}
