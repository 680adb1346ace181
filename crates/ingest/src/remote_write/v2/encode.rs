//! The other direction, for load generators and tests: builds an `io.prometheus.write.v2.Request`.
//!
//! Invariants: the fields and their order equal Prometheus's own sender: zero values are left out, metadata
//! is always there, symbols start with the empty string. Not here: HTTP.

use std::sync::Arc;

use chronolith_base::bytes::put_uvarint;
use chronolith_base::hash::HashMap;
use chronolith_model::{Exemplar, Histogram, MetricKind};

use crate::remote_write::encode::{
    compress, kind_number, put_bytes, put_double, put_histogram, put_int, put_unless_empty,
};

/// One float sample as remote write 2.0 has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleOut {
    /// Milliseconds.
    pub time_ms: i64,
    /// Value.
    pub value: f64,
    /// Start timestamp of the counter, in milliseconds; 0 if unknown.
    pub start_ms: i64,
}

/// Metadata, exemplars and histograms that accompany the samples of a series.
#[derive(Debug, Clone, Copy, Default)]
pub struct SeriesExtras<'a> {
    /// Exemplars.
    pub exemplars: &'a [Exemplar],
    /// Native histograms: time, start time or 0, in milliseconds.
    pub histograms: &'a [(i64, i64, Arc<Histogram>)],
    /// Type of the metric.
    pub kind: MetricKind,
    /// Help text.
    pub help: &'a str,
    /// Unit.
    pub unit: &'a str,
}

/// Builds one request after the other; `clear` keeps the memory.
#[derive(Debug, Clone)]
pub struct RequestEncoder {
    symbols: Vec<u8>,
    numbers: HashMap<String, u32>,
    series: Vec<u8>,
    message: Vec<u8>,
    field: Vec<u8>,
    refs: Vec<u8>,
}

impl Default for RequestEncoder {
    fn default() -> RequestEncoder {
        RequestEncoder::new()
    }
}

impl RequestEncoder {
    /// An empty request.
    #[must_use]
    pub fn new() -> RequestEncoder {
        let mut encoder = RequestEncoder {
            symbols: Vec::new(),
            numbers: HashMap::default(),
            series: Vec::new(),
            message: Vec::new(),
            field: Vec::new(),
            refs: Vec::new(),
        };
        encoder.clear();
        encoder
    }

    /// Starts the next request.
    pub fn clear(&mut self) {
        self.symbols.clear();
        self.numbers.clear();
        self.series.clear();
        self.symbol("");
    }

    /// The request, not compressed.
    #[must_use]
    pub fn body(&self) -> Vec<u8> {
        [&*self.symbols, &*self.series].concat()
    }

    /// The request as it is sent: a snappy block.
    ///
    /// # Panics
    /// Beyond 4 GiB.
    #[must_use]
    pub fn compressed(&self) -> Vec<u8> {
        compress(&self.body())
    }

    /// The number of `text` in the table of symbols, which it enters if it is not there.
    ///
    /// # Panics
    /// Beyond 4 G symbols.
    pub fn symbol(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = u32::try_from(self.numbers.len()).expect("a request has less than 4 G symbols");
        self.numbers.insert(text.to_owned(), number);
        put_bytes(&mut self.symbols, 4, text.as_bytes());
        number
    }

    /// Adds a series with labels in the given order (senders sort by name).
    pub fn push_series<'a>(
        &mut self,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        samples: &[SampleOut],
        extras: &SeriesExtras<'_>,
    ) {
        self.set_refs(labels);
        self.message.clear();
        put_unless_empty(&mut self.message, 1, &self.refs);
        self.put_samples(samples);
        for exemplar in extras.exemplars {
            self.set_refs(exemplar.labels.iter());
            self.field.clear();
            put_unless_empty(&mut self.field, 1, &self.refs);
            put_double(&mut self.field, 2, exemplar.value);
            put_int(&mut self.field, 3, exemplar.time_ms.cast_unsigned());
            put_bytes(&mut self.message, 4, &self.field);
        }
        for (time_ms, start_ms, histogram) in extras.histograms {
            self.field.clear();
            put_histogram(&mut self.field, *time_ms, *start_ms, histogram);
            put_bytes(&mut self.message, 3, &self.field);
        }
        let help = self.symbol(extras.help);
        let unit = self.symbol(extras.unit);
        self.field.clear();
        put_int(&mut self.field, 1, kind_number(extras.kind));
        put_int(&mut self.field, 3, u64::from(help));
        put_int(&mut self.field, 4, u64::from(unit));
        put_bytes(&mut self.message, 5, &self.field);
        put_bytes(&mut self.series, 5, &self.message);
    }

    /// Adds a series whose labels have been made symbols of this request before.
    pub fn push_series_refs(&mut self, refs: &[u32], samples: &[SampleOut]) {
        self.refs.clear();
        refs.iter().for_each(|&number| put_uvarint(&mut self.refs, u64::from(number)));
        self.message.clear();
        put_unless_empty(&mut self.message, 1, &self.refs);
        self.put_samples(samples);
        put_bytes(&mut self.message, 5, &[]);
        put_bytes(&mut self.series, 5, &self.message);
    }

    fn set_refs<'a>(&mut self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) {
        self.refs.clear();
        for text in labels.into_iter().flat_map(|(name, value)| [name, value]) {
            let number = self.symbol(text);
            put_uvarint(&mut self.refs, u64::from(number));
        }
    }

    fn put_samples(&mut self, samples: &[SampleOut]) {
        for sample in samples {
            self.field.clear();
            put_double(&mut self.field, 1, sample.value);
            put_int(&mut self.field, 2, sample.time_ms.cast_unsigned());
            put_int(&mut self.field, 3, sample.start_ms.cast_unsigned());
            put_bytes(&mut self.message, 2, &self.field);
        }
    }
}
