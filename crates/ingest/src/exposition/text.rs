//! Text formats: chunks of a body become series and samples, line by line.
//!
//! Invariants: the result does not depend on where the body is cut into chunks; nothing is allocated per
//! sample; a line is in the batch as a whole or not at all. Memory: the unfinished line, and one batch within
//! the limits of [`is_full`](TextDecoder::is_full).
//! Not here: grammar of a line (`grammar`), labels (`labels`), choice of the format (`content_type`).

use std::ops::Range;

use chronolith_model::batch::BatchExemplar;
use chronolith_model::{BatchSeries, Exemplar, ExemplarReject, LabelsBuilder, MetricKind, WriteBatch};

use super::bounds::replace_bound;
use super::created::{self, WaitingSamples};
use super::fault::{ExpositionError, Fault, What};
use super::grammar::{self, Dialect, LabelVisitor, OpenMetrics, Sample, Text, slice};
use super::labels::{PROTOCOL, Push, REPLACED, unescape};
use super::metadata::{Comment, Family, comment};
use super::options::{BodyRules, CreatedLines, DecodeOptions, EXEMPLAR_LABEL_BYTES_MAX, Timestamps};
use super::refused::Refused;
use super::room::{has_hard_limit, has_soft_limit};
use super::rule::Rule;
use super::specification::{CheckedSample, Declared, Specification};
use super::value::float_seconds;

/// Decoder of a body of one of the text formats.
#[derive(Debug)]
pub(super) struct TextDecoder {
    is_open_metrics: bool,
    options: DecodeOptions,
    /// Start of a line whose end has not arrived.
    unfinished: Vec<u8>,
    /// Set inside of a line that was refused for its length.
    is_in_long_line: bool,
    line_count: u64,
    has_eof: bool,
    family: Family,
    waiting: WaitingSamples,
    /// Series of the batch at the end of the last call.
    series_count: usize,
    exemplar_labels: LabelsBuilder,
    /// Checks of the specification, where they are asked for.
    specification: Option<Box<Specification>>,
    refused: Refused,
}

impl TextDecoder {
    pub(super) fn new(is_open_metrics: bool, options: DecodeOptions) -> TextDecoder {
        let checks = is_open_metrics && options.rules == BodyRules::Specification;
        TextDecoder {
            is_open_metrics,
            options,
            unfinished: Vec::new(),
            is_in_long_line: false,
            line_count: 0,
            has_eof: false,
            family: Family::default(),
            waiting: WaitingSamples::default(),
            series_count: 0,
            exemplar_labels: LabelsBuilder::new(),
            specification: checks.then(Box::default),
            refused: Refused::default(),
        }
    }

    /// Reads the next bytes of the body, as [`super::Decoder::feed`].
    pub(super) fn feed(&mut self, chunk: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        if batch.series.len() != self.series_count {
            self.waiting.clear();
        }
        let fed = self.feed_lines(chunk, batch);
        batch.pad_start_times();
        self.series_count = batch.series.len();
        if self.is_full(batch) {
            self.waiting.clear();
        }
        fed
    }

    fn feed_lines(&mut self, chunk: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        if self.is_full(batch) {
            return Ok(0);
        }
        let mut start = 0;
        if self.is_in_long_line || !self.unfinished.is_empty() {
            let newline = chunk.iter().position(|byte| *byte == b'\n');
            start = newline.map_or(chunk.len(), |at| at + 1);
            self.finish_line(slice(chunk, 0..start), newline.is_some(), batch)?;
        }
        let rest = chunk.get(start..).unwrap_or(&[]);
        debug_assert!(
            start == 0 || self.unfinished.is_empty() || start == chunk.len(),
            "one line is unfinished"
        );
        let whole_len = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (whole, unfinished) = rest.split_at(whole_len);
        let walked = self.lines(whole, batch)?;
        if walked < whole_len {
            return Ok(start + walked);
        }
        self.keep_unfinished(unfinished)?;
        Ok(chunk.len())
    }

    /// Adds `part` to the unfinished line, and reads the line if it ends there.
    fn finish_line(
        &mut self,
        part: &[u8],
        ends_line: bool,
        batch: &mut WriteBatch,
    ) -> Result<(), ExpositionError> {
        if !self.is_in_long_line {
            self.keep_unfinished(part)?;
        }
        if self.is_in_long_line {
            self.is_in_long_line = !ends_line;
        } else if ends_line {
            let line = std::mem::take(&mut self.unfinished);
            let read = self.lines(&line, batch);
            self.unfinished = line;
            self.unfinished.clear();
            read?;
        }
        Ok(())
    }

