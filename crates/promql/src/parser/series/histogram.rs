//! Native histograms in series descriptions: `{{schema:1 count:3 sum:4 offset:1 buckets:[1 2]}}`.

use std::sync::Arc;

use chronolith_model::histogram::Buckets;
use chronolith_model::{FloatHistogram, ResetHint, Span};

use super::{SequenceParser, SequenceValue};
use crate::parser::lexer::Failure;

const PLACE: &str = "histogram description";

/// Buckets of one side as written.
#[derive(Default)]
struct Side {
    offset: i64,
    counts: Vec<f64>,
}

impl Side {
    fn buckets(self) -> Buckets<f64> {
        if self.counts.is_empty() {
            return Buckets::default();
        }
        let length = u32::try_from(self.counts.len()).unwrap_or(u32::MAX);
        // As in Go, an offset that is too large loses its upper bits.
        Buckets { spans: vec![Span { offset: self.offset as i32, length }], counts: self.counts }
    }
}

impl SequenceParser<'_> {
    /// Reads `{{...}}`, `{{...}}x3`, `{{...}}+{{...}}x3`, `{{...}}-{{...}}x3`.
    pub(super) fn histograms(&mut self) -> Result<(), Failure> {
        let first = self.histogram()?;
        let sign = self.peek().filter(|sign| matches!(sign, '+' | '-'));
        let Some(sign) = sign else {
            let count = self.times()?.map_or(1, |times| times.saturating_add(1));
            return self.repeat(count, SequenceValue::Histogram(Arc::new(first)));
        };
        self.pos += 1;
        let step = self.histogram()?;
        let at = self.pos;
        let Some(times) = self.times()? else { return Err(self.unexpected("series values")) };
        let count = self.check_count(times.saturating_add(1))?;
        let mut current = first;
        for idx in 0..count {
            if idx > 0 {
                if current.schema > step.schema {
                    let schemas = format!("from schema {} to {}", step.schema, current.schema);
                    let message = format!("error combining histograms: cannot merge {schemas}");
                    return Err(Failure::new(at, message));
                }
                let combined = if sign == '+' { current.add(&step) } else { current.subtract(&step) };
                combined.map_err(|error| Failure::new(at, error.to_string()))?;
            }
            self.values.push(SequenceValue::Histogram(Arc::new(current.clone())));
        }
        Ok(())
    }

    fn histogram(&mut self) -> Result<FloatHistogram, Failure> {
        self.expect("{{", PLACE)?;
        let mut histogram = FloatHistogram::default();
        if self.take_blanks() || self.rest().starts_with("}}") {
            self.expect("}}", PLACE)?;
            return Ok(histogram);
        }
        let mut positive = Side::default();
        let mut negative = Side::default();
        let mut keys: Vec<String> = Vec::new();
        loop {
            let start = self.pos;
            let key = self.take_while(|c| c == '_' || c.is_ascii_alphabetic()).to_ascii_lowercase();
            if keys.contains(&key) {
                return Err(Failure::new(start, format!("duplicate key {key:?} in histogram")));
            }
            self.expect(":", PLACE)?;
            match key.as_str() {
                "schema" => histogram.schema = self.integer()? as i32,
                "sum" => histogram.sum = self.histogram_number()?,
                "count" => histogram.count = self.histogram_number()?,
                "z_bucket" => histogram.zero_count = self.histogram_number()?,
                "z_bucket_w" if self.peek() != Some('-') => {
                    histogram.zero_threshold = self.histogram_number()?;
                }
                "custom_values" => histogram.custom_values = self.list()?.into(),
                "buckets" => positive.counts = self.list()?,
                "n_buckets" => negative.counts = self.list()?,
                "offset" => positive.offset = self.integer()?,
                "n_offset" => negative.offset = self.integer()?,
                "counter_reset_hint" => histogram.reset_hint = self.reset_hint()?,
                _ => return Err(Failure::new(start, format!("bad histogram descriptor found: {key:?}"))),
            }
            keys.push(key);
            let has_blanks = self.take_blanks();
            if self.take("}}") {
                break;
            }
            if !has_blanks {
                return Err(self.unexpected(PLACE));
            }
        }
        histogram.positive = positive.buckets();
        histogram.negative = negative.buckets();
        Ok(histogram)
    }

    fn integer(&mut self) -> Result<i64, Failure> {
        let is_negative = self.take("-");
        let number = self.unsigned()?.cast_signed();
        Ok(if is_negative { number.wrapping_neg() } else { number })
    }

    /// A number with or without `-`; a plus sign and a leading dot are refused here.
    fn histogram_number(&mut self) -> Result<f64, Failure> {
        let sign = if self.take("-") { -1.0 } else { 1.0 };
        match self.peek() {
            Some('.') => Err(self.unexpected(PLACE)),
            _ => Ok(sign * self.number()?),
        }
    }

    fn list(&mut self) -> Result<Vec<f64>, Failure> {
        self.expect("[", PLACE)?;
        let mut numbers = vec![self.histogram_number()?];
        loop {
            let has_blanks = self.take_blanks();
            if self.take("]") {
                return Ok(numbers);
            }
            if !has_blanks {
                return Err(self.unexpected(PLACE));
            }
            numbers.push(self.histogram_number()?);
        }
    }

    fn reset_hint(&mut self) -> Result<ResetHint, Failure> {
        let start = self.pos;
        let word = self.take_while(|c| c == '_' || c.is_ascii_alphabetic());
        match word.to_ascii_lowercase().as_str() {
            "unknown" => Ok(ResetHint::Unknown),
            "reset" => Ok(ResetHint::Reset),
            "not_reset" => Ok(ResetHint::NotReset),
            "gauge" => Ok(ResetHint::Gauge),
            _ => Err(Failure::new(start, format!("bad histogram descriptor found: {word:?}"))),
        }
    }
}
