//! Sequences of statements and writes that change a database of their own.
//!
//! Invariants: a script creates what it uses; users are named after it and dropped at its end.

use crate::chooser::Chooser;
use crate::metadata;
use crate::schema::BORDER;
use crate::steps::{Output, Step};

/// Seconds of a shard group.
const WEEK: i64 = 7 * 24 * 3600;

/// Database of scripts.
pub(crate) const DATABASE: &str = "script";

const CHANGES: [&str; 36] = [
    "DROP SERIES FROM m",
    "DROP SERIES FROM m WHERE host = 'a'",
    "DROP SERIES WHERE host = 'b'",
    "DROP SERIES FROM /m/ WHERE host != 'a'",
    "DROP SERIES FROM m WHERE v > 1",
    "DROP SERIES FROM absent",
    "DROP MEASUREMENT m",
    "DROP MEASUREMENT absent",
    "DELETE FROM m",
    "DELETE FROM m WHERE time < '2023-11-20T00:01:00Z'",
    "DELETE FROM m WHERE host = 'a' AND time >= 1700438400s",
    "DELETE WHERE time >= 1700438400s AND time <= 1700438460s",
    "DELETE FROM /n/ WHERE host =~ /a|b/",
    "DELETE FROM m WHERE v = 1",
    "DELETE FROM m WHERE host = 'a' OR host = 'c'",
    "CREATE DATABASE script",
    "CREATE DATABASE script WITH DURATION 2h",
    "CREATE DATABASE script WITH NAME x",
    "CREATE DATABASE script WITH DURATION 3d NAME p",
    "CREATE DATABASE script WITH DURATION 30m REPLICATION 1 NAME p",
    "CREATE DATABASE script WITH NAME autogen",
    "DROP MEASUREMENT n",
    "DROP SERIES FROM n WHERE host = 'a'",
    "CREATE RETENTION POLICY p ON script DURATION INF REPLICATION 1",
    "CREATE RETENTION POLICY p ON script DURATION 30m REPLICATION 1",
    "CREATE RETENTION POLICY p ON script DURATION 520w REPLICATION 2 SHARD DURATION 3h DEFAULT",
    "ALTER RETENTION POLICY p ON script DURATION 0s SHARD DURATION 2h",
    "ALTER RETENTION POLICY p ON script DEFAULT",
    "ALTER RETENTION POLICY autogen ON script REPLICATION 3",
    "ALTER RETENTION POLICY absent ON script DEFAULT",
    "DROP RETENTION POLICY p ON script",
    "DROP RETENTION POLICY absent ON script",
    "DROP DATABASE script",
    "CREATE RETENTION POLICY p ON nodb DURATION 1h REPLICATION 1",
    "CREATE RETENTION POLICY p ON script DURATION 3d REPLICATION 1 SHARD DURATION 30m",
    "DROP SHARD 999999",
];
const INTO: [&str; 12] = [
    "SELECT mean(v) INTO m2 FROM m WHERE time >= 1700438300s AND time < 1700438500s GROUP BY time(30s), host",
    "SELECT * INTO copy FROM m",
    "SELECT * INTO copy FROM m GROUP BY *",
    "SELECT v INTO script.autogen.:MEASUREMENT FROM /./",
    "SELECT v, c INTO p.:MEASUREMENT FROM m GROUP BY *",
    "SELECT first(v), last(c) INTO m3 FROM m",
    "SELECT v INTO nodb..m FROM m",
    "SELECT count(*) INTO m4 FROM m GROUP BY host",
    "SELECT mean(v) INTO m5 FROM m WHERE time >= 1700438300s AND time < 1700438500s GROUP BY time(10s) fill(null)",
    "SELECT s INTO m6 FROM m",
    "SELECT absent INTO m7 FROM m",
    "SELECT v INTO norp.m8 FROM m",
];
const CONTINUOUS: [&str; 10] = [
    "CREATE CONTINUOUS QUERY cq ON script BEGIN SELECT mean(v) INTO m9 FROM m GROUP BY time(5m) END",
    "CREATE CONTINUOUS QUERY cq ON script BEGIN SELECT max(v) INTO m9 FROM m GROUP BY time(5m), host END",
    "CREATE CONTINUOUS QUERY cq2 ON script RESAMPLE EVERY 1m FOR 2h BEGIN SELECT mean(v) AS x INTO p.m9 FROM \
     script.autogen.m WHERE host = 'a' GROUP BY time(10m), * fill(previous) END",
    "CREATE CONTINUOUS QUERY cq ON script BEGIN SELECT mean(v) FROM m GROUP BY time(5m) END",
    "CREATE CONTINUOUS QUERY cq ON script RESAMPLE FOR 1m BEGIN SELECT mean(v) INTO m9 FROM m GROUP BY time(5m) END",
    "CREATE CONTINUOUS QUERY cq ON script BEGIN SELECT v INTO m9 FROM m END",
    "CREATE CONTINUOUS QUERY cq ON nodb BEGIN SELECT mean(v) INTO m9 FROM m GROUP BY time(5m) END",
    "SHOW CONTINUOUS QUERIES",
    "DROP CONTINUOUS QUERY cq ON script",
    "DROP CONTINUOUS QUERY cq ON nodb",
];
const USERS: [&str; 18] = [
    "CREATE USER u1 WITH PASSWORD 'p'",
    "CREATE USER u1 WITH PASSWORD 'other'",
    "CREATE USER \"u 2\" WITH PASSWORD 'p' WITH ALL PRIVILEGES",
    "CREATE USER u1 WITH PASSWORD ''",
    "GRANT READ ON script TO u1",
    "GRANT ALL PRIVILEGES ON script TO u1",
    "GRANT WRITE ON nodb TO u1",
    "GRANT ALL PRIVILEGES TO u1",
    "REVOKE READ ON script FROM u1",
    "REVOKE WRITE ON script FROM u1",
    "REVOKE ALL PRIVILEGES FROM u1",
    "REVOKE ALL ON script FROM u1",
    "SET PASSWORD FOR u1 = 'new'",
    "SET PASSWORD FOR absent = 'new'",
    "SHOW USERS",
    "SHOW GRANTS FOR u1",
    "SHOW GRANTS FOR absent",
    "GRANT READ ON script TO absent",
];
const LOOKS: [&str; 18] = [
    "SELECT * FROM /./",
    "SELECT * FROM m GROUP BY *",
    "SELECT count(*) FROM /./",
    "SHOW SERIES",
    "SHOW MEASUREMENTS",
    "SHOW FIELD KEYS",
    "SHOW TAG KEYS",
    "SHOW TAG VALUES WITH KEY = host",
    "SHOW RETENTION POLICIES ON script",
    "SHOW SERIES EXACT CARDINALITY",
    "SELECT * FROM p.m",
    "SHOW DATABASES",
    "SHOW MEASUREMENT EXACT CARDINALITY",
    "SHOW FIELD KEY CARDINALITY",
    "SHOW TAG VALUES WITH KEY IN (host, dc)",
    "SELECT w, w::string, w::float FROM /./",
    "SHOW TAG VALUES WITH KEY = host WHERE w = 'text'",
    "SHOW TAG KEYS WHERE host = 1",
];

