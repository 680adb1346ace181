//! Tests of the translation as a whole: golden file, kinds of points, hostile inputs, JSON.
//! Not here: names and settings, which have tests of their own.

mod golden;
mod hostile;
mod points;
mod text;

use chronolith_base::MemoryBudget;

use super::encode::MessageEncoder;
use super::{JsonError, KeyMemory, Options, OtlpSettings, Refused, Translated, decode, decode_json};
use crate::remote_write::DecodeError;
use crate::remote_write::v2::SeriesNaming;

/// Time of points in nanoseconds.
const TIME_NS: u64 = 1_700_000_000_000_000_000;

/// Decoder with the memory of one tenant.
struct Decoder {
    settings: OtlpSettings,
    naming: SeriesNaming,
    version: u64,
    memory: KeyMemory,
    out: Translated,
}

impl Decoder {
    fn new(settings: OtlpSettings) -> Decoder {
        let memory = KeyMemory::new(4 << 20, 7);
        Decoder { settings, naming: SeriesNaming::AsSent, version: 0, memory, out: Translated::new() }
    }

    fn decode(&mut self, body: &[u8]) -> Result<Refused, DecodeError> {
        self.with(|options, memory, held, histograms, out| {
            decode(body, options, memory, held, histograms, out)
        })
    }

    fn decode_json(&mut self, body: &[u8]) -> Result<Refused, JsonError> {
        let mut message = Vec::new();
        self.with(|options, memory, held, histograms, out| {
            decode_json(body, &mut message, options, memory, held, histograms, out)
        })
    }

    fn with<T>(
        &mut self,
        decode: impl FnOnce(
            &Options<'_>,
            &mut KeyMemory,
            &mut chronolith_base::Reservation,
            &mut chronolith_base::Reservation,
            &mut Translated,
        ) -> T,
    ) -> T {
        let budget = MemoryBudget::new("write", 1 << 30);
        let mut held = budget.reserve(0).expect("0 bytes are below the limit");
        let mut histograms = budget.reserve(0).expect("0 bytes are below the limit");
        let options = Options {
            settings: &self.settings,
            version: self.version,
            naming: self.naming,
            unfolded_bytes_max: 32 << 20,
            lookback_ms: 300_000,
        };
        decode(&options, &mut self.memory, &mut held, &mut histograms, &mut self.out)
    }
}

/// A request with one resource and metrics.
fn request(resource: MessageEncoder, metrics: impl IntoIterator<Item = MessageEncoder>) -> MessageEncoder {
    let scope = metrics.into_iter().fold(MessageEncoder::new(), |scope, metric| scope.message(2, metric));
    let resource = MessageEncoder::new().message(1, resource).message(2, scope);
    MessageEncoder::new().message(1, resource)
}

/// A resource of a service.
fn service(name: &str) -> MessageEncoder {
    MessageEncoder::new().attribute(1, "service.name", name)
}

/// A metric; `field` is the number of its list of points.
fn metric(name: &str, field: u64, list: MessageEncoder) -> MessageEncoder {
    MessageEncoder::new().bytes(1, name).message(field, list)
}

/// A number point with a value.
fn number(value: f64) -> MessageEncoder {
    MessageEncoder::new().fixed64(3, TIME_NS).double(4, value)
}

/// A list with points of a temporality.
fn list(points: impl IntoIterator<Item = MessageEncoder>, temporality: u64) -> MessageEncoder {
    let list = points.into_iter().fold(MessageEncoder::new(), |list, point| list.message(1, point));
    list.varint(2, temporality)
}
