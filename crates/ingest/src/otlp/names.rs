//! Names of metrics and labels, and units, as Prometheus translates them.
//!
//! Invariant: equal inputs and settings give equal names, in any process.
//! Not here: labels of a series (`labels`), the memory of names (`key_memory`).

use super::settings::OtlpSettings;

/// Types of metrics that have different suffixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameKind {
    /// Gets `_ratio` if its unit is 1.
    Gauge,
    /// A monotonic sum gets `_total`.
    Counter,
    /// No suffix for the type.
    Other,
}

/// A name that has no translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InvalidName;

/// Units of OTLP (UCUM), and their names in Prometheus.
const UNITS: [(&str, &str); 25] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("%", "percent"),
];

/// Units after a slash.
const PER_UNITS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// Returns the name of a metric.
///
/// # Errors
/// [`InvalidName`] if no character of the name can be kept, or the name is empty or not UTF-8.
pub(super) fn metric_name(
    settings: &OtlpSettings,
    name: &str,
    unit: &str,
    kind: NameKind,
) -> Result<String, InvalidName> {
    let strategy = settings.translation_strategy;
    let translated = match (strategy.is_escaping(), strategy.has_suffixes()) {
        (true, true) => escaped_name_with_suffixes(name, unit, kind),
        (true, false) => escaped_name(name),
        (false, true) => name_with_suffixes(name, unit, kind)?,
        (false, false) => name.to_owned(),
    };
    let has_text = translated == name || !strategy.is_escaping() || translated.bytes().any(|b| b != b'_');
    if translated.is_empty() || !has_text { Err(InvalidName) } else { Ok(translated) }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

fn escaped_name(name: &str) -> String {
    let parts = name.split(|c| !is_name_char(c) && c != '_').filter(|part| !part.is_empty());
    after_digit(parts.collect::<Vec<_>>().join("_"))
}

fn escaped_name_with_suffixes(name: &str, unit: &str, kind: NameKind) -> String {
    let is_text = |token: &&str| !token.is_empty();
    let mut tokens: Vec<&str> = name.split(|c| !is_name_char(c)).filter(is_text).collect();
    let (main, per) = unit_parts(unit);
    let main = escaped_unit(main);
    let per = escaped_unit(&per);
    let mut main = if tokens.contains(&main.as_str()) { "" } else { &main };
    let mut per = per.strip_suffix('_').unwrap_or(&per);
    if per == "per" || tokens.contains(&per) {
        per = "";
    }
    if !per.is_empty() {
        main = main.strip_suffix('_').unwrap_or(main);
    }
    tokens.extend([main, per].iter().filter(|token| !token.is_empty()));
    let suffix = match kind {
        NameKind::Counter => Some("total"),
        NameKind::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(suffix) = suffix {
        tokens.retain(|token| *token != suffix);
        tokens.push(suffix);
    }
    let name = after_digit(tokens.join("_"));
    debug_assert!(name.is_ascii(), "only letters, digits and colons are kept");
    name
}

/// Puts an underscore before a name that starts with a digit.
fn after_digit(mut name: String) -> String {
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    name
}

/// Appends suffixes in the order unit, per unit, type; suffixes that the name has are moved to their place.
fn name_with_suffixes(name: &str, unit: &str, kind: NameKind) -> Result<String, InvalidName> {
    let mut out = name.as_bytes();
    let suffix = match kind {
        NameKind::Counter => "total",
        NameKind::Gauge if unit == "1" => "ratio",
        _ => "",
    };
    if !suffix.is_empty() {
        out = without_suffix(out, suffix);
    }
    let (main, per) = unit_parts(unit);
    if !per.is_empty() {
        out = without_suffix(out, &per);
    }
    // The character before a suffix is taken for a delimiter; it may be the last byte of a longer one.
    let mut out = String::from_utf8(out.to_vec()).map_err(|_| InvalidName)?;
    let main = if out.ends_with(main) { "" } else { main };
    for suffix in [main, &per, suffix].into_iter().filter(|suffix| !suffix.is_empty()) {
        out.push('_');
        out.push_str(suffix);
    }
    Ok(out)
}

/// Removes a suffix and the byte before it, if more is left.
fn without_suffix<'a>(name: &'a [u8], suffix: &str) -> &'a [u8] {
    match name.strip_suffix(suffix.as_bytes()).and_then(|rest| rest.split_last()) {
        Some((_, rest)) if !rest.is_empty() => rest,
        _ => name,
    }
}

/// Returns Prometheus's name of the unit before the slash, and `per_` with the one after it. Units in braces
/// are comments.
fn unit_parts(unit: &str) -> (&str, String) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let main = without_comment(main);
    let per = without_comment(per);
    let main = match main {
        "1" => "",
        _ => UNITS.iter().find(|(otlp, _)| *otlp == main).map_or(main, |(_, name)| name),
    };
    let per = PER_UNITS.iter().find(|(otlp, _)| *otlp == per).map_or(per, |(_, name)| name);
    (main, if per.is_empty() { String::new() } else { format!("per_{per}") })
}

/// Returns the trimmed unit, or nothing if it has braces.
fn without_comment(unit: &str) -> &str {
    if unit.contains(['{', '}']) { "" } else { unit.trim() }
}

/// Returns the unit with characters that names cannot have as single underscores, without a leading one.
fn escaped_unit(unit: &str) -> String {
    let mut out = String::with_capacity(unit.len());
    for c in unit.chars().map(|c| if is_name_char(c) { c } else { '_' }) {
        if c != '_' || !out.ends_with('_') {
            out.push(c);
        }
    }
    if out.starts_with('_') {
        out.remove(0);
    }
    out
}

