//! Comparison with a table of Go's results (`tests/go_table.tsv`, from Go 1.26), and the limits.
//!
//! Rows of the table, fields divided by tabs, with `\u{..}` for what would not survive an editor:
//! `input text`; `match pattern numbers-of-inputs-that-fit`; `error pattern text`;
//! `expand pattern text template result`; `none pattern text template`.

use super::*;

const GO_TABLE: &str = include_str!("tests/go_table.tsv");

fn unescape(text: &str) -> String {
    let mut parts = text.split("\\u{");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (code, after) = part.split_once('}').unwrap();
        out.push(char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
        out.push_str(after);
    }
    out
}

fn rows(table: &str) -> impl Iterator<Item = Vec<String>> {
    table.lines().map(|line| line.split('\t').map(unescape).collect())
}

/// Difference from Go's answer in one row; `None` if there is none.
fn difference(row: &[String], inputs: &[String]) -> Option<String> {
    let row = row.iter().map(String::as_str).collect::<Vec<_>>();
    match row[..] {
        ["error", pattern, want] => {
            let got = GoRegex::new(pattern).err().map(|e| e.to_string());
            (got.as_deref() != Some(want)).then(|| format!("{pattern:?}: want {want}, got {got:?}"))
        }
        ["match", pattern, want] => {
            let regex = match GoRegex::new(pattern) {
                Ok(regex) => regex,
                Err(e) => return Some(format!("{pattern:?}: {e}")),
            };
            let fits = (0..inputs.len()).filter(|&i| regex.is_match(&inputs[i])).collect::<Vec<_>>();
            let want = want.split_whitespace().map(|n| n.parse().unwrap()).collect::<Vec<usize>>();
            if fits != want {
                return Some(format!("{pattern:?}: want {want:?}, got {fits:?}"));
            }
            let broken = inputs.iter().find(|input| !is_consistent(&regex, input));
            broken.map(|input| format!("{pattern:?} on {input:?}: literals, groups and matches differ"))
        }
        ["expand", pattern, text, template, want] => {
            let got = GoRegex::new(pattern).unwrap().captures_expand(text, template);
            (got.as_deref() != Some(want)).then(|| format!("{row:?}: got {got:?}"))
        }
        ["none", pattern, text, template] => {
            let got = GoRegex::new(pattern).unwrap().captures_expand(text, template);
            got.map(|got| format!("{row:?}: got {got:?}"))
        }
        _ => Some(format!("{row:?} is no row")),
    }
}

/// Returns true if the compiled program, the set and the literals agree on `text`.
fn is_consistent(regex: &GoRegex, text: &str) -> bool {
    let fits = regex.is_match(text);
    let in_set = regex.set_matches().is_none_or(|set| set.iter().any(|s| s == text) == fits);
    let literals = text.starts_with(regex.prefix()) && text.ends_with(regex.suffix());
    regex.compiled().is_match(text) == fits
        && in_set
        && (literals || !fits)
        && regex.captures_expand(text, "$0").as_deref() == fits.then_some(text)
}

fn check_table(table: &str) {
    let inputs = rows(table).filter(|r| r[0] == "input").map(|mut r| r.remove(1)).collect::<Vec<_>>();
    let differences =
        rows(table).filter(|r| r[0] != "input").filter_map(|r| difference(&r, &inputs)).collect::<Vec<_>>();
    let first = differences.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences:\n{first}", differences.len());
}

#[test]
fn verdicts_texts_matches_and_expansions_are_those_of_go() {
    check_table(GO_TABLE);
}

