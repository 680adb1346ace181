//! Keywords.
//!
//! Invariants: the list is sorted, and all words are in upper case; texts may have them in any case.

/// Words that are no identifiers without quotes.
#[rustfmt::skip]
const KEYWORDS: [&str; 80] = [
    "ALL", "ALTER", "ANALYZE", "AND", "ANY", "AS", "ASC", "BEGIN", "BY", "CARDINALITY", "CONTINUOUS", "CREATE",
    "DATABASE", "DATABASES", "DEFAULT", "DELETE", "DESC", "DESTINATIONS", "DIAGNOSTICS", "DISTINCT", "DROP",
    "DURATION", "END", "EVERY", "EXACT", "EXPLAIN", "FALSE", "FIELD", "FOR", "FROM", "GRANT", "GRANTS", "GROUP",
    "GROUPS", "IN", "INF", "INSERT", "INTO", "KEY", "KEYS", "KILL", "LIMIT", "MEASUREMENT", "MEASUREMENTS",
    "NAME", "OFFSET", "ON", "OR", "ORDER", "PASSWORD", "POLICIES", "POLICY", "PRIVILEGES", "QUERIES", "QUERY",
    "READ", "REPLICATION", "RESAMPLE", "RETENTION", "REVOKE", "SELECT", "SERIES", "SET", "SHARD", "SHARDS",
    "SHOW", "SLIMIT", "SOFFSET", "STATS", "SUBSCRIPTION", "SUBSCRIPTIONS", "TAG", "TO", "TRUE", "USER", "USERS",
    "VALUES", "WHERE", "WITH", "WRITE",
];

/// Bytes of the longest keyword.
const KEYWORD_BYTES_MAX: usize = 13;

/// Returns the keyword that `word` is, in upper case.
pub(crate) fn keyword(word: &str) -> Option<&'static str> {
    if word.len() > KEYWORD_BYTES_MAX || !word.is_ascii() {
        return None;
    }
    let upper = word.to_ascii_uppercase();
    KEYWORDS.iter().find(|keyword| **keyword == upper).copied()
}

/// Returns true if `word` needs quotes as an identifier.
pub(super) fn is_keyword(word: &str) -> bool {
    keyword(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::{KEYWORD_BYTES_MAX, KEYWORDS, keyword};

    #[test]
    fn keywords_are_found_in_any_case() {
        assert_eq!(keyword("sElEcT"), Some("SELECT"));
        assert_eq!(keyword("selec"), None);
        assert_eq!(keyword("time"), None);
        assert!(KEYWORDS.iter().all(|word| word.len() <= KEYWORD_BYTES_MAX));
        assert!(KEYWORDS.is_sorted());
    }
}
