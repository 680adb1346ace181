//! Requests of the golden file against the series that Prometheus's own translator makes of them
//! (`tools/otlp-golden`), in protobuf, in protobuf with other orders of fields, and in JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chronolith_base::Rng;
use chronolith_base::bytes::put_uvarint;
use serde::Deserialize;

use super::Decoder;
use super::text::{Text, text};
use crate::otlp::schema::{Kind, Message, REQUEST};
use crate::otlp::{OtlpSettings, Refused};
use crate::remote_write::v2::SeriesNaming;
use crate::remote_write::wire::{Cursor, LEN};

const GOLDEN: &str = include_str!("../../../testdata/otlp/translated.jsonl");

#[derive(Deserialize)]
struct Case {
    name: String,
    settings: OtlpSettings,
    #[serde(default)]
    type_and_unit: bool,
    #[serde(default)]
    delta: bool,
    request: String,
    #[serde(default)]
    json: String,
    #[serde(default)]
    error: String,
    series: Option<Vec<String>>,
    samples: Option<Vec<String>>,
    #[serde(default)]
    exemplars: Vec<String>,
    #[serde(default)]
    metadata: Vec<String>,
}

impl Case {
    fn body(&self) -> Vec<u8> {
        STANDARD.decode(&self.request).expect("base64")
    }

    fn decoder(&self) -> Decoder {
        let mut decoder = Decoder::new(self.settings.clone());
        if self.type_and_unit {
            decoder.naming = SeriesNaming::TypeAndUnit;
        }
        decoder
    }

    /// Returns what the last request became; sums and histograms of delta temporality are apart.
    fn outcome(&self, decoder: &Decoder) -> Text {
        let out = &decoder.out;
        assert!(self.delta || out.deltas.series.is_empty(), "{}: no point is a delta", self.name);
        text(&[&out.cumulative, &out.deltas])
    }

    fn want(&self) -> Text {
        Text {
            series: self.series.clone().unwrap_or_default(),
            samples: self.samples.clone().unwrap_or_default(),
            exemplars: self.exemplars.clone(),
            metadata: self.metadata.clone(),
        }
    }
}

fn cases() -> Vec<Case> {
    GOLDEN.lines().map(|line| serde_json::from_str(line).expect("a case")).collect()
}

#[track_caller]
fn check(case: &Case, decoder: &Decoder, refused: &Refused) {
    let name = &case.name;
    if case.error.is_empty() {
        assert_eq!(refused.first, Vec::<String>::new(), "{name}");
        assert_eq!(case.outcome(decoder), case.want(), "{name} {:?}", case.settings);
    } else {
        // Prometheus refuses the whole request; here the points at fault are.
        assert!(refused.point_count() > 0, "{name}: {}", case.error);
    }
}

#[test]
fn requests_are_translated_as_by_prometheus() {
    let cases = cases();
    assert!(cases.len() >= 400, "{} cases", cases.len());
    assert!(cases.iter().filter(|case| case.error.is_empty()).count() >= 400, "cases without an error");
    for case in &cases {
        let mut decoder = case.decoder();
        let unknown = decoder.decode(&case.body()).expect("a request");
        check(case, &decoder, &unknown);
        let known = decoder.decode(&case.body()).expect("a request");
        check(case, &decoder, &known);
        assert_eq!(unknown, known, "{}: known series are counted as unknown ones", case.name);
    }
}

/// Settings change while the memory has keys of the settings before.
#[test]
fn one_memory_serves_all_settings_one_after_the_other() {
    let mut decoder = Decoder::new(OtlpSettings::default());
    for (case, version) in cases().iter().zip(1..) {
        decoder.settings = case.settings.clone();
        decoder.naming = case.decoder().naming;
        decoder.version = version;
        let refused = decoder.decode(&case.body()).expect("a request");
        check(case, &decoder, &refused);
    }
}

#[test]
fn json_equals_protobuf() {
    let cases = cases();
    let with_json = cases.iter().filter(|case| !case.json.is_empty());
    assert!(with_json.clone().count() >= 70, "cases in JSON");
    for case in with_json {
        let mut decoder = case.decoder();
        let refused = decoder.decode_json(case.json.as_bytes()).expect("a request");
        check(case, &decoder, &refused);
    }
}

/// Writes the fields of a message in random order; values of one field stay in theirs.
fn shuffled(message: &Message, body: &[u8], rng: &Rng) -> Vec<u8> {
    let mut fields: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut at = Cursor::new(body);
    while !at.is_empty() {
        let from = at.rest();
        let (number, wire) = at.tag().expect("a tag");
        let known = message.fields.iter().find(|field| field.number == number);
        let bytes = match (known.map(|field| field.kind), wire) {
            (Some(Kind::Message(inner)), LEN) => {
                let inner = shuffled(inner, at.message().expect("a message").rest(), rng);
                let mut bytes = Vec::new();
                put_uvarint(&mut bytes, (number << 3) | LEN);
                put_uvarint(&mut bytes, inner.len() as u64);
                bytes.extend_from_slice(&inner);
                bytes
            }
            _ => {
                at.skip(wire).expect("a value");
                from[..from.len() - at.rest().len()].to_vec()
            }
        };
        fields.push((number, bytes));
    }
    let mut out = Vec::new();
    while !fields.is_empty() {
        let chosen = fields[rng.below(fields.len() as u64) as usize].0;
        let idx = fields.iter().position(|(number, _)| *number == chosen).expect("a field of the number");
        out.extend_from_slice(&fields.remove(idx).1);
    }
    out
}

#[test]
fn the_order_of_fields_does_not_matter() {
    let rng = Rng::from_seed(5);
    for case in cases().iter().filter(|case| case.error.is_empty()) {
        let body = shuffled(&REQUEST, &case.body(), &rng);
        assert_eq!(body.len(), case.body().len(), "{}: all fields are kept", case.name);
        let mut decoder = case.decoder();
        let refused = decoder.decode(&body).expect("a request");
        check(case, &decoder, &refused);
    }
}
