//! Lines of a request that are not stored, and the answer about them in the words of InfluxDB 1.8.
//!
//! Invariants: every line is counted by its reason; texts are bounded. 1.8 names one cause per answer: lines
//! that were parsed and dropped hide lines that were not parsed, whose count is always `dropped=0`.
//! Not here: HTTP status codes (`server`); conflicts of types and retention, which the store finds.

use chronolith_model::WordKind;

use super::fault::{Fault, ParseReason, text_of};

/// Bytes of the texts about unparsable lines at most.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// Unparsable lines that are quoted at most.
const MESSAGE_COUNT_MAX: u64 = 1_000;

/// Reason why a line that was parsed is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// A tag named `time`, `__name__`, `__field__` or `__kind__`.
    InvalidTagKey,
    /// No field but `time`.
    InvalidFieldName,
    /// A text that is longer than the limit.
    TextTooLong,
}

impl DropReason {
    /// Number of kinds.
    pub const COUNT: usize = 3;

    /// All kinds, in order of their numbers.
    pub const ALL: [DropReason; DropReason::COUNT] =
        [DropReason::InvalidTagKey, DropReason::InvalidFieldName, DropReason::TextTooLong];

    /// Returns the value of the `reason` label of metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            DropReason::InvalidTagKey => "invalid_tag_key",
            DropReason::InvalidFieldName => "invalid_field_name",
            DropReason::TextTooLong => "text_too_long",
        }
    }
}

/// Lines of a request that are not in its batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// Lines that cannot be parsed, by [`ParseReason`].
    pub unparsable: [u64; ParseReason::COUNT],
    /// `unable to parse '<line>': <reason>` for each refused line, joined by newlines, until the room is used
    /// up.
    pub messages: String,
    /// Lines that were parsed and dropped, by [`DropReason`].
    pub dropped: [u64; DropReason::COUNT],
    /// Message about the first line with a tag key that is not allowed.
    tag_cause: Option<String>,
    /// Message about the first line that was dropped for its fields.
    field_cause: Option<String>,
    /// Unparsable lines in `messages`.
    quoted_count: u64,
}

/// Points of a request that the store refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreRefused {
    /// New series beyond a limit: message and points.
    pub series_limit: Option<DroppedPoints>,
    /// Type conflicts: message about the first ([`conflict_text`]) and points.
    pub conflict: Option<DroppedPoints>,
    /// Points older than the retention policy.
    pub beyond_retention_count: u64,
}

/// Points that one cause dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedPoints {
    /// Message about the first of them.
    pub message: String,
    /// Number of points.
    pub count: u64,
}

impl Refused {
    /// Number of lines that cannot be parsed.
    #[must_use]
    pub fn unparsable_count(&self) -> u64 {
        self.unparsable.iter().sum()
    }

    /// Number of lines that were parsed and dropped.
    #[must_use]
    pub fn dropped_count(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Returns true if every line is in the batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unparsable_count() == 0 && self.dropped_count() == 0
    }

    /// Returns the error of the answer, or `None` if all points are stored; `stored_count` is the number of
    /// points that were handed to the store.
    ///
    /// Order of causes as in 1.8: tag keys, series limits, fields, types, retention, unparsable lines. All
    /// points but those beyond the retention policy are counted together.
    #[must_use]
    pub fn answer(&self, stored_count: u64, store: &StoreRefused) -> Option<String> {
        let parsed_count = stored_count + self.dropped_count();
        if parsed_count == 0 {
            return (self.unparsable_count() > 0).then(|| self.all_messages());
        }
        let of_store = |cause: &Option<DroppedPoints>| cause.as_ref().map(|points| points.message.clone());
        let validation = (self.tag_cause.clone())
            .or_else(|| of_store(&store.series_limit))
            .or_else(|| self.field_cause.clone())
            .or_else(|| of_store(&store.conflict));
        if let Some(cause) = validation {
            let causes = [&store.series_limit, &store.conflict];
            let of_store: u64 = causes.into_iter().flatten().map(|points| points.count).sum();
            return Some(partial_write(&cause, self.dropped_count() + of_store));
        }
        if store.beyond_retention_count > 0 {
            return Some(partial_write("points beyond retention policy", store.beyond_retention_count));
        }
        (self.unparsable_count() > 0).then(|| partial_write(&self.all_messages(), 0))
    }

    /// Returns the messages, and how many lines they leave out.
    fn all_messages(&self) -> String {
        match self.unparsable_count() - self.quoted_count {
            0 => self.messages.clone(),
            count => format!("{}\nunable to parse {count} more lines", self.messages),
        }
    }

    /// Counts a line that cannot be parsed.
    #[cold]
    pub(super) fn note_unparsable(&mut self, line: &[u8], fault: Fault<'_>) {
        if let Some(count) = self.unparsable.get_mut(fault.reason() as usize) {
            *count += 1;
        }
        let room = MESSAGE_BYTES_MAX.saturating_sub(self.messages.len());
        let is_first = self.quoted_count == 0;
        if self.quoted_count >= MESSAGE_COUNT_MAX || (room < line.len() && !is_first) {
            return;
        }
        self.quoted_count += 1;
        if !is_first {
            self.messages.push('\n');
        }
        let (quoted, cut) = match line.get(..room) {
            Some(start) if line.len() > room => (start, "..."),
            _ => (line, ""),
        };
        let text = format!("unable to parse '{}{cut}': {}", text_of(quoted), fault.text());
        self.messages.push_str(&text);
    }

    /// Counts a line that was parsed and is dropped.
    #[cold]
    pub(super) fn note_dropped(&mut self, reason: DropReason, message: impl FnOnce() -> String) {
        if let Some(count) = self.dropped.get_mut(reason as usize) {
            *count += 1;
        }
        let cause = match reason {
            DropReason::InvalidTagKey => &mut self.tag_cause,
            DropReason::InvalidFieldName | DropReason::TextTooLong => &mut self.field_cause,
        };
        cause.get_or_insert_with(message);
    }
}

fn partial_write(cause: &str, dropped_count: u64) -> String {
    format!("partial write: {cause} dropped={dropped_count}")
}

/// Returns the message about a value of another type than the field has in its shard group.
#[must_use]
pub fn conflict_text(field: &str, measurement: &str, sent: WordKind, stored: WordKind) -> String {
    let sent = type_name(sent);
    let stored = type_name(stored);
    format!(
        "field type conflict: input field \"{field}\" on measurement \"{measurement}\" is type {sent}, already exists as type {stored}"
    )
}

/// Returns the name that InfluxDB has for a kind.
#[must_use]
pub fn type_name(kind: WordKind) -> &'static str {
    match kind {
        WordKind::Float => "float",
        WordKind::Boolean => "boolean",
        WordKind::Integer => "integer",
        WordKind::Unsigned => "unsigned",
        WordKind::Text => "string",
    }
}

pub(super) fn tag_key_text(tag: &[u8], measurement: &[u8]) -> String {
    let tag = text_of(tag);
    let measurement = text_of(measurement);
    format!("invalid tag key: input tag \"{tag}\" on measurement \"{measurement}\" is invalid")
}

pub(super) fn field_name_text(field: &[u8], measurement: &[u8]) -> String {
    let field = text_of(field);
    let measurement = text_of(measurement);
    format!("invalid field name: input field \"{field}\" on measurement \"{measurement}\" is invalid")
}

pub(super) fn text_too_long_text(field: &[u8], measurement: &[u8], found: usize, limit: usize) -> String {
    let field = text_of(field);
    let measurement = text_of(measurement);
    format!("input field \"{field}\" on measurement \"{measurement}\" is too long, {found} > {limit}")
}