#[test]
fn sets_are_found() {
    let check = |pattern: &str, want: &[&str]| {
        let regex = GoRegex::new(pattern).unwrap();
        assert_eq!(regex.set_matches().unwrap_or_else(|| panic!("{pattern} is a set")), want, "{pattern}");
    };
    check("", &[""]);
    check("foo", &["foo"]);
    check("c|a|b|a", &["a", "b", "c"]);
    check("(a|b)c", &["ac", "bc"]);
    check("^(?:foo|bar)$", &["bar", "foo"]);
    check("a(b|c)?d{2}[ef]", &["abdde", "abddf", "acdde", "acddf", "adde", "addf"]);
    check(r"10\.0\.0\.1:9100|\Qa.b\E", &["10.0.0.1:9100", "a.b"]);
    check("(?i)a", &["A", "a"]);
    for pattern in ["a*", "a.b", r"a\b", "[a-z]{3}", "(?m)^a", "a^b"] {
        assert_eq!(GoRegex::new(pattern).unwrap().set_matches(), None, "{pattern}");
    }
}

#[test]
fn literals_are_found() {
    let check = |pattern: &str, prefix: &str, suffix: &str, contains: &[&str]| {
        let regex = GoRegex::new(pattern).unwrap();
        assert_eq!((regex.prefix(), regex.suffix()), (prefix, suffix), "{pattern}");
        assert_eq!(regex.contains, contains, "{pattern}");
    };
    check("foo.*", "foo", "", &[]);
    check(".*foo", "", "foo", &[]);
    check("prod-(eu|es)-.+x[0-9]y", "prod-e", "y", &["-", "x"]);
    check("(ab)+", "ab", "ab", &[]);
    check("a(b.*|bc)d", "ab", "d", &[]);
    check("日a.|日b.", "日", "", &[]);
    check("(?i)foo", "", "", &[]);
    check(r"^\bfoo\b.$", "foo", "", &["foo"]);
    check(".*é|.*\u{1e9}", "", "", &[]);
}

#[test]
fn globs_need_no_program() {
    let check = |pattern: &str, text: &str, want: bool| {
        let regex = GoRegex::new(pattern).unwrap();
        assert!(regex.compiled.get().is_none(), "{pattern}");
        assert_eq!(regex.is_match(text), want, "{pattern} on {text:?}");
    };
    check(".*", "", true);
    check(".+", "", false);
    check(".+", "\n", true);
    check("a.*a", "a", false);
    check("a.*a", "aa", true);
    check("a.+a", "aa", false);
    check("a.+a", "aéa", true);
    check(".*ab.*ab.*", "abxab", true);
    check(".*ab.*ab.*", "aab", false);
    check(".+ab.+", "abab", false);
    check(".+ab.+", "éabé", true);
    check("(?:foo(.*))bar", "foobar", true);
    check("a|b", "b", true);
    check(".*7.*3", "/a/17x3", true);
    check(".*7.*3", "/a/137", false);
    check(".*7.*3", "377", false);
    check(".*aab.*", "aaab", true);
    check(".*éa.*", "éééa", true);
    check(".*0123456789abcdefghij.*", "0123456789abcdefghi0123456789abcdefghij", true);
}

#[test]
fn groups_have_names() {
    let regex = GoRegex::new("(a)(?P<x>b)(?:c)(?<y>d)").unwrap();
    let names = regex.group_names().iter().map(Option::as_deref).collect::<Vec<_>>();
    assert_eq!(names, [None, None, Some("x"), Some("y")]);
    assert_eq!(regex.captures_expand("abcd", "${y}$x$1$0"), Some("dbaabcd".to_owned()));
}

#[test]
fn many_alternatives_are_fine() {
    let names = (0..5000).map(|i| format!(r"host-{i}\.example\.org")).collect::<Vec<_>>();
    let regex = GoRegex::new(&names.join("|")).unwrap();
    assert!(regex.is_match("host-4999.example.org") && !regex.is_match("host-5000.example.org"));
    let few = GoRegex::new(&names[..SET_MATCH_COUNT_MAX].join("|")).unwrap();
    assert_eq!(few.set_matches().unwrap().len(), SET_MATCH_COUNT_MAX);
    assert!(few.is_match("host-77.example.org"));
    let open = names.iter().map(|n| format!("{n}.*")).collect::<Vec<_>>().join("|");
    assert!(GoRegex::new(&open).unwrap().is_match("host-4999.example.org:9100"));
}

