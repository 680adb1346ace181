//! OTLP/JSON to the bytes of the protobuf message, so that both are decoded by the same code.
//!
//! Invariants: names of fields are camelCase, other fields are skipped; 64-bit numbers are numbers or texts,
//! enumerations are numbers, ids are hexadecimal; `null` is a missing field. Nesting is bounded by the parser
//! (128 levels), the output by the caller.
//! Not here: the messages (`schema`), their meaning (`walk`).

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chronolith_base::bytes::{put_uvarint, zigzag};
use chronolith_model::sample::NORMAL_NAN_BITS;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::schema::{Field, Kind, Message, REQUEST};
use crate::remote_write::wire::{FIXED64, LEN, VARINT};

/// Appends the message that `body` describes to `out`, at most `bytes_max` bytes.
///
/// # Errors
/// The text of the parser, with line and column.
pub(super) fn to_protobuf(body: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_slice(body);
    let mut writer = ProtobufWriter { out, bytes_max };
    MessageSeed { message: &REQUEST, writer: &mut writer }.deserialize(&mut parser)?;
    parser.end()
}

/// Bytes of messages, bounded.
struct ProtobufWriter<'o> {
    out: &'o mut Vec<u8>,
    bytes_max: usize,
}

impl ProtobufWriter<'_> {
    fn tag<E: serde::de::Error>(&mut self, field: &Field, wire: u64) -> Result<(), E> {
        if self.out.len() > self.bytes_max {
            return Err(E::custom(format_args!("message has more than {} bytes", self.bytes_max)));
        }
        put_uvarint(self.out, (field.number << 3) | wire);
        Ok(())
    }

    /// Puts the length before the bytes from `start` on.
    fn end_message(&mut self, start: usize) {
        debug_assert!(start <= self.out.len(), "a message begins before it ends");
        let len = self.out.len().saturating_sub(start) as u64;
        let before = self.out.len();
        put_uvarint(self.out, len);
        let prefix = self.out.len() - before;
        if let Some(message) = self.out.get_mut(start..) {
            message.rotate_right(prefix);
        }
    }

    fn bytes<E: serde::de::Error>(&mut self, field: &Field, bytes: &[u8]) -> Result<(), E> {
        self.tag(field, LEN)?;
        put_uvarint(self.out, bytes.len() as u64);
        self.out.extend_from_slice(bytes);
        Ok(())
    }
}

/// Reads an object as a message, without its length.
struct MessageSeed<'w, 'o> {
    message: &'static Message,
    writer: &'w mut ProtobufWriter<'o>,
}

impl<'de> DeserializeSeed<'de> for MessageSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with the fields of {}", self.message.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(field) = map.next_key_seed(KeySeed(self.message))? {
            match field {
                Some(field) => map.next_value_seed(ValueSeed { field, writer: &mut *self.writer })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Finds the field of a key.
struct KeySeed(&'static Message);

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Option<&'static Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a field of {}", self.0.name)
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.fields.iter().find(|field| field.name == name))
    }
}

/// Reads the value of a field; an array for a repeated one.
struct ValueSeed<'w, 'o> {
    field: &'static Field,
    writer: &'w mut ProtobufWriter<'o>,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if !self.field.is_repeated {
            return ItemSeed { field: self.field, writer: self.writer }.deserialize(deserializer);
        }
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array for {}", self.field.name)
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let field = self.field;
        while seq.next_element_seed(ItemSeed { field, writer: &mut *self.writer })?.is_some() {}
        Ok(())
    }
}

/// Reads one value and writes it with its tag.
struct ItemSeed<'w, 'o> {
    field: &'static Field,
    writer: &'w mut ProtobufWriter<'o>,
}

