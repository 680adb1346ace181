//! Configured rules over a disk in memory: changes, limits, crashes, damage, tenants apart.

use chronolith_base::{Disk as _, MemDisk};

use super::*;

const NOW_MS: i64 = 1_700_000_000_000;
const OPTIONS: ConfiguredOptions = ConfiguredOptions {
    parser: ParserOptions {
        experimental_functions: false,
        binop_fill_modifiers: false,
        unquoted_utf8_names: false,
    },
    defaults: GroupDefaults { interval_ms: 60_000, query_offset_ms: 0 },
    bytes_max: CONFIGURED_BYTES_MAX,
};

struct Fixture {
    env: Env,
    disk: Arc<MemDisk>,
    rules: ConfiguredRules,
    engine: Arc<RuleEngine>,
    limits: RuleLimits,
}

fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a name")
}

fn group(name: &str, expr: &str) -> String {
    format!("name: {name}\nrules:\n- record: r\n  expr: {expr}\n")
}

impl Fixture {
    fn new() -> Fixture {
        let (env, _clock, disk) = Env::fake(NOW_MS, 1);
        Fixture::over(env, disk, OPTIONS, RuleLimits::default())
    }

    fn over(env: Env, disk: Arc<MemDisk>, options: ConfiguredOptions, limits: RuleLimits) -> Fixture {
        let engine = Arc::new(RuleEngine::default());
        let rules = ConfiguredRules::new(&env, Path::new("/data"), options, engine.clone());
        rules.load(|_| false);
        Fixture { env, disk, rules, engine, limits }
    }

    /// The state after another start.
    fn restarted(&self) -> Fixture {
        Fixture::over(self.env.clone(), self.disk.clone(), self.rules.options, self.limits)
    }

    fn set(&self, name: &str, namespace: &str, yaml: &str) -> Result<String, ConfigureError> {
        self.rules.set_group(&tenant(name), namespace, yaml.as_bytes(), &self.limits, |_| false)
    }

    /// Groups with their expressions, of a tenant.
    fn shown(&self, name: &str) -> Vec<String> {
        let namespaces = self.rules.namespaces(&tenant(name));
        let of_one = |(namespace, content): (&String, &Arc<Namespace>)| {
            let groups = content
                .groups()
                .iter()
                .map(|one| format!("{namespace}:{}={}", one.source.name, one.source.rules[0].expr));
            groups.collect::<Vec<_>>()
        };
        namespaces.iter().flat_map(of_one).collect()
    }

    /// Groups of a tenant in the schedule.
    fn scheduled(&self, name: &str) -> Vec<String> {
        let groups = self.engine.statuses.groups(&tenant(name));
        groups.iter().map(|one| format!("{}:{}", one.group.key.file, one.group.key.name)).collect()
    }
}

#[test]
fn a_group_is_added_replaced_and_there_after_a_restart() {
    let fixture = Fixture::new();
    assert_eq!(fixture.set("t", "b/c", &group("two", "y")).expect("set"), "two");
    fixture.set("t", "a", &group("one", "x")).expect("set");
    fixture.set("t", "b/c", &group("one", "z")).expect("set");
    fixture.set("t", "b/c", &group("two", "y2")).expect("replaced");
    fixture.set("other", "a", &group("one", "o")).expect("set");
    let want = ["a:one=x", "b/c:two=y2", "b/c:one=z"];
    assert_eq!(fixture.shown("t"), want);
    fixture.disk.crash();
    let restarted = fixture.restarted();
    assert_eq!(restarted.shown("t"), want);
    assert_eq!(restarted.shown("other"), ["a:one=o"]);
    assert_eq!((restarted.rules.group_count(), restarted.rules.damaged_count()), (4, 0));
    assert_eq!(restarted.scheduled("t"), ["a:one", "b/c:one", "b/c:two"]);
    assert_eq!(restarted.scheduled("other"), ["a:one"]);
}