/// Steps that bring both servers to the state before a script.
pub(crate) fn cleanup() -> Vec<Step> {
    ["DROP DATABASE script", "DROP USER u1", "DROP USER \"u 2\""]
        .map(|text| statement(text.to_owned()))
        .into()
}

/// One script.
pub(crate) fn script(chooser: Chooser<'_>) -> Vec<Step> {
    let c = chooser;
    let mut steps = vec![statement("CREATE DATABASE script".to_owned())];
    for _ in 0..c.between(1, 2) {
        steps.push(write(c));
    }
    let users = c.percent(20);
    for _ in 0..c.between(3, 8) {
        let step = match c.below(10) {
            0 | 1 => write(c),
            2 => statement((*c.pick(&INTO)).to_owned()),
            3 if users => statement((*c.pick(&CONTINUOUS)).to_owned()),
            4..7 if users => statement((*c.pick(&USERS)).to_owned()),
            3..8 => statement((*c.pick(&CHANGES)).to_owned()),
            8 => statement((*c.pick(&LOOKS)).to_owned()),
            _ => Step::query(metadata::show(c, DATABASE), DATABASE, Output::default()),
        };
        steps.push(step);
        if c.percent(60) {
            steps.push(statement((*c.pick(&LOOKS)).to_owned()));
        }
    }
    steps.extend(LOOKS[..5].iter().map(|text| statement((*text).to_owned())));
    steps
}

fn statement(text: String) -> Step {
    Step::query(crate::piece::Piece::text(text), DATABASE, Output::default())
}

fn write(c: Chooser<'_>) -> Step {
    let mut body = String::new();
    for _ in 0..c.between(1, 12) {
        let name = c.pick(&["m", "m", "n"]);
        let host = c.pick(&["", ",host=a", ",host=b", ",host=a,dc=x"]);
        let fields = match c.below(14) {
            12 => format!("w={},w={}i", c.below(5), c.below(5)),
            13 => format!("w={}", c.pick(&["1", "2i", "true", "\"text\""])),
            0 => "v=\"text\"".to_owned(),
            1 => "s=\"text\"".to_owned(),
            2 => format!("v={},c={}i", c.below(5), c.below(5)),
            3 => format!("b={}", c.pick(&["true", "false"])),
            _ => format!("v={}", c.below(5)),
        };
        body.push_str(&format!(
            "{name}{host} {fields} {}\n",
            (BORDER + c.between(-1, 1) * c.pick(&[0, 0, WEEK]) + c.between(-8, 12) * 10) * 1_000_000_000
        ));
    }
    let policy = *c.pick(&["", "", "", "p", "absent"]);
    Step::write(DATABASE, policy, "", body.into_bytes())
}