/// Returns the unit of metadata.
pub(super) fn unit_name(unit: &str, is_escaping: bool) -> String {
    let (main, per) = unit_parts(unit);
    let (main, per) =
        if is_escaping { (escaped_unit(main), escaped_unit(&per)) } else { (main.to_owned(), per) };
    let joined = match (main.is_empty(), per.is_empty()) {
        (false, false) => format!("{main}_{per}"),
        (false, true) => main,
        _ => per,
    };
    let start = joined.strip_prefix('_').unwrap_or(&joined);
    start.strip_suffix('_').unwrap_or(start).to_owned()
}

/// Returns the name of a label.
///
/// # Errors
/// [`InvalidName`] for names that are empty or have underscores alone.
pub(super) fn label_name(settings: &OtlpSettings, name: &str) -> Result<String, InvalidName> {
    let has_text = |name: &str| name.bytes().any(|b| b != b'_');
    if !settings.translation_strategy.is_escaping() {
        return if has_text(name) { Ok(name.to_owned()) } else { Err(InvalidName) };
    }
    let mut out = escaped_label(name, settings.label_name_preserve_multiple_underscores);
    if out.starts_with(|c: char| c.is_ascii_digit()) {
        out.insert_str(0, "key_");
    } else if settings.label_name_underscore_sanitization && out.starts_with('_') && !out.starts_with("__") {
        out.insert_str(0, "key");
    }
    debug_assert!(out.is_ascii(), "only letters and digits are kept");
    if has_text(&out) { Ok(out) } else { Err(InvalidName) }
}

fn escaped_label(name: &str, keeps_underscores: bool) -> String {
    let escaped = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    if keeps_underscores {
        return name.chars().map(escaped).collect();
    }
    let reserved = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    let mut out = String::with_capacity(name.len());
    for c in reserved.unwrap_or(name).chars().map(escaped) {
        if c != '_' || !out.ends_with('_') {
            out.push(c);
        }
    }
    if reserved.is_some() { format!("__{out}__") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::settings::TranslationStrategy;

    fn settings(translation_strategy: TranslationStrategy) -> OtlpSettings {
        OtlpSettings { translation_strategy, ..OtlpSettings::default() }
    }

    #[test]
    fn suffixes_are_appended_once() {
        let check = |name: &str, unit: &str, kind: NameKind, want: &str| {
            let settings = settings(TranslationStrategy::UnderscoreEscapingWithSuffixes);
            assert_eq!(metric_name(&settings, name, unit, kind).as_deref(), Ok(want), "{name} {unit}");
        };
        check("http.server.duration", "s", NameKind::Other, "http_server_duration_seconds");
        check("http.server.seconds", "s", NameKind::Other, "http_server_seconds");
        check("requests.total", "{request}", NameKind::Counter, "requests_total");
        check("total.requests", "1", NameKind::Counter, "requests_total");
        check("cpu", "1", NameKind::Gauge, "cpu_ratio");
        check("net", "By/s", NameKind::Gauge, "net_bytes_per_second");
        check("1st", "", NameKind::Gauge, "_1st");
    }

    #[test]
    fn names_without_escaping_get_suffixes() {
        let check = |name: &str, unit: &str, kind: NameKind, want: Result<&str, InvalidName>| {
            let settings = settings(TranslationStrategy::NoUtf8EscapingWithSuffixes);
            assert_eq!(metric_name(&settings, name, unit, kind).as_deref(), want.as_ref().copied(), "{name}");
        };
        check("http.duration", "s", NameKind::Other, Ok("http.duration_seconds"));
        check("http.total", "s", NameKind::Counter, Ok("http_seconds_total"));
        check("total", "", NameKind::Counter, Ok("total_total"));
        // The byte before the suffix belongs to a longer character.
        check("\u{e9}total", "", NameKind::Counter, Err(InvalidName));
    }

    #[test]
    fn names_without_characters_are_refused() {
        let escaping = settings(TranslationStrategy::UnderscoreEscapingWithoutSuffixes);
        assert_eq!(metric_name(&escaping, "\u{65e5}", "", NameKind::Gauge), Err(InvalidName));
        assert_eq!(metric_name(&escaping, "___", "", NameKind::Gauge).as_deref(), Ok("___"));
        assert_eq!(label_name(&escaping, "\u{65e5}"), Err(InvalidName));
        assert_eq!(label_name(&settings(TranslationStrategy::NoTranslation), "__"), Err(InvalidName));
    }

    #[test]
    fn label_names_follow_their_settings() {
        let mut settings = settings(TranslationStrategy::UnderscoreEscapingWithSuffixes);
        assert_eq!(label_name(&settings, "a..b").as_deref(), Ok("a_b"));
        assert_eq!(label_name(&settings, "1a").as_deref(), Ok("key_1a"));
        assert_eq!(label_name(&settings, "_a").as_deref(), Ok("_a"));
        assert_eq!(label_name(&settings, "__a..b__").as_deref(), Ok("__a_b__"));
        settings.label_name_underscore_sanitization = true;
        settings.label_name_preserve_multiple_underscores = true;
        assert_eq!(label_name(&settings, "_a").as_deref(), Ok("key_a"));
        assert_eq!(label_name(&settings, "a..b").as_deref(), Ok("a__b"));
    }
}
