//! Tests of the tree: privileges, defaults, durations, regexes.

use super::{ExecutionPrivilege, Privilege, Regex, Statement, format_duration, format_duration_go};
use crate::parse_statement;

fn parsed(text: &str) -> Statement {
    parse_statement(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Renders one `READ d` per privilege; `admin` for privileges of administrators.
fn privileges(text: &str) -> String {
    let render = |needed: ExecutionPrivilege| match needed.is_admin {
        true => "admin".to_owned(),
        false => format!("{} {:?}", needed.privilege.text(), needed.database),
    };
    parsed(text).required_privileges().into_iter().map(render).collect::<Vec<_>>().join(", ")
}

#[test]
fn statements_need_privileges() {
    let cases = [
        ("SELECT a FROM m", r#"READ """#),
        ("SELECT a INTO d..x FROM e.r.m, (SELECT b FROM f..m)", r#"READ "e", READ "f", WRITE "d""#),
        ("EXPLAIN SELECT a FROM d..m", r#"READ "d""#),
        ("SHOW DATABASES", r#"NO PRIVILEGES """#),
        ("SHOW SERIES ON d", r#"READ "d""#),
        ("SHOW TAG VALUES EXACT CARDINALITY ON d WITH KEY = a", r#"READ "d""#),
        ("SHOW QUERIES", r#"READ """#),
        ("SHOW USERS", "admin"),
        ("SHOW SHARDS", "admin"),
        ("DELETE FROM m", r#"WRITE """#),
        ("DROP SERIES FROM m", r#"WRITE """#),
        ("DROP MEASUREMENT m", "admin"),
        ("DROP RETENTION POLICY p ON d", r#"WRITE "d""#),
        ("CREATE DATABASE d", "admin"),
        ("KILL QUERY 5", "admin"),
        ("DROP CONTINUOUS QUERY c ON d", r#"WRITE "d""#),
        (
            "CREATE CONTINUOUS QUERY c ON d BEGIN SELECT mean(a) INTO e..x FROM m GROUP BY time(1m) END",
            r#"READ "d", WRITE "e""#,
        ),
    ];
    for (text, want) in cases {
        assert_eq!(privileges(text), want, "{text}");
    }
    assert!(Privilege::Read < Privilege::All);
}

#[test]
fn writing_statements_are_those_that_change_something() {
    let writing = [
        "SELECT a INTO b FROM m",
        "CREATE DATABASE d",
        "DELETE FROM m",
        "DROP SHARD 5",
        "GRANT ALL TO u",
        "SET PASSWORD FOR u = 'p'",
        "KILL QUERY 5",
    ];
    let reading =
        ["SELECT a FROM m", "EXPLAIN ANALYZE SELECT a FROM m", "SHOW DATABASES", "SHOW STATS", "SHOW SERIES"];
    assert!(writing.iter().all(|text| parsed(text).is_writing()));
    assert!(!reading.iter().any(|text| parsed(text).is_writing()));
}

#[test]
fn defaults_fill_open_places() {
    let policy_of = |database: &str| format!("{database}_rp");
    let filled = |text: &str| {
        let mut statement = parsed(text);
        statement.fill_defaults("db", &policy_of);
        statement.to_string()
    };
    let cases = [
        ("SELECT a FROM m", "SELECT a FROM db.db_rp.m"),
        ("SELECT a FROM r.m, e..n, /x/", "SELECT a FROM db.r.m, e.e_rp.n, db.db_rp./x/"),
        (
            "SELECT a INTO x FROM (SELECT b FROM m)",
            "SELECT a INTO db.db_rp.x FROM (SELECT b FROM db.db_rp.m)",
        ),
        ("SELECT a INTO e..:MEASUREMENT FROM m", "SELECT a INTO e.e_rp.:MEASUREMENT FROM db.db_rp.m"),
        ("SHOW SERIES FROM m", "SHOW SERIES ON db FROM m"),
        ("SHOW TAG VALUES ON e WITH KEY = k", "SHOW TAG VALUES ON e WITH KEY = k"),
        ("SHOW RETENTION POLICIES", "SHOW RETENTION POLICIES ON db"),
        ("DROP DATABASE d", "DROP DATABASE d"),
    ];
    for (text, want) in cases {
        assert_eq!(filled(text), want);
    }
}

#[test]
fn passwords_are_never_printed() {
    for text in ["CREATE USER u WITH PASSWORD 'secret'", "SET PASSWORD FOR u = 'secret'"] {
        let statement = parsed(text);
        assert!(!format!("{statement} {statement:?}").contains("secret"));
    }
    let Statement::CreateUser(create) = parsed("CREATE USER u WITH PASSWORD 'secret'") else {
        panic!("no user")
    };
    assert!(!format!("{create:?}").contains("secret"));
}

#[test]
fn durations_have_two_forms() {
    let second = 1_000_000_000;
    let cases = [
        (0, "0s", "0s"),
        (1, "1ns", "1ns"),
        (1_500, "1500ns", "1.5µs"),
        (2_000_000, "2ms", "2ms"),
        (1_500_000_000, "1500ms", "1.5s"),
        (90 * second, "90s", "1m30s"),
        (3_600 * second, "1h", "1h0m0s"),
        (168 * 3_600 * second, "1w", "168h0m0s"),
        (-90 * second, "-90s", "-1m30s"),
        (i64::MIN, "-9223372036854775808ns", "-2562047h47m16.854775808s"),
    ];
    for (ns, short, go) in cases {
        assert_eq!(format_duration(ns), short);
        assert_eq!(format_duration_go(ns), go);
    }
}

#[test]
fn regexes_match_parts_of_a_text() {
    let matches =
        |pattern: &str, text: &str| Regex::new(pattern.to_owned()).unwrap().compile().unwrap().is_match(text);
    for (pattern, text, want) in [
        ("b", "abc", true),
        ("^b", "abc", false),
        ("^a", "abc", true),
        ("c$", "abc", true),
        ("^(a|b)$", "b", true),
        ("^(a|b)$", "ab", false),
        ("^a|c$", "xc", true),
        ("^a|c$", "ab", true),
        (r"a\$", "xa$y", true),
        (r"a\\$", r"xa\", true),
        ("a.c", "a\nc", false),
        ("ac", "x\nac\ny", true),
        ("(?i)^AB$", "ab", true),
        ("^[$]", "$a", true),
        ("", "anything", true),
    ] {
        assert_eq!(matches(pattern, text), want, "{pattern} {text}");
    }
    let set = Regex::new("^(a|b)$".to_owned()).unwrap().compile().unwrap();
    assert_eq!(set.set_matches(), Some(["a".to_owned(), "b".to_owned()].as_slice()));
}
