//! INI files as Python's `ConfigParser` reads them: sections in order, keys in lower case, `=` or `:`,
//! comment lines, values continued by indented lines, the section DEFAULT, `%%` for a percent sign.
//!
//! Invariants: an error in Python is an error here, with its line; sections and values are bounded.
//! Not here: the meaning of a key. Interpolation (`%(name)s`) is refused: no configuration file of Graphite
//! uses it.

use super::error::ConfigError;

/// Bytes of a file at most.
pub(super) const FILE_BYTES_MAX: usize = 4 << 20;
/// Sections of a file at most.
const SECTION_COUNT_MAX: usize = 10_000;
/// Keys of a section at most.
const KEY_COUNT_MAX: usize = 100;
/// Section whose values all sections have.
const DEFAULT_SECTION: &str = "DEFAULT";

/// A section with its values, including the values of the section DEFAULT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) line: usize,
    pub(super) entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// In lower case.
    pub(super) key: String,
    /// Lines joined by newlines, without blanks at their ends.
    pub(super) value: String,
    pub(super) line: usize,
}

impl Section {
    /// Returns the entry of a key.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

/// Reads a file.
pub(super) fn parse(text: &str) -> Result<Vec<Section>, ConfigError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(ConfigError::new(1, format!("the file is larger than {FILE_BYTES_MAX} bytes")));
    }
    let mut parser = Parser {
        sections: Vec::new(),
        defaults: Vec::new(),
        key_indent: 0,
        place: Place::None,
        is_in_value: false,
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (idx, line) in text.split('\n').enumerate() {
        parser.line(idx + 1, line)?;
    }
    parser.finish()
}

/// Section that the next line belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    None,
    Default,
    /// The last of the sections.
    Last,
}

struct Parser {
    sections: Vec<Section>,
    defaults: Vec<Entry>,
    /// Blanks before the last key or section.
    key_indent: usize,
    place: Place,
    /// Set after a key, so that an indented line continues its value.
    is_in_value: bool,
}

impl Parser {
    fn line(&mut self, number: usize, line: &str) -> Result<(), ConfigError> {
        let text = line.trim();
        if text.starts_with(['#', ';']) {
            return Ok(());
        }
        if text.is_empty() {
            // Within a value; removed again at its end.
            if let Some(entry) = self.open_entry() {
                entry.value.push('\n');
            }
            return Ok(());
        }
        let indent = line.len() - line.trim_start().len();
        let key_indent = self.key_indent;
        if indent > key_indent
            && let Some(entry) = self.open_entry()
        {
            entry.value.push('\n');
            entry.value.push_str(text);
            return Ok(());
        }
        self.key_indent = indent;
        match section_name(text) {
            Some(name) => self.start_section(number, name),
            None => self.start_entry(number, text),
        }
    }

    /// Entry whose value the next line may continue.
    fn open_entry(&mut self) -> Option<&mut Entry> {
        if self.is_in_value { self.entries()?.last_mut() } else { None }
    }

    fn entries(&mut self) -> Option<&mut Vec<Entry>> {
        match self.place {
            Place::None => None,
            Place::Default => Some(&mut self.defaults),
            Place::Last => self.sections.last_mut().map(|section| &mut section.entries),
        }
    }

    fn start_section(&mut self, line: usize, name: &str) -> Result<(), ConfigError> {
        self.is_in_value = false;
        if name == DEFAULT_SECTION {
            self.place = Place::Default;
            return Ok(());
        }
        if self.sections.len() >= SECTION_COUNT_MAX {
            return Err(ConfigError::new(line, format!("more than {SECTION_COUNT_MAX} sections")));
        }
        self.place = Place::Last;
        self.sections.push(Section { name: name.to_owned(), line, entries: Vec::new() });
        Ok(())
    }

