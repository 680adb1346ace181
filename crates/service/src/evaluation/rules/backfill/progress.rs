//! Progress of a backfill: finished rounds, numbers, and the position from which an interrupted one goes on.
//!
//! Invariant: a position belongs to one plan and range, by their hash.

use chronolith_rules::backfill::SampleCounts;
use chronolith_rules::group::GroupKey;

use super::BackfillError;

/// Numbers of a backfill, or of its part since a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BackfillTotals {
    /// Evaluated rounds of rules.
    pub rounds: u64,
    /// Rounds among them in which the rule failed; they change nothing.
    pub failed_rounds: u64,
    /// Series with a sample in some round.
    pub series: u64,
    /// Samples by outcome.
    pub samples: SampleCounts,
    /// Samples that the store refused.
    pub rejected: u64,
}

/// Position in a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Position {
    pub(super) stage: usize,
    /// Rounds of the stage before this time are done.
    pub(super) next_ms: i64,
}

impl Position {
    pub(super) const START: Position = Position { stage: 0, next_ms: i64::MIN };

    /// Text from which the backfill with this hash goes on.
    pub(super) fn token(self, hash: u64) -> String {
        format!("{hash:016x}.{}.{}", self.stage, self.next_ms)
    }

    /// # Errors
    /// The text for the client.
    pub(super) fn parse(token: &str, hash: u64) -> Result<Position, String> {
        let mut parts = token.splitn(3, '.');
        let found = u64::from_str_radix(parts.next().unwrap_or_default(), 16).ok();
        let stage = parts.next().and_then(|text| text.parse().ok());
        let next_ms = parts.next().and_then(|text| text.parse().ok());
        let (Some(found), Some(stage), Some(next_ms)) = (found, stage, next_ms) else {
            return Err(format!("{token:?} is no position of a backfill"));
        };
        if found != hash {
            return Err(format!("position {token:?} is of a backfill of other rules, or of another range"));
        }
        Ok(Position { stage, next_ms })
    }
}

/// State after a chunk.
#[derive(Debug, Clone, PartialEq)]
pub struct BackfillProgress<'a> {
    /// Group of the chunk; of rules that read each other the first one.
    pub group: &'a GroupKey,
    /// Names of its rules.
    pub rules: Vec<&'a str>,
    /// Number of the stage, from 1.
    pub stage: usize,
    /// Number of stages.
    pub stage_count: usize,
    /// Time of the last round that is done.
    pub done_until_ms: i64,
    /// Rounds of rules that are done, those before a position included.
    pub done_rounds: u64,
    /// Rounds of all rules.
    pub round_count: u64,
    /// Numbers since the begin, or since the position.
    pub totals: BackfillTotals,
    /// Position from which a backfill goes on if this one is interrupted.
    pub resume: String,
}

/// End of a backfill.
#[derive(Debug)]
pub struct BackfillEnd {
    /// Numbers since the begin, or since the position.
    pub totals: BackfillTotals,
    /// First rule that failed, with its reason.
    pub first_failure: Option<String>,
    /// Reason of the first sample that the store refused.
    pub first_reject: Option<String>,
    /// Position from which it goes on; all before is durable.
    pub resume: String,
    /// Reason for an end before the last round.
    pub error: Option<BackfillError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_back_and_belongs_to_its_backfill() {
        for position in [Position::START, Position { stage: 3, next_ms: 1_700_000_000_000 }] {
            assert_eq!(Position::parse(&position.token(0xabc), 0xabc), Ok(position));
            assert!(Position::parse(&position.token(0xabc), 0xabd).is_err());
        }
        for wrong in ["", "x", "abc", "abc.1", "abc.1.x", "abc.-1.5", "abc.1.5.6"] {
            assert!(Position::parse(wrong, 0xabc).is_err(), "{wrong}");
        }
    }
}
