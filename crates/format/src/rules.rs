//! State of a group of rules: its last round, the alerts of its rules, and the series that they record.
//!
//! Invariants: readers take untrusted bytes, never panic, and allocate no more than the payload has bytes.
//! Layout: `docs/rules.md`.
//! Not here: writing of the file (`service`), choice of the alerts that are kept (`rules`).

use chronolith_base::bytes::put_uvarint;
use chronolith_base::crc::crc32c;
use chronolith_base::{ByteReader, DecodeError};

/// Version of the layout that is written, the first byte.
pub const STATE_VERSION: u8 = 2;
/// Version without rounds and series, which is read.
const VERSION_OF_ALERTS: u8 = 1;

/// First bytes of a file with the state of a group.
const FILE_MAGIC: [u8; 8] = *b"CHRLRULE";
/// First bytes of an object with the states of several groups.
const OBJECT_MAGIC: [u8; 8] = *b"CHRLRULS";

/// Bits of the times that an alert or a group has.
const HAS_FIRED: u8 = 1;
const HAS_RESOLVED: u8 = 2;
const HAS_LAST_SENT: u8 = 4;
const HAS_KEEP_FIRING: u8 = 8;

/// State of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredAlertState {
    /// Fired before, and is kept until its notification has arrived for certain.
    Resolved,
    /// Has had results for less than `for`.
    Pending,
    /// Fires.
    Firing,
}

/// An alert.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredAlert {
    /// State after the last round.
    pub state: StoredAlertState,
    /// Labels by name.
    pub labels: Vec<(String, String)>,
    /// Expanded annotations by name.
    pub annotations: Vec<(String, String)>,
    /// Value of the last result.
    pub value: f64,
    /// First round with a result, nanoseconds since 1970 as all times here.
    pub active_at_ns: i64,
    /// First round in which it fired.
    pub fired_at_ns: Option<i64>,
    /// First round after it fired.
    pub resolved_at_ns: Option<i64>,
    /// Round of the last notification.
    pub last_sent_at_ns: Option<i64>,
    /// First round without a result, of an alert that is kept firing.
    pub keep_firing_since_ns: Option<i64>,
}

/// An alerting rule with its alerts.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRule {
    /// Name of the alert.
    pub name: String,
    /// Labels of the rule by name, as its file has them.
    pub labels: Vec<(String, String)>,
    /// Rules of the group before it with the same name and labels.
    pub ordinal: u64,
    /// Alerts of the rule.
    pub alerts: Vec<StoredAlert>,
}

/// A recording rule with the series of its last result.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredRecording {
    /// Metric name of all series.
    pub name: String,
    /// Labels of the rule by name, which all series have.
    pub labels: Vec<(String, String)>,
    /// Rules of the group before it with the same name and labels.
    pub ordinal: u64,
    /// Names of the other labels.
    pub label_names: Vec<String>,
    /// Per series one value for each of `label_names`; empty if the series does not have the label. Without
    /// names, there is one series at most.
    pub series: Vec<Vec<String>>,
}

/// A recording rule and the rounds in which it was as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredRecordingRule {
    /// Hash of the expression and of all else that decides results.
    pub hash: u64,
    /// First round of the rule as it is, by the time of samples in milliseconds since 1970.
    pub since_ms: i64,
}

/// Rounds that were evaluated, so that a restart knows which ones a repair may evaluate again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoredRounds {
    /// First and last round of each run without a missing one, by the time of samples in milliseconds.
    pub runs: Vec<(i64, i64)>,
    /// Recording rules in their order.
    pub rules: Vec<StoredRecordingRule>,
}

/// A group.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredGroup {
    /// File of the group.
    pub file: String,
    /// Name of the group.
    pub name: String,
    /// Time of the last round.
    pub last_round_ns: Option<i64>,
    /// Alerting rules that have alerts.
    pub rules: Vec<StoredRule>,
    /// Rounds that were evaluated; empty if nothing is repaired.
    pub rounds: StoredRounds,
    /// Recording rules that have series; `None` if they are unknown.
    pub recordings: Option<Vec<StoredRecording>>,
}

