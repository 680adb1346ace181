//! The other direction, for load generators and tests: builds OTLP messages field by field.
//!
//! Invariant: fields are in the order of the calls, so that any order can be sent.
//! Not here: numbers of fields, which callers take from opentelemetry-proto.

use chronolith_base::bytes::{put_uvarint, zigzag};

use crate::remote_write::wire::{FIXED64, LEN, VARINT};

/// Fields of one message.
#[derive(Debug, Clone, Default)]
pub struct MessageEncoder {
    bytes: Vec<u8>,
}

impl MessageEncoder {
    /// A message without fields.
    #[must_use]
    pub fn new() -> MessageEncoder {
        MessageEncoder::default()
    }

    /// The message.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn tag(&mut self, field: u64, wire: u64) {
        put_uvarint(&mut self.bytes, (field << 3) | wire);
    }

    /// Appends a varint.
    #[must_use]
    pub fn varint(mut self, field: u64, value: u64) -> MessageEncoder {
        self.tag(field, VARINT);
        put_uvarint(&mut self.bytes, value);
        self
    }

    /// Appends a varint with the sign in its lowest bit.
    #[must_use]
    pub fn signed(self, field: u64, value: i64) -> MessageEncoder {
        self.varint(field, zigzag(value))
    }

    /// Appends eight bytes.
    #[must_use]
    pub fn fixed64(mut self, field: u64, value: u64) -> MessageEncoder {
        self.tag(field, FIXED64);
        self.bytes.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a float.
    #[must_use]
    pub fn double(self, field: u64, value: f64) -> MessageEncoder {
        self.fixed64(field, value.to_bits())
    }

    /// Appends text or other bytes.
    #[must_use]
    pub fn bytes(mut self, field: u64, value: impl AsRef<[u8]>) -> MessageEncoder {
        self.tag(field, LEN);
        put_uvarint(&mut self.bytes, value.as_ref().len() as u64);
        self.bytes.extend_from_slice(value.as_ref());
        self
    }

    /// Appends a message.
    #[must_use]
    pub fn message(self, field: u64, message: MessageEncoder) -> MessageEncoder {
        self.bytes(field, message.bytes)
    }

    /// Appends packed numbers of eight bytes.
    #[must_use]
    pub fn packed(self, field: u64, values: impl IntoIterator<Item = u64>) -> MessageEncoder {
        let bytes: Vec<u8> = values.into_iter().flat_map(u64::to_le_bytes).collect();
        self.bytes(field, bytes)
    }

    /// Appends an attribute with a text.
    #[must_use]
    pub fn attribute(self, field: u64, key: &str, value: &str) -> MessageEncoder {
        let any = MessageEncoder::new().bytes(1, value);
        self.message(field, MessageEncoder::new().bytes(1, key).message(2, any))
    }
}