#[test]
fn deep_nesting_is_refused_at_the_limit_and_harmless_below() {
    let nested = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(GoRegex::new(&nested(990)).unwrap().is_match("a"));
    assert!(GoRegex::new(&nested(990)).unwrap().captures_expand("a", "$990").is_some());
    for depth in [1001, 100_000] {
        let kind = GoRegex::new(&nested(depth)).unwrap_err().kind;
        assert_eq!(kind, RegexErrorKind::NestingDepth);
    }
    let stars = |depth: usize| format!("{}a{}", "(?:".repeat(depth), ")*".repeat(depth));
    assert!(GoRegex::new(&stars(900)).unwrap().is_match("aa"));
    assert_eq!(GoRegex::new(&stars(1100)).unwrap_err().kind, RegexErrorKind::NestingDepth);
    assert!(
        GoRegex::new(&format!("{}a{}", "(?:".repeat(100_000), ")".repeat(100_000))).unwrap().is_match("a")
    );
    assert_eq!(GoRegex::new(&"(".repeat(200_000)).unwrap_err().kind, RegexErrorKind::MissingParen);
}

#[test]
fn large_programs_are_refused() {
    let large = |pattern: &str| assert_eq!(GoRegex::new(pattern).unwrap_err().kind, RegexErrorKind::Large);
    large(&"(a{1,1000})".repeat(4000));
    large(&"((\\pL{10}){10}){10}".repeat(200));
    large(&"a".repeat(PATTERN_BYTES_MAX + 1));
    large(&"\\pL".repeat(100_000));
    large(&"(x*)".repeat(20_000));
    let error = GoRegex::new("((a{1,1000}){1,1000}){1,1000}").unwrap_err();
    assert_eq!(error.to_string(), "error parsing regexp: invalid repeat count: `{1,1000}`");
    assert!(GoRegex::new(r"(\w{10}){100}").unwrap().is_match(&"x".repeat(1000)));
}

#[test]
fn a_search_finds_parts_and_a_dot_matches_no_newline() {
    let is_match = |pattern: &str, text: &str| SearchRegex::new(pattern).unwrap().is_match(text);
    assert!(is_match("a+", "baab") && !is_match("^a+$", "baab"));
    assert!(!is_match("^.$", "\n") && is_match("(?s)^.$", "\n"));
    // Only an anchored pattern has text after the quotation.
    assert!(is_match(r"\Qa.b", "xa.by"));
    let error = SearchRegex::new("a(").unwrap_err();
    assert_eq!(error.to_string(), "error parsing regexp: missing closing ): `a(`");
}

/// Results of Go's `ReplaceAllString`.
#[test]
fn all_matches_are_replaced_as_in_go() {
    #[track_caller]
    fn check(pattern: &str, text: &str, template: &str, want: &str) {
        let regex = SearchRegex::new(pattern).unwrap();
        assert_eq!(regex.replace_all(text, template, 100).as_deref(), Some(want), "{pattern}");
    }
    check("(a)b", "abab", "x${1}y", "xayxay");
    check("(a)(b)?", "a ab", "[$1|$2|$3]", "[a||] [a|b|]");
    check("a|ab", "ab", "x", "xb");
    check("", "é€", "-", "-é-€-");
    check("a*", "baac", "x", "xbxcx");
    check("$", "ab", "!", "ab!");
    check(r"\b", "ab cd", "|", "|ab| |cd|");
    check("(?m)^", "a\nb", "> ", "> a\n> b");
}

#[test]
fn a_replacement_stops_at_its_limit() {
    let regex = SearchRegex::new("a").unwrap();
    assert_eq!(regex.replace_all("aaa", "bb", 6).as_deref(), Some("bbbbbb"));
    assert_eq!(regex.replace_all("aaa", "bb", 5), None);
    assert_eq!(regex.replace_all("aaaccc", "", 2), None);
}