impl StoredGroup {
    /// Appends the bytes of the state.
    ///
    /// # Panics
    /// If a series has another number of values than there are names.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(STATE_VERSION);
        put_text(out, &self.file);
        put_text(out, &self.name);
        out.push(u8::from(self.last_round_ns.is_some()));
        put_time(out, self.last_round_ns);
        put_uvarint(out, self.rules.len() as u64);
        for rule in &self.rules {
            put_text(out, &rule.name);
            put_pairs(out, &rule.labels);
            put_uvarint(out, rule.ordinal);
            put_uvarint(out, rule.alerts.len() as u64);
            rule.alerts.iter().for_each(|alert| put_alert(out, alert));
        }
        put_uvarint(out, self.rounds.runs.len() as u64);
        for (first_ms, last_ms) in &self.rounds.runs {
            out.extend_from_slice(&first_ms.to_le_bytes());
            out.extend_from_slice(&last_ms.to_le_bytes());
        }
        put_uvarint(out, self.rounds.rules.len() as u64);
        for StoredRecordingRule { hash, since_ms } in &self.rounds.rules {
            out.extend_from_slice(&hash.to_le_bytes());
            out.extend_from_slice(&since_ms.to_le_bytes());
        }
        out.push(u8::from(self.recordings.is_some()));
        if let Some(recordings) = &self.recordings {
            put_uvarint(out, recordings.len() as u64);
            recordings.iter().for_each(|recording| put_recording(out, recording));
        }
    }

    /// Reads a state; bytes after it are an error.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(payload: &[u8]) -> Result<StoredGroup, DecodeError> {
        let mut reader = ByteReader::new(payload);
        let version = reader.u8("rule state version")?;
        if version != STATE_VERSION && version != VERSION_OF_ALERTS {
            let found = u64::from(version);
            let what = "rule state version";
            return Err(DecodeError::Invalid { what, offset: 0, expected: "1 or 2", found });
        }
        let file = text(&mut reader, "rule file")?;
        let name = text(&mut reader, "rule group")?;
        let has_round = flags(&mut reader, "last round flag", 1)? != 0;
        let last_round_ns = time(&mut reader, has_round, "last round")?;
        let mut rules = Vec::new();
        for _ in 0..reader.length("rule count")? {
            rules.push(rule(&mut reader)?);
        }
        let (rounds, recordings) = match version {
            VERSION_OF_ALERTS => (StoredRounds::default(), None),
            _ => (rounds(&mut reader)?, recordings(&mut reader)?),
        };
        if !reader.is_empty() {
            let found = reader.remaining() as u64;
            let offset = reader.offset();
            return Err(DecodeError::Invalid {
                what: "bytes after rule state",
                offset,
                expected: "0",
                found,
            });
        }
        Ok(StoredGroup { file, name, last_round_ns, rules, rounds, recordings })
    }
}

/// File with the state of one group of a tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct StateFile {
    /// Tenant of the group.
    pub tenant: String,
    /// State of the group.
    pub state: StoredGroup,
}

impl StateFile {
    /// Returns the bytes of the file.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut payload = Vec::new();
        put_text(&mut payload, &self.tenant);
        self.state.encode(&mut payload);
        framed(FILE_MAGIC, &payload)
    }

    /// Reads a file. The checksum covers all bytes after it, so a file that was cut is an error.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<StateFile, DecodeError> {
        let mut reader = checked(bytes, FILE_MAGIC, "CHRLRULE")?;
        let tenant = text(&mut reader, "rule state tenant")?;
        let state_start = reader.offset();
        let state = StoredGroup::decode(bytes.get(state_start..).unwrap_or_default());
        Ok(StateFile { tenant, state: state.map_err(|error| error.after(state_start))? })
    }
}

/// Returns the bytes of an object with the states of groups.
#[must_use]
pub fn encode_states<'a>(files: impl ExactSizeIterator<Item = &'a StateFile>) -> Vec<u8> {
    let mut payload = Vec::new();
    put_uvarint(&mut payload, files.len() as u64);
    for file in files {
        let bytes = file.encode();
        put_uvarint(&mut payload, bytes.len() as u64);
        payload.extend_from_slice(&bytes);
    }
    framed(OBJECT_MAGIC, &payload)
}

/// Reads an object with the states of groups; bytes after the last one are an error.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_states(bytes: &[u8]) -> Result<Vec<StateFile>, DecodeError> {
    let mut reader = checked(bytes, OBJECT_MAGIC, "CHRLRULS")?;
    let mut files = Vec::new();
    for _ in 0..reader.length("rule state count")? {
        let len = reader.length("rule state length")?;
        let start = reader.offset();
        let file = StateFile::decode(reader.bytes("rule state", len)?);
        files.push(file.map_err(|error| error.after(start))?);
    }
    if !reader.is_empty() {
        let found = reader.remaining() as u64;
        let offset = reader.offset();
        return Err(DecodeError::Invalid { what: "bytes after rule states", offset, expected: "0", found });
    }
    Ok(files)
}

