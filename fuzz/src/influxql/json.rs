//! JSON with numbers as text and members in order: answers are compared digit by digit.

/// Value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// Text of the number.
    Number(String),
    Text(String),
    Array(Vec<Json>),
    /// Members in the order of the text.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The documents of a text, one after the other, as items of an array. Each chunk is a document, of one
    /// line or, in pretty JSON, of many.
    pub(crate) fn parse_documents(text: &str) -> Option<Json> {
        let mut reader = Reader { rest: text.trim() };
        let mut documents = Vec::new();
        while !reader.rest.is_empty() {
            documents.push(reader.value()?);
            reader.rest = reader.rest.trim_start();
        }
        Some(Json::Array(documents))
    }

    pub(crate) fn items(&self) -> &[Json] {
        match self {
            Json::Array(items) => items,
            _ => &[],
        }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn value(&mut self) -> Option<Json> {
        self.rest = self.rest.trim_start();
        match self.rest.as_bytes().first()? {
            b'{' => self.object(),
            b'[' => self.array(),
            b'"' => self.string().map(Json::Text),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            b'n' => self.word("null", Json::Null),
            _ => {
                let end = self.rest.find([',', ']', '}', ' ', '\n']).unwrap_or(self.rest.len());
                let text = self.rest[..end].to_owned();
                self.rest = &self.rest[end..];
                text.parse::<f64>().is_ok().then_some(Json::Number(text))
            }
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Option<Json> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(value)
    }

    fn token(&mut self, token: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn array(&mut self) -> Option<Json> {
        self.token('[');
        let mut items = Vec::new();
        while !self.token(']') {
            items.push(self.value()?);
            if !self.token(',') && !self.rest.starts_with(']') {
                self.rest = self.rest.trim_start();
                if !self.rest.starts_with(']') {
                    return None;
                }
            }
        }
        Some(Json::Array(items))
    }

    fn object(&mut self) -> Option<Json> {
        self.token('{');
        let mut members = Vec::new();
        while !self.token('}') {
            self.rest = self.rest.trim_start();
            let name = self.string()?;
            if !self.token(':') {
                return None;
            }
            members.push((name, self.value()?));
            if !self.token(',') {
                self.rest = self.rest.trim_start();
                if !self.rest.starts_with('}') {
                    return None;
                }
            }
        }
        Some(Json::Object(members))
    }

    fn string(&mut self) -> Option<String> {
        let mut escaped = false;
        let bytes = self.rest.as_bytes();
        if bytes.first() != Some(&b'"') {
            return None;
        }
        let end = bytes.iter().enumerate().skip(1).find(|(_, byte)| {
            let ends = **byte == b'"' && !escaped;
            escaped = **byte == b'\\' && !escaped;
            ends
        })?;
        let text = &self.rest[..=end.0];
        self.rest = &self.rest[end.0 + 1..];
        serde_json::from_str(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of pretty JSON were compared as text alone.
    #[test]
    fn documents_of_one_line_and_of_many() {
        let lines = "{\"a\":[1,-2.5e3]}\n{\"b\":null}\n";
        let pretty = "{\n    \"a\": [\n        1,\n        -2.5e3\n    ]\n}\n{\n    \"b\": null\n}\n";
        let documents = Json::parse_documents(lines).expect("two documents");
        assert_eq!(documents.items().len(), 2);
        assert_eq!(Json::parse_documents(pretty), Some(documents));
        assert_eq!(Json::parse_documents(" \n"), Some(Json::Array(Vec::new())));
        for broken in ["{\"a\":1", "{\"a\":1} x", "name,tags,time", "[1 2]", "{\"a\" 1}"] {
            assert_eq!(Json::parse_documents(broken), None, "{broken}");
        }
    }
}