#[test]
fn a_deleted_group_or_namespace_is_gone_after_a_restart() {
    let fixture = Fixture::new();
    for (namespace, name) in [("a", "one"), ("a", "two"), ("b", "one"), ("c", "one")] {
        fixture.set("t", namespace, &group(name, "x")).expect("set");
    }
    let t = tenant("t");
    fixture.rules.delete_group(&t, "a", "one").expect("deleted");
    fixture.rules.delete_group(&t, "b", "one").expect("the last group of its namespace");
    fixture.rules.delete_namespace(&t, "c").expect("deleted");
    let errors = [
        fixture.rules.delete_group(&t, "a", "one"),
        fixture.rules.delete_group(&t, "b", "one"),
        fixture.rules.delete_namespace(&t, "b"),
    ];
    let texts = errors.map(|result| result.expect_err("it is gone").to_string());
    assert_eq!(texts, ["group does not exist", "group does not exist", "group namespace does not exist"]);
    fixture.disk.crash();
    assert_eq!(fixture.restarted().shown("t"), ["a:two=x"]);
    assert_eq!(fixture.scheduled("t"), ["a:two"]);
}

/// A change.
type Step = fn(&Fixture) -> Result<(), ConfigureError>;

#[test]
fn a_crash_at_each_operation_leaves_the_old_or_the_new_groups() {
    let steps: [(&str, Step); 4] = [
        ("create", |f| f.set("t", "new", &group("one", "x")).map(drop)),
        ("replace", |f| f.set("t", "a", &group("one", "y")).map(drop)),
        ("delete a group", |f| f.rules.delete_group(&tenant("t"), "a", "one")),
        ("delete a namespace", |f| f.rules.delete_namespace(&tenant("t"), "a")),
    ];
    for (what, step) in steps {
        let mut op_count = 0;
        loop {
            let fixture = Fixture::new();
            fixture.set("t", "a", &group("one", "x")).expect("set");
            fixture.set("t", "a", &group("two", "x")).expect("set");
            let old = fixture.shown("t");
            fixture.disk.fail_after(op_count);
            let result = step(&fixture);
            fixture.disk.heal();
            let shown = fixture.shown("t");
            fixture.disk.crash();
            let after = fixture.restarted();
            assert_eq!(after.rules.damaged_count(), 0, "{what} {op_count}");
            if result.is_ok() {
                assert_ne!(shown, old, "{what} {op_count}");
                assert_eq!(after.shown("t"), shown, "{what} {op_count}: acknowledged and lost");
                break;
            }
            assert_eq!(shown, old, "{what} {op_count}: refused and shown");
            assert_eq!(fixture.rules.write_failures().get(), 1);
            let new = {
                let other = Fixture::new();
                other.set("t", "a", &group("one", "x")).expect("set");
                other.set("t", "a", &group("two", "x")).expect("set");
                step(&other).expect("done");
                other.shown("t")
            };
            assert!([&old, &new].contains(&&after.shown("t")), "{what} {op_count}: {:?}", after.shown("t"));
            op_count += 1;
            assert!(op_count < 100, "{what} never ends");
        }
        assert!(op_count >= 2, "{what} writes");
    }
}

#[test]
fn a_damaged_file_hurts_its_namespace_alone() {
    let fixture = Fixture::new();
    fixture.set("t", "good", &group("one", "x")).expect("set");
    fixture.set("t", "bad", &group("one", "x")).expect("set");
    fixture.disk.write_atomic(Path::new("/data/rules/configured/t/bad.yml"), b"groups: {").expect("written");
    let restarted = fixture.restarted();
    assert_eq!(restarted.shown("t"), ["good:one=x"]);
    assert_eq!(restarted.rules.damaged_count(), 1);
    let error = restarted.set("t", "bad", &group("two", "x")).expect_err("damaged").to_string();
    assert!(error.starts_with("/data/rules/configured/t/bad.yml: 1:"), "{error}");
    assert!(error.ends_with("; delete the namespace, or mend the file and restart the server"), "{error}");
    restarted.rules.delete_namespace(&tenant("t"), "bad").expect("deleted");
    restarted.set("t", "bad", &group("two", "y")).expect("set");
    assert_eq!(restarted.restarted().shown("t"), ["bad:two=y", "good:one=x"]);
}