    /// Keeps the start of a line, unless it is too long.
    fn keep_unfinished(&mut self, part: &[u8]) -> Result<(), ExpositionError> {
        let len = self.unfinished.len() + part.len();
        // The newline may be one of the bytes.
        if len <= self.options.limits.line_bytes_max + 1 {
            self.unfinished.extend_from_slice(part);
            return Ok(());
        }
        debug_assert!(!self.is_in_long_line, "a long line is refused once");
        self.line_count += 1;
        self.is_in_long_line = true;
        let mut line = std::mem::take(&mut self.unfinished);
        line.extend_from_slice(part.get(..self.options.limits.line_bytes_max).unwrap_or(part));
        self.refuse_long(&line)
    }

    /// Ends the body.
    pub(super) fn finish(&mut self, batch: &mut WriteBatch) -> Result<(), ExpositionError> {
        let mut line = std::mem::take(&mut self.unfinished);
        let is_cut_off = self.is_open_metrics && line != b"# EOF";
        if !line.is_empty() && !is_cut_off {
            line.push(b'\n');
            self.lines(&line, batch)?;
        }
        self.family.flush(&mut batch.metadata);
        batch.pad_start_times();
        if self.is_open_metrics && !self.has_eof {
            self.line_count += 1;
            let line = if is_cut_off { line } else { Vec::new() };
            return self.refuse(What::NoEof, &line, line.len());
        }
        Ok(())
    }

    /// Moves the refused lines out.
    pub(super) fn take_refused(&mut self) -> Refused {
        std::mem::take(&mut self.refused)
    }

    /// Returns true if no line is read until the batch is cleared: at a border of families or start times
    /// from the soft limits on, anywhere from the hard ones on.
    fn is_full(&self, batch: &WriteBatch) -> bool {
        let is_large = has_soft_limit(batch) || self.family.has_byte_limit(&batch.metadata);
        is_large && (self.waiting.is_empty() || has_hard_limit(batch))
    }

    /// Reads whole lines until the batch is full. Returns the number of bytes read.
    fn lines(&mut self, lines: &[u8], batch: &mut WriteBatch) -> Result<usize, ExpositionError> {
        if self.is_open_metrics {
            self.lines_of::<OpenMetrics>(lines, batch)
        } else {
            self.lines_of::<Text>(lines, batch)
        }
    }

    fn lines_of<D: Dialect>(
        &mut self,
        lines: &[u8],
        batch: &mut WriteBatch,
    ) -> Result<usize, ExpositionError> {
        let mut start = 0;
        while start < lines.len() && !self.is_full(batch) {
            self.line_count += 1;
            start = match self.line::<D>(lines, start, batch) {
                Ok(next) => next,
                Err(fault) => self.refuse_line(lines, start, fault)?,
            };
        }
        Ok(start)
    }

    /// Counts the line at `start`. Returns the start of the next line.
    #[cold]
    fn refuse_line(&mut self, lines: &[u8], start: usize, fault: Fault) -> Result<usize, ExpositionError> {
        let rest = lines.get(start..).unwrap_or(&[]);
        let len = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = slice(rest, 0..len);
        if len > self.options.limits.line_bytes_max {
            self.refuse_long(line)?;
        } else {
            self.refuse(fault.what, line, fault.at.saturating_sub(start))?;
        }
        Ok(start + len + 1)
    }

    /// Counts a line for its length, with the start of it that is within the limit.
    fn refuse_long(&mut self, line: &[u8]) -> Result<(), ExpositionError> {
        let limit = self.options.limits.line_bytes_max;
        self.refuse(What::LineTooLong, slice(line, 0..limit), limit)
    }

    fn refuse(&mut self, what: What, line: &[u8], at: usize) -> Result<(), ExpositionError> {
        self.refused.note(self.options.mode, what.error(line, self.line_count, at))
    }

