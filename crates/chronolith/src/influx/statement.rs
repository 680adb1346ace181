//! Statements of InfluxQL that create what a migration needs.
//!
//! Invariant: a statement is one line.

use super::time::duration_literal;

/// A retention policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PolicyDefinition {
    pub(crate) name: String,
    /// 0 = infinite.
    pub(crate) duration_ns: i64,
    pub(crate) shard_group_ns: i64,
    pub(crate) replica_count: u64,
}

impl PolicyDefinition {
    fn options(&self) -> String {
        let duration = match self.duration_ns {
            0 => "INF".to_owned(),
            duration_ns => duration_literal(duration_ns),
        };
        let replicas = self.replica_count.max(1);
        let shard = duration_literal(self.shard_group_ns);
        format!("DURATION {duration} REPLICATION {replicas} SHARD DURATION {shard}")
    }
}

/// Returns a name between quotes.
pub(crate) fn quoted(name: &str) -> String {
    let escaped = name.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

/// Returns the statements that create a database and its policies. The default policy comes first, the
/// others keep their order.
pub(crate) fn create_database(
    name: &str,
    default_policy: &str,
    policies: &[PolicyDefinition],
) -> Vec<String> {
    let database = quoted(name);
    let mut statements = Vec::new();
    match policies.iter().find(|policy| policy.name == default_policy) {
        Some(policy) => {
            let options = policy.options();
            let policy = quoted(&policy.name);
            statements.push(format!("CREATE DATABASE {database} WITH {options} NAME {policy}"));
        }
        None => {
            statements.push(format!("CREATE DATABASE {database}"));
            statements.push(format!("DROP RETENTION POLICY \"autogen\" ON {database}"));
        }
    }
    for policy in policies.iter().filter(|policy| policy.name != default_policy) {
        let options = policy.options();
        let policy = quoted(&policy.name);
        statements.push(format!("CREATE RETENTION POLICY {policy} ON {database} {options}"));
    }
    statements
}

/// Returns true if a statement creates a continuous query.
pub(crate) fn is_continuous_query(statement: &str) -> bool {
    let mut words = statement.split_ascii_whitespace();
    ["CREATE", "CONTINUOUS", "QUERY"]
        .iter()
        .all(|want| words.next().is_some_and(|word| word.eq_ignore_ascii_case(want)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_created_with_its_policies() {
        let policy = |name: &str, duration_ns| PolicyDefinition {
            name: name.to_owned(),
            duration_ns,
            shard_group_ns: 3_600_000_000_000,
            replica_count: 1,
        };
        let policies = [policy("a", 0), policy("b", 7_200_000_000_000)];
        let want = [
            "CREATE DATABASE \"d\\\"\" WITH DURATION 2h REPLICATION 1 SHARD DURATION 1h NAME \"b\"",
            "CREATE RETENTION POLICY \"a\" ON \"d\\\"\" DURATION INF REPLICATION 1 SHARD DURATION 1h",
        ];
        assert_eq!(create_database("d\"", "b", &policies), want);
        let without = create_database("d", "gone", &[]);
        assert_eq!(without, ["CREATE DATABASE \"d\"", "DROP RETENTION POLICY \"autogen\" ON \"d\""]);
    }

    #[test]
    fn continuous_queries_are_known_by_their_words() {
        assert!(is_continuous_query("create continuous  query x ON d BEGIN .. END"));
        assert!(!is_continuous_query("CREATE DATABASE continuous"));
    }
}