#[test]
fn wrong_groups_are_refused_with_line_and_column() {
    let fixture = Fixture::new();
    let rule = |expr: &str| group("g", expr);
    for (yaml, want) in [
        (
            rule("sum("),
            "3:3: group \"g\", rule 1, \"r\": could not parse expression: 1:5: parse error: unclosed left parenthesis",
        ),
        ("name: g\n".to_owned(), "invalid rules configuration: rule group 'g' has no rules"),
        (String::new(), "1:1: Groupname must not be empty"),
        ("rules: []".to_owned(), "1:1: Groupname must not be empty"),
        ("[]".to_owned(), "1:1: cannot unmarshal !!seq into rulefmt.RuleGroup"),
        (
            format!("{}source_tenants: [a]\n", rule("x")),
            "5:1: field source_tenants not found in type rulefmt.RuleGroup",
        ),
    ] {
        let error = fixture.set("t", "a", &yaml).expect_err("wrong").to_string();
        // The position of an expression is its own.
        assert_eq!(error.replace("4:9: ", "3:3: "), want);
    }
    assert_eq!(
        fixture.set("t", "", &rule("x")).expect_err("no name").to_string(),
        "a namespace must be provided in the request"
    );
    assert!(fixture.shown("t").is_empty());
    assert!(!fixture.disk.exists(Path::new("/data/rules")), "nothing is written");
}

#[test]
fn each_limit_is_named() {
    let (env, _clock, disk) = Env::fake(NOW_MS, 1);
    let limits = RuleLimits { groups_max: 2, group_rules_max: 2, ..RuleLimits::default() };
    let fixture = Fixture::over(env, disk, ConfiguredOptions { bytes_max: 400, ..OPTIONS }, limits);
    let error = |result: Result<String, ConfigureError>| result.expect_err("a limit").to_string();
    let three = format!("name: g\nrules: [{}]", "{record: a, expr: b},".repeat(3));
    assert_eq!(
        error(fixture.set("t", "a", &three)),
        "rules of the group \"g\": 3, and rules.per-group-max allows 2"
    );
    let long = group("g", "aaa+aaa+".repeat(100).trim_end_matches('+'));
    assert!(error(fixture.set("t", "a", &long)).starts_with("bytes of the rules of the tenant: 8"));
    fixture.set("t", "a", &group("one", "x")).expect("set");
    fixture.set("t", "b", &group("two", "x")).expect("set");
    assert_eq!(
        error(fixture.set("t", "b", &group("three", "x"))),
        "rule groups of the tenant: 3, and rules.groups-max allows 2"
    );
    fixture.set("t", "b", &group("two", "y")).expect("a group in place of one");
    fixture.set("other", "b", &group("two", "y")).expect("another tenant");
    // A tenant had `rules.groups-max` groups of each origin.
    let of_files = fixture.rules.namespaces(&tenant("t"))["a"].groups()[0].group.clone();
    fixture.engine.set_groups(&tenant("other"), Origin::Files, vec![of_files], 0);
    assert_eq!(
        error(fixture.set("other", "b", &group("three", "x"))),
        "rule groups of the tenant: 3, and rules.groups-max allows 2"
    );
    let big = vec![b' '; CONFIGURED_GROUP_BYTES_MAX + 1];
    let result = fixture.rules.set_group(&tenant("t"), "a", &big, &fixture.limits, |_| false);
    assert_eq!(error(result), "1:1: file has 1048577 bytes, at most 1048576 are allowed");
}

#[test]
fn rules_of_a_deleted_tenant_are_gone() {
    let fixture = Fixture::new();
    for name in ["t", "other"] {
        fixture.set(name, "a", &group("one", "x")).expect("set");
    }
    fixture.rules.delete_tenant(&tenant("t")).expect("deleted");
    fixture.rules.delete_tenant(&tenant("t")).expect("deleted again");
    assert!(fixture.shown("t").is_empty());
    assert!(fixture.scheduled("t").is_empty());
    assert_eq!(fixture.scheduled("other"), ["a:one"]);
    let yaml = group("one", "x");
    let refused = fixture.rules.set_group(&tenant("t"), "a", yaml.as_bytes(), &fixture.limits, |_| true);
    assert_eq!(refused.expect_err("marked").to_string(), "the tenant is being deleted");
    fixture.disk.crash();
    let restarted = fixture.restarted();
    assert!(restarted.shown("t").is_empty());
    assert_eq!(restarted.shown("other"), ["a:one=x"]);
}

/// A crash between the mark of a deletion and the removal of its rules: they came back with the start.
#[test]
fn a_start_removes_the_rules_of_a_tenant_that_is_being_deleted() {
    let fixture = Fixture::new();
    fixture.set("t", "a", &group("one", "x")).expect("set");
    let rules = ConfiguredRules::new(&fixture.env, Path::new("/data"), OPTIONS, Arc::default());
    rules.load(|_| true);
    assert_eq!(rules.group_count(), 0);
    assert!(fixture.restarted().shown("t").is_empty());
}
