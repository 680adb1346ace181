//! Texts of external labels: the setting, and the name of the folder of a writer.
//!
//! Invariants: labels and folder names correspond one to one; a name is one segment of a key, at most as long
//! as a file name may be.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::ExternalLabels;

/// Bytes of the name of a folder at most: in a local bucket it is a directory.
const FOLDER_NAME_BYTES_MAX: usize = 200;

impl ExternalLabels {
    /// Parses labels as in `cluster="eu",replica="a"`, at least one.
    ///
    /// # Errors
    /// A text that names the expected form.
    pub fn parse(text: &str) -> Result<ExternalLabels, String> {
        let mut labels = BTreeMap::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let pair = parse_pair(rest).ok_or_else(|| {
                format!("invalid labels {text:?}, expected for example cluster=\"eu\",replica=\"a\"")
            })?;
            check_pair(&pair)?;
            if let Some(name) = labels.insert(pair.name.to_owned(), pair.value).map(|_| pair.name) {
                return Err(format!("label {name} is given twice"));
            }
            rest = pair.rest;
        }
        let labels = ExternalLabels::new(&labels).ok_or("expected at least one label")?;
        let name_bytes = labels.folder_name().len();
        if name_bytes > FOLDER_NAME_BYTES_MAX {
            return Err(format!(
                "labels of {name_bytes} bytes once encoded, expected at most {FOLDER_NAME_BYTES_MAX}"
            ));
        }
        Ok(labels)
    }

    /// Name of the folder of the server with these labels: `cluster=eu,replica=a`, other characters as in a
    /// URL.
    pub(crate) fn folder_name(&self) -> String {
        let mut text = String::new();
        for (name, value) in &*self.0 {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(name);
            text.push('=');
            for byte in value.bytes() {
                if is_plain(byte) {
                    text.push(char::from(byte));
                } else {
                    let _ = write!(text, "%{byte:02X}");
                }
            }
        }
        text
    }

    /// Returns the labels of the server with this folder; `None` for other folders.
    pub(crate) fn of_folder(name: &str) -> Option<ExternalLabels> {
        let mut labels = BTreeMap::new();
        for pair in name.split(',') {
            let (label, value) = pair.split_once('=')?;
            labels.insert(label.to_owned(), decoded(value)?);
        }
        ExternalLabels::new(&labels).filter(|labels| labels.folder_name() == name)
    }

    /// The labels as `meta.json` has them.
    pub(crate) fn to_map(&self) -> BTreeMap<String, String> {
        self.0.iter().cloned().collect()
    }
}

impl fmt::Display for ExternalLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        write!(f, "{{{}}}", pairs.join(", "))
    }
}

/// The first label of a text.
struct Pair<'t> {
    name: &'t str,
    value: String,
    rest: &'t str,
}

fn parse_pair(text: &str) -> Option<Pair<'_>> {
    let (name, quoted) = text.split_once('=')?;
    let quoted = quoted.trim_start().strip_prefix('"')?;
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    let end = loop {
        match chars.next()? {
            (at, '"') => break at + 1,
            (_, '\\') => value.push(match chars.next()?.1 {
                'n' => '\n',
                escaped @ ('"' | '\\') => escaped,
                _ => return None,
            }),
            (_, plain) => value.push(plain),
        }
    };
    let rest = quoted.get(end..)?.trim_start();
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(',')?.trim_start() };
    Some(Pair { name: name.trim(), value, rest })
}

fn check_pair(pair: &Pair<'_>) -> Result<(), String> {
    let Pair { name, value, .. } = pair;
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_name = name.bytes().all(is_word) && !name.starts_with(|first: char| first.is_ascii_digit());
    if !is_name || name.is_empty() {
        return Err(format!("invalid label name {name:?}, expected letters, digits and underscores"));
    }
    if name.starts_with("__") {
        return Err(format!("label name {name:?} is reserved"));
    }
    if value.is_empty() {
        return Err(format!("label {name} has no value"));
    }
    Ok(())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

/// The value of a label in the name of a folder.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(digit()? * 16 + digit()?).ok()?,
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, folder_name: &str) {
        let labels = ExternalLabels::parse(text).unwrap();
        assert_eq!(labels.folder_name(), folder_name);
        assert_eq!(ExternalLabels::of_folder(folder_name), Some(labels));
    }

    #[track_caller]
    fn refused(text: &str, want: &str) {
        let why = ExternalLabels::parse(text).unwrap_err();
        assert!(why.contains(want), "{text}: {why}");
    }

    #[test]
    fn labels_and_folder_names_correspond() {
        check(r#"replica="a",cluster="eu-1.x_y""#, "cluster=eu-1.x_y,replica=a");
        check(r#" a = "x" , b="y", "#, "a=x,b=y");
        check(r#"a="b/c,d=e %\"\\\nß""#, "a=b%2Fc%2Cd%3De%20%25%22%5C%0A%C3%9F");
        for other in ["", "a", "a=", "b=x,a=y", "a=%2", "a=%2f", "a=%zz", "a=x,a=x", "__a=x", "a=%FF"] {
            assert_eq!(ExternalLabels::of_folder(other), None, "{other}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        refused("", "at least one");
        for text in ["a", "a=b", "a=\"b", r#"a="b" c="d""#, r#"a="\x""#, r#",a="b""#] {
            refused(text, "invalid label");
        }
        refused(r#"1a="b""#, "invalid label name");
        refused(r#"__a="b""#, "reserved");
        refused(r#"a="""#, "no value");
        refused(r#"a="b",a="c""#, "twice");
        refused(&format!("a=\"{}\"", "x".repeat(199)), "at most 200");
    }
}