    fn start_entry(&mut self, line: usize, text: &str) -> Result<(), ConfigError> {
        let section = match self.place {
            Place::Last => self.sections.last().map_or("", |section| &section.name).to_owned(),
            _ => DEFAULT_SECTION.to_owned(),
        };
        let Some(entries) = self.entries() else {
            return Err(ConfigError::new(line, "expected a section like [name] before the first key"));
        };
        let Some((key, value)) = text.split_once(['=', ':']).filter(|(key, _)| !key.trim().is_empty()) else {
            return Err(ConfigError::in_section(line, &section, "expected key = value"));
        };
        let key = key.trim().to_lowercase();
        if let Some(first) = entries.iter().find(|entry| entry.key == key) {
            let what = format!("key {key} occurs twice, first in line {}", first.line);
            return Err(ConfigError::in_section(line, &section, &what));
        }
        if entries.len() >= KEY_COUNT_MAX {
            let what = format!("more than {KEY_COUNT_MAX} keys");
            return Err(ConfigError::in_section(line, &section, &what));
        }
        entries.push(Entry { key, value: value.trim().to_owned(), line });
        self.is_in_value = true;
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Section>, ConfigError> {
        let mut names: Vec<(&str, usize)> =
            self.sections.iter().map(|section| (section.name.as_str(), section.line)).collect();
        names.sort_unstable();
        let same = names.windows(2).find_map(|pair| match pair {
            [before, after] if before.0 == after.0 => Some((before.0, before.1, after.1)),
            _ => None,
        });
        if let Some((name, first, line)) = same {
            let what = format!("the section occurs twice, first in line {first}");
            return Err(ConfigError::in_section(line, name, &what));
        }
        for section in &mut self.sections {
            for default in &self.defaults {
                if section.entry(&default.key).is_none() {
                    section.entries.push(default.clone());
                }
            }
            for entry in &mut section.entries {
                entry.value = interpolated(entry.value.trim_end(), &section.name, entry)?;
            }
        }
        Ok(self.sections)
    }
}

/// Returns the name of a line `[name]`; what follows the bracket is ignored.
fn section_name(text: &str) -> Option<&str> {
    let (name, _) = text.strip_prefix('[')?.split_once(']')?;
    (!name.is_empty()).then_some(name)
}

/// Replaces `%%` by a percent sign.
fn interpolated(value: &str, section: &str, entry: &Entry) -> Result<String, ConfigError> {
    let mut out = String::with_capacity(value.len());
    let mut parts = value.split('%');
    out.push_str(parts.next().unwrap_or(""));
    while let Some(part) = parts.next() {
        match parts.next() {
            Some(after) if part.is_empty() => {
                out.push('%');
                out.push_str(after);
            }
            _ => {
                let what = format!("value of {}: expected %% for a percent sign", entry.key);
                return Err(ConfigError::in_section(entry.line, section, &what));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> Result<String, String> {
        let sections = parse(text).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        for section in sections {
            let entries: Vec<String> =
                section.entries.iter().map(|entry| format!("{}={:?}", entry.key, entry.value)).collect();
            out.push(format!("[{}] {}", section.name, entries.join(" ")));
        }
        Ok(out.join("; "))
    }

    #[track_caller]
    fn check(text: &str, want: &str) {
        assert_eq!(render(text).as_deref(), Ok(want), "{text}");
    }

    #[track_caller]
    fn check_error(text: &str, want: &str) {
        assert_eq!(render(text).map_err(|error| error.to_string()), Err(want.to_owned()), "{text}");
    }

    /// The expected values come from `dict(ConfigParser().items(section))` of Python 3.10.
    #[test]
    fn files_are_read_as_by_python() {
        check("[b]\nx = 1\n[a]\ny: 2", "[b] x=\"1\"; [a] y=\"2\"");
        check("# c\n; c\n\n[a]\n  # c\nKey=V # kept\n", "[a] key=\"V # kept\"");
        check("[a]\nx = 1:2=3\ny: =", "[a] x=\"1:2=3\" y=\"=\"");
        check("[a]\r\nx = 1\r\n", "[a] x=\"1\"");
        check("[a]\nx = 1,\n  2,\n\t3\ny=4", "[a] x=\"1,\\n2,\\n3\" y=\"4\"");
        check("[a]\nx = 1\n # c\n  2\n\n  3\n\ny=4", "[a] x=\"1\\n2\\n\\n3\" y=\"4\"");
        check("[a]\n  x = 1\n  y = 2\n   z = 3", "[a] x=\"1\" y=\"2\\nz = 3\"");
        check("[a]\nx =\n  1\n  2", "[a] x=\"\\n1\\n2\"");
        check("[a] trailing\nx=1", "[a] x=\"1\"");
        check("[DEFAULT]\nx=0\ny=1\n[a]\nx=2", "[a] x=\"2\" y=\"1\"");
        check("[DEFAULT]\nx=0\n[DEFAULT]\n  y=1\n[a]", "[a] x=\"0\" y=\"1\"");
        check("[a]\nx = 100%%\ny = %%d%%", "[a] x=\"100%\" y=\"%d%\"");
        check("[a]\n", "[a] ");
        check("", "");
        check("[a]\nx y = 1", "[a] x y=\"1\"");
        check("\u{feff}[a]\nx=1", "[a] x=\"1\"");
    }

    #[test]
    fn errors_name_line_and_section() {
        check_error("x = 1", "line 1: expected a section like [name] before the first key");
        check_error("[a]\n\njust text", "line 3: section [a]: expected key = value");
        check_error("[a]\n= 1", "line 2: section [a]: expected key = value");
        check_error("[a]\nx=1\nX=2", "line 3: section [a]: key x occurs twice, first in line 2");
        check_error("[a]\n[b]\n[a]", "line 3: section [a]: the section occurs twice, first in line 1");
        let percent = "value of x: expected %% for a percent sign";
        check_error("[a]\nx=50%", &format!("line 2: section [a]: {percent}"));
        check_error("[a]\nx=%(y)s", &format!("line 2: section [a]: {percent}"));
        check_error("[a]\n[]", "line 2: section [a]: expected key = value");
        let many: String = (0..=SECTION_COUNT_MAX).map(|idx| format!("[{idx}]\n")).collect();
        check_error(&many, "line 10001: more than 10000 sections");
    }
}