impl<'de> DeserializeSeed<'de> for ItemSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl ItemSeed<'_, '_> {
    fn unsigned<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        match self.field.kind {
            Kind::Varint if self.field.is_signed && i64::try_from(value).is_err() => {
                return Err(self.out_of_range());
            }
            Kind::Varint => {
                self.writer.tag(self.field, VARINT)?;
                put_uvarint(self.writer.out, value);
            }
            Kind::SignedVarint => {
                let value = i64::try_from(value).map_err(|_| self.out_of_range())?;
                self.writer.tag(self.field, VARINT)?;
                put_uvarint(self.writer.out, zigzag(value));
            }
            Kind::Fixed64 => {
                self.writer.tag(self.field, FIXED64)?;
                self.writer.out.extend_from_slice(&value.to_le_bytes());
            }
            Kind::SignedFixed64 => {
                let value = i64::try_from(value).map_err(|_| self.out_of_range())?;
                self.writer.tag(self.field, FIXED64)?;
                self.writer.out.extend_from_slice(&value.to_le_bytes());
            }
            Kind::Double => return self.double(value as f64),
            _ => return Err(self.mismatch("a number")),
        }
        Ok(())
    }

    fn signed<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        if let Ok(value) = u64::try_from(value) {
            return self.unsigned(value);
        }
        match self.field.kind {
            // The field has 64 bits, in two's complement.
            Kind::Varint if self.field.is_signed => {
                self.writer.tag(self.field, VARINT)?;
                put_uvarint(self.writer.out, value.cast_unsigned());
            }
            Kind::SignedVarint => {
                self.writer.tag(self.field, VARINT)?;
                put_uvarint(self.writer.out, zigzag(value));
            }
            Kind::SignedFixed64 => {
                self.writer.tag(self.field, FIXED64)?;
                self.writer.out.extend_from_slice(&value.to_le_bytes());
            }
            Kind::Double => return self.double(value as f64),
            Kind::Varint | Kind::Fixed64 => return Err(self.out_of_range()),
            _ => return Err(self.mismatch("a number")),
        }
        Ok(())
    }

    fn double<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        debug_assert!(matches!(self.field.kind, Kind::Double), "the caller has checked the kind");
        self.writer.tag(self.field, FIXED64)?;
        self.writer.out.extend_from_slice(&value.to_le_bytes());
        Ok(())
    }

    /// Writes a number that is a text; doubles may be `NaN` and infinite.
    fn number_text<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        if let Kind::Double = self.field.kind {
            let value = match text {
                "NaN" => f64::from_bits(NORMAL_NAN_BITS),
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                _ => match text.parse::<f64>() {
                    Ok(value) if value.is_finite() => value,
                    _ => return Err(self.mismatch("a text")),
                },
            };
            return self.double(value);
        }
        match (text.parse::<u64>(), text.parse::<i64>()) {
            (Ok(value), _) => self.unsigned(value),
            (_, Ok(value)) => self.signed(value),
            _ => Err(self.mismatch("a text")),
        }
    }

    fn out_of_range<E: serde::de::Error>(&self) -> E {
        E::custom(format_args!("number of {} is out of range", self.field.name))
    }

    fn mismatch<E: serde::de::Error>(&self, found: &str) -> E {
        let Field { name, kind, .. } = self.field;
        E::custom(format_args!("{name} has {found}, expected {}", kind.expected()))
    }
}

impl<'de> Visitor<'de> for ItemSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.field.kind.expected(), self.field.name)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        match self.field.kind {
            Kind::Bool => {
                self.writer.tag(self.field, VARINT)?;
                self.writer.out.push(u8::from(value));
                Ok(())
            }
            _ => Err(self.mismatch("a boolean")),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.unsigned(value)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.signed(value)
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match self.field.kind {
            Kind::Double => self.double(value),
            // Some encoders write all numbers as floats.
            _ if value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64 => self.signed(value as i64),
            _ => Err(self.mismatch("a fraction")),
        }
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        match self.field.kind {
            Kind::Text => self.writer.bytes(self.field, text.as_bytes()),
            // An id that is not valid refuses its exemplar, not the request: one byte is no id.
            Kind::Id => self.writer.bytes(self.field, &hex_bytes(text).unwrap_or(vec![0])),
            Kind::Bytes => match STANDARD.decode(text) {
                Ok(bytes) => self.writer.bytes(self.field, &bytes),
                Err(_) => Err(self.mismatch("a text")),
            },
            Kind::Bool | Kind::Message(_) => Err(self.mismatch("a text")),
            _ => self.number_text(text),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Kind::Message(message) = self.field.kind else { return Err(self.mismatch("an object")) };
        self.writer.tag(self.field, LEN)?;
        let start = self.writer.out.len();
        MessageSeed { message, writer: &mut *self.writer }.visit_map(map)?;
        self.writer.end_message(start);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom(format_args!(
            "{} is an array, expected {}",
            self.field.name,
            self.field.kind.expected()
        )))
    }
}

/// Bytes of hexadecimal digits in any case; `None` for other text.
fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    pairs.iter().map(|[high, low]| u8::try_from((digit(*high)? << 4) | digit(*low)?).ok()).collect()
}
