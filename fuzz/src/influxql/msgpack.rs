//! MessagePack as InfluxDB writes it, read as JSON.

use crate::json::Json;

/// The value of some bytes; `None` for anything that InfluxDB does not write.
pub(crate) fn parse(bytes: &[u8]) -> Option<Json> {
    let mut reader = Reader { rest: bytes };
    let mut values = Vec::new();
    while !reader.rest.is_empty() {
        values.push(reader.value()?);
    }
    Some(Json::Array(values))
}

struct Reader<'b> {
    rest: &'b [u8],
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn unsigned(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, bytes: usize) -> Option<i64> {
        let unused = 64 - 8 * bytes as u32;
        Some((self.unsigned(bytes)? << unused) as i64 >> unused)
    }

    fn text(&mut self, count: usize) -> Option<Json> {
        Some(Json::Text(String::from_utf8_lossy(self.take(count)?).into_owned()))
    }

    fn array(&mut self, count: usize) -> Option<Json> {
        (0..count).map(|_| self.value()).collect::<Option<Vec<Json>>>().map(Json::Array)
    }

    fn map(&mut self, count: usize) -> Option<Json> {
        let mut members = Vec::new();
        for _ in 0..count {
            let Json::Text(name) = self.value()? else { return None };
            members.push((name, self.value()?));
        }
        Some(Json::Object(members))
    }

    fn value(&mut self) -> Option<Json> {
        let code = self.take(1)?[0];
        Some(match code {
            0x00..=0x7f => Json::Number(code.to_string()),
            0x80..=0x8f => return self.map(usize::from(code & 15)),
            0x90..=0x9f => return self.array(usize::from(code & 15)),
            0xa0..=0xbf => return self.text(usize::from(code & 31)),
            0xc0 => Json::Null,
            0xc2 => Json::Bool(false),
            0xc3 => Json::Bool(true),
            0xc7 => {
                let count = self.unsigned(1)? as usize;
                Json::Text(format!("extension {:?}", self.take(count + 1)?))
            }
            0xcb => Json::Number(format!("{:?}", f64::from_bits(self.unsigned(8)?))),
            0xcc..=0xcf => Json::Number(format!("{}", self.unsigned(1 << (code - 0xcc))?)),
            0xd0..=0xd3 => Json::Number(format!("{}", self.signed(1 << (code - 0xd0))?)),
            0xd9..=0xdb => {
                let count = self.unsigned(1 << (code - 0xd9))? as usize;
                return self.text(count);
            }
            0xdc | 0xdd => {
                let count = self.unsigned(2 << (code - 0xdc))? as usize;
                return self.array(count);
            }
            0xde | 0xdf => {
                let count = self.unsigned(2 << (code - 0xde))? as usize;
                return self.map(count);
            }
            _ => return None,
        })
    }
}