/// Returns the bytes of a payload after `magic` and its checksum.
fn framed(magic: [u8; 8], payload: &[u8]) -> Vec<u8> {
    let mut out = magic.to_vec();
    out.extend_from_slice(&crc32c(payload).to_le_bytes());
    out.extend_from_slice(payload);
    assert_eq!(out.len(), magic.len() + 4 + payload.len(), "a frame is header and payload");
    out
}

/// Returns the reader after `magic` and the checksum, which covers all bytes after it.
fn checked<'a>(
    bytes: &'a [u8],
    magic: [u8; 8],
    expected: &'static str,
) -> Result<ByteReader<'a>, DecodeError> {
    let mut reader = ByteReader::new(bytes);
    let found = reader.bytes("rule state magic", magic.len())?;
    if found != magic {
        let found = u64::from(found.first().copied().unwrap_or(0));
        return Err(DecodeError::Invalid { what: "rule state magic", offset: 0, expected, found });
    }
    let start = reader.offset();
    let found = reader.le_u32("rule state checksum")?;
    let expected = crc32c(bytes.get(reader.offset()..).unwrap_or_default());
    match found == expected {
        true => Ok(reader),
        false => Err(DecodeError::Checksum { what: "rule state", offset: start, expected, found }),
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_uvarint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn put_pairs(out: &mut Vec<u8>, pairs: &[(String, String)]) {
    put_uvarint(out, pairs.len() as u64);
    for (name, value) in pairs {
        put_text(out, name);
        put_text(out, value);
    }
}

fn put_time(out: &mut Vec<u8>, time_ns: Option<i64>) {
    if let Some(time_ns) = time_ns {
        out.extend_from_slice(&time_ns.to_le_bytes());
    }
}

fn put_alert(out: &mut Vec<u8>, alert: &StoredAlert) {
    out.push(match alert.state {
        StoredAlertState::Resolved => 0,
        StoredAlertState::Pending => 1,
        StoredAlertState::Firing => 2,
    });
    let times = [
        (HAS_FIRED, alert.fired_at_ns),
        (HAS_RESOLVED, alert.resolved_at_ns),
        (HAS_LAST_SENT, alert.last_sent_at_ns),
        (HAS_KEEP_FIRING, alert.keep_firing_since_ns),
    ];
    let bits = times.iter().filter(|(_, time_ns)| time_ns.is_some()).map(|(bit, _)| bit);
    out.push(bits.sum());
    out.extend_from_slice(&alert.value.to_bits().to_le_bytes());
    out.extend_from_slice(&alert.active_at_ns.to_le_bytes());
    times.iter().for_each(|(_, time_ns)| put_time(out, *time_ns));
    put_pairs(out, &alert.labels);
    put_pairs(out, &alert.annotations);
}

fn put_recording(out: &mut Vec<u8>, recording: &StoredRecording) {
    let StoredRecording { name, labels, ordinal, label_names, series } = recording;
    put_text(out, name);
    put_pairs(out, labels);
    put_uvarint(out, *ordinal);
    put_uvarint(out, label_names.len() as u64);
    label_names.iter().for_each(|name| put_text(out, name));
    assert!(!label_names.is_empty() || series.len() <= 1, "series differ in their labels");
    put_uvarint(out, series.len() as u64);
    for values in series {
        assert_eq!(values.len(), label_names.len(), "a series has one value per name");
        values.iter().for_each(|value| put_text(out, value));
    }
}

fn recordings(reader: &mut ByteReader<'_>) -> Result<Option<Vec<StoredRecording>>, DecodeError> {
    if flags(reader, "recorded series flag", 1)? == 0 {
        return Ok(None);
    }
    let mut recordings = Vec::new();
    for _ in 0..reader.length("recording rule count")? {
        recordings.push(recording(reader)?);
    }
    Ok(Some(recordings))
}

fn recording(reader: &mut ByteReader<'_>) -> Result<StoredRecording, DecodeError> {
    let name = text(reader, "recording rule name")?;
    let labels = pairs(reader, "recording rule labels")?;
    let ordinal = reader.uvarint("recording rule ordinal")?;
    let mut label_names = Vec::new();
    for _ in 0..reader.length("label name count")? {
        label_names.push(text(reader, "label name")?);
    }
    // A value has a byte of length at least, so the bytes that are left bound the count.
    let count = match label_names.is_empty() {
        true => usize::from(flags(reader, "series count", 1)?),
        false => reader.length("series count")?,
    };
    let mut series = Vec::new();
    for _ in 0..count {
        let values = label_names.iter().map(|_| text(reader, "label value"));
        series.push(values.collect::<Result<Vec<String>, DecodeError>>()?);
    }
    Ok(StoredRecording { name, labels, ordinal, label_names, series })
}

fn rule(reader: &mut ByteReader<'_>) -> Result<StoredRule, DecodeError> {
    let name = text(reader, "rule name")?;
    let labels = pairs(reader, "rule labels")?;
    let ordinal = reader.uvarint("rule ordinal")?;
    let mut alerts = Vec::new();
    for _ in 0..reader.length("alert count")? {
        alerts.push(alert(reader)?);
    }
    Ok(StoredRule { name, labels, ordinal, alerts })
}

fn rounds(reader: &mut ByteReader<'_>) -> Result<StoredRounds, DecodeError> {
    let mut rounds = StoredRounds::default();
    for _ in 0..reader.length("run count")? {
        let first_ms = reader.le_u64("first round")?.cast_signed();
        rounds.runs.push((first_ms, reader.le_u64("last round")?.cast_signed()));
    }
    for _ in 0..reader.length("recording rule count")? {
        let hash = reader.le_u64("recording rule hash")?;
        let since_ms = reader.le_u64("recording rule start")?.cast_signed();
        rounds.rules.push(StoredRecordingRule { hash, since_ms });
    }
    Ok(rounds)
}

fn alert(reader: &mut ByteReader<'_>) -> Result<StoredAlert, DecodeError> {
    let state = match flags(reader, "alert state", 2)? {
        0 => StoredAlertState::Resolved,
        1 => StoredAlertState::Pending,
        _ => StoredAlertState::Firing,
    };
    let bits = flags(reader, "alert times", HAS_FIRED | HAS_RESOLVED | HAS_LAST_SENT | HAS_KEEP_FIRING)?;
    let value = f64::from_bits(reader.le_u64("alert value")?);
    let active_at_ns = reader.le_u64("alert start")?.cast_signed();
    Ok(StoredAlert {
        state,
        value,
        active_at_ns,
        fired_at_ns: time(reader, bits & HAS_FIRED != 0, "alert fired")?,
        resolved_at_ns: time(reader, bits & HAS_RESOLVED != 0, "alert resolved")?,
        last_sent_at_ns: time(reader, bits & HAS_LAST_SENT != 0, "alert sent")?,
        keep_firing_since_ns: time(reader, bits & HAS_KEEP_FIRING != 0, "alert kept firing")?,
        labels: pairs(reader, "alert labels")?,
        annotations: pairs(reader, "alert annotations")?,
    })
}

/// A byte of at most `max`.
fn flags(reader: &mut ByteReader<'_>, what: &'static str, max: u8) -> Result<u8, DecodeError> {
    let offset = reader.offset();
    let byte = reader.u8(what)?;
    if byte <= max {
        return Ok(byte);
    }
    Err(DecodeError::Invalid { what, offset, expected: "a smaller number", found: u64::from(byte) })
}

fn time(reader: &mut ByteReader<'_>, is_there: bool, what: &'static str) -> Result<Option<i64>, DecodeError> {
    is_there.then(|| Ok(reader.le_u64(what)?.cast_signed())).transpose()
}

fn pairs(reader: &mut ByteReader<'_>, what: &'static str) -> Result<Vec<(String, String)>, DecodeError> {
    // A pair has two bytes of length at least, so the bytes that are left bound the count.
    let count = reader.length(what)?;
    let mut pairs = Vec::new();
    for _ in 0..count {
        let name = text(reader, what)?;
        pairs.push((name, text(reader, what)?));
    }
    Ok(pairs)
}

fn text(reader: &mut ByteReader<'_>, what: &'static str) -> Result<String, DecodeError> {
    let len = reader.length(what)?;
    let offset = reader.offset();
    let bytes = reader.bytes(what, len)?;
    let text = std::str::from_utf8(bytes).map_err(|error| DecodeError::Invalid {
        what,
        offset,
        expected: "UTF-8",
        found: error.valid_up_to() as u64,
    })?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests;