    /// Reads the line at `start`. Returns the start of the next line.
    fn line<D: Dialect>(
        &mut self,
        lines: &[u8],
        start: usize,
        batch: &mut WriteBatch,
    ) -> Result<usize, Fault> {
        if self.has_eof || self.line_count > self.options.limits.line_count_max {
            let what = if self.has_eof { What::DataAfterEof } else { What::TooManyLines };
            return Err(Fault { at: start, what });
        }
        let mut at = start;
        while !D::IS_OPEN_METRICS && matches!(lines.get(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        match lines.get(at) {
            Some(b'#') => self.comment::<D>(lines, start, at, batch),
            Some(b'\n') if !D::IS_OPEN_METRICS => Ok(at + 1),
            _ => self.sample::<D>(lines, start, at, batch),
        }
    }

    fn comment<D: Dialect>(
        &mut self,
        lines: &[u8],
        start: usize,
        at: usize,
        batch: &mut WriteBatch,
    ) -> Result<usize, Fault> {
        let rest = lines.get(at..).unwrap_or(&[]);
        let len = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let end = at + len;
        self.check_length(start, end)?;
        let comment = comment::<D>(slice(rest, 0..len))
            .map_err(|fault| Fault { at: at + fault.at, what: fault.what })?;
        self.has_eof = comment == Comment::Eof;
        if let Some(specification) = &mut self.specification {
            check_comment(specification, comment).map_err(|rule| Fault { at, what: What::Rule(rule) })?;
        }
        if comment == Comment::Other {
            return Ok(end + 1);
        }
        self.waiting.clear();
        self.family.add::<D>(comment, &mut batch.metadata);
        Ok(end + 1)
    }

    fn check_length(&self, start: usize, end: usize) -> Result<(), Fault> {
        let limit = self.options.limits.line_bytes_max;
        if end - start <= limit {
            return Ok(());
        }
        Err(Fault { at: start + limit, what: What::LineTooLong })
    }

    fn sample<D: Dialect>(
        &mut self,
        lines: &[u8],
        start: usize,
        at: usize,
        batch: &mut WriteBatch,
    ) -> Result<usize, Fault> {
        let name: &[u8] = match self.family.kind {
            MetricKind::Histogram => b"le",
            MetricKind::Summary => b"quantile",
            _ => b"",
        };
        let count_max = self.options.limits.label_count_max;
        let mut labels = SampleLabels { bound_name: name, bound: None, count: 0, count_max };
        let sample = grammar::sample::<D>(lines, at, &mut labels)?;
        let mut next = sample.next;
        let mut exemplar = None;
        if let Some(brace) = sample.exemplar {
            (exemplar, next) = self.exemplar(lines, brace, &sample)?;
        }
        self.check_length(start, next - 1)?;
        if let Some(specification) = &mut self.specification {
            check_sample(specification, lines, at, &sample, exemplar.as_ref())?;
        }
        let keeps_start = D::IS_OPEN_METRICS
            && self.options.created == CreatedLines::StartTimes
            && created::has_start_time(self.family.kind);
        if keeps_start && slice(lines, sample.series.name.clone()).ends_with(created::SUFFIX) {
            self.start_time(lines, at, &sample, batch);
            return Ok(next);
        }
        let text = self.push(lines, at, &sample, labels.bound, batch);
        if let Some(exemplar) = exemplar {
            let series_idx = index(batch.series.len() - 1);
            batch.exemplars.push(BatchExemplar { series_idx, exemplar });
        }
        if keeps_start {
            let name = sample.series.name;
            self.waiting.push(batch, text, name.start - at..name.end - at);
        }
        Ok(next)
    }

    /// Reads the exemplar whose labels start at `brace`. Returns it, and the start of the next line.
    #[cold]
    fn exemplar(
        &mut self,
        lines: &[u8],
        brace: usize,
        sample: &Sample,
    ) -> Result<(Option<Exemplar>, usize), Fault> {
        let default_ms = self.time_ms(sample.time_ms);
        let labels = &mut self.exemplar_labels;
        labels.clear();
        let mut push = Push { out: labels, is_utf8: true };
        let rest = grammar::exemplar(lines, brace, &mut push)?;
        labels.sort();
        let bytes: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        let reason = if bytes > EXEMPLAR_LABEL_BYTES_MAX {
            ExemplarReject::LabelsTooLong
        } else if labels.repeated_name().is_some() {
            ExemplarReject::DuplicateLabel
        } else {
            let time_ms = rest.time_ms.unwrap_or(default_ms);
            let exemplar = Exemplar { labels: labels.finish(), value: rest.value, time_ms };
            return Ok((Some(exemplar), rest.next));
        };
        self.refused.exemplars.add(reason, 1);
        Ok((None, rest.next))
    }

    fn time_ms(&self, of_body: Option<i64>) -> i64 {
        let is_honored = self.options.timestamps == Timestamps::Honored;
        of_body.filter(|_| is_honored).unwrap_or(self.options.now_ms)
    }

    /// Uses a `_created` line for the samples before it.
    fn start_time(&mut self, lines: &[u8], at: usize, sample: &Sample, batch: &mut WriteBatch) {
        let series = &sample.series;
        let text = slice(lines, at..series.end);
        let start_ms = float_seconds(sample.value).unwrap_or(0);
        let name = series.name.start - at..series.name.end - at;
        let series = grammar::Series { name, end: text.len() };
        self.waiting.apply(text, &series, start_ms, (self.family.kind, self.family.name_bytes), batch);
    }

    /// Appends a series with its sample. Returns the text of the series within the bytes of the batch.
    fn push(
        &self,
        lines: &[u8],
        at: usize,
        sample: &Sample,
        bound: Option<Range<usize>>,
        batch: &mut WriteBatch,
    ) -> Range<usize> {
        let raw_start = batch.raw.len();
        batch.raw.extend_from_slice(slice(lines, at..sample.series.end));
        let text_end = batch.raw.len();
        if let Some(bound) = bound {
            self.put_bound(slice(lines, bound), &mut batch.raw);
        }
        self.options.added.put_tail(PROTOCOL, &mut batch.raw);
        let time_idx = index(batch.times.len());
        batch.series.push(BatchSeries {
            raw: index(raw_start)..index(batch.raw.len()),
            samples: time_idx..time_idx + 1,
        });
        batch.times.push(self.time_ms(sample.time_ms));
        batch.values.push(sample.value);
        raw_start..text_end
    }

    /// Appends a bound in the form of OpenMetrics, if it is written in another one.
    fn put_bound(&self, bound: &[u8], raw: &mut Vec<u8>) {
        debug_assert!(!bound.contains(&REPLACED), "a newline ends the text of a key");
        let end = raw.len();
        raw.push(REPLACED);
        let name: &[u8] = if self.family.kind == MetricKind::Histogram { b"{le=\"" } else { b"{quantile=\"" };
        raw.extend_from_slice(name);
        if replace_bound(bound, raw) {
            raw.extend_from_slice(b"\"}");
        } else {
            raw.truncate(end);
        }
    }
}

/// Checks a comment by the specification.
#[cold]
fn check_comment(specification: &mut Specification, comment: Comment<'_>) -> Result<(), Rule> {
    let (name, declared) = match comment {
        Comment::Type(name, kind) => (name, Declared::Type(kind)),
        Comment::Help(name, _) => (name, Declared::Help),
        Comment::Unit(name, unit) => (name, Declared::Unit(std::str::from_utf8(unit).unwrap_or(""))),
        Comment::Eof => return specification.end(),
        Comment::Other => return Ok(()),
    };
    specification.comment(&unescape(std::str::from_utf8(name).unwrap_or("")), declared)
}

/// Checks a sample by the specification.
#[cold]
fn check_sample(
    specification: &mut Specification,
    lines: &[u8],
    at: usize,
    sample: &Sample,
    exemplar: Option<&Exemplar>,
) -> Result<(), Fault> {
    let mut labels = LabelsBuilder::new();
    grammar::series::<OpenMetrics>(lines, at, &mut Push { out: &mut labels, is_utf8: true })?;
    labels.sort();
    let name = std::str::from_utf8(slice(lines, sample.series.name.clone())).unwrap_or("");
    let char_count = |(name, value): (&str, &str)| name.chars().count() + value.chars().count();
    let rule = |rule| Fault { at, what: What::Rule(rule) };
    if exemplar.is_some_and(|exemplar| exemplar.labels.iter().map(char_count).sum::<usize>() > 128) {
        return Err(rule(Rule::ExemplarTooLong));
    }
    let checked = CheckedSample {
        name: &unescape(name),
        labels: &labels,
        value: sample.value,
        time_ms: sample.time_ms,
        has_exemplar: sample.exemplar.is_some(),
    };
    specification.sample(&checked).map_err(rule)
}

/// Labels of a sample line: counted, and searched for the bound.
struct SampleLabels<'a> {
    /// Name of the label whose value is a bound.
    bound_name: &'a [u8],
    bound: Option<Range<usize>>,
    count: usize,
    count_max: usize,
}

impl LabelVisitor for SampleLabels<'_> {
    // PERF: inlined into the walk over the labels of a line, which calls it for each of them.
    //   cargo bench -p chronolith-ingest --bench exposition_speed
    #[inline]
    fn label(&mut self, bytes: &[u8], name: Range<usize>, value: Range<usize>) -> Result<(), Fault> {
        self.count += 1;
        if self.count > self.count_max {
            return Err(Fault { at: name.start, what: What::TooManyLabels });
        }
        if name.len() == self.bound_name.len() && slice(bytes, name) == self.bound_name {
            self.bound = Some(value);
        }
        Ok(())
    }
}

/// A batch is full long before its offsets exceed u32.
fn index(at: usize) -> u32 {
    u32::try_from(at).expect("offsets into a batch fit u32")
}
