//! Searches against Python's, and the limit of steps.

use super::*;

const SUBJECTS: &[&str] = &[
    "a.b",
    "aa.bb",
    "abc",
    "ABC",
    "carbon.agents.x",
    "stats.a.count",
    "stats_counts.x",
    "x.y",
    "z.y",
    "a.cpu",
    "a.cpux",
    "foo.foo",
    "foo.bar",
    "bb",
    "aab",
    "a{",
    "{a}",
    "x{1,",
    "[a",
    "a-",
    "a&&b",
    "~a",
    "]a",
    "<a>",
    "<a",
    "/x",
    "a-b",
    "a:b",
    "_x",
    "b",
    "ac",
    "m;dc=eu",
    "m;dc=us;host=web1",
    "m;dc=asia",
    "a1",
    "a.b.max",
    "$x",
    "é",
    "servers.h1.cpu.user",
    "servers.h1.cpu.idle",
    ".a",
    "}a",
    "a{b}",
    "-",
    "123",
    "",
];

/// Patterns, and the indices of the subjects that they are found in. Made by Python 3.10:
/// `[i for i, s in enumerate(SUBJECTS) if re.search(pattern, s)]`.
const FOUND_BY_PYTHON: &[(&str, &[usize])] = &[
    (r#"^a\.b$"#, &[0]),
    (r#"a\.b"#, &[0, 1, 35]),
    (r#"^carbon\."#, &[4]),
    (r#"\.count$"#, &[5]),
    (r#"^stats(?!_counts)"#, &[5]),
    (r#"^(?!x\.).*\.y$"#, &[8]),
    (r#"(?<=\.)cpu\b"#, &[9, 38, 39]),
    (r#"(?<!a)b"#, &[0, 1, 4, 12, 13, 20, 26, 27, 29, 32, 35, 42]),
    (r#"(?P<n>[a-z]+)\.(?P=n)"#, &[11, 38]),
    (r#"(a|b)\1"#, &[1, 13, 14]),
    (r#"a{2}"#, &[1, 14]),
    (r#"a{,2}b$"#, &[0, 1, 13, 14, 20, 26, 27, 29]),
    (r#"a{"#, &[15, 42]),
    (r#"{a}"#, &[16]),
    (r#"x{1,"#, &[17]),
    (r#"[[]a"#, &[18]),
    (
        r#"[a-]"#,
        &[
            0, 1, 2, 4, 5, 6, 9, 10, 12, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 26, 27, 30, 33, 34, 35, 40,
            41, 42, 43,
        ],
    ),
    (
        r#"[^.]+$"#,
        &[
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
            27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44,
        ],
    ),
    (
        r#"[a&&b]"#,
        &[
            0, 1, 2, 4, 5, 6, 9, 10, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 26, 27, 29, 30, 32, 33,
            34, 35, 40, 41, 42,
        ],
    ),
    (
        r#"[~a]"#,
        &[
            0, 1, 2, 4, 5, 6, 9, 10, 12, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 26, 27, 30, 33, 34, 35, 40,
            41, 42,
        ],
    ),
    (
        r#"[]a]"#,
        &[
            0, 1, 2, 4, 5, 6, 9, 10, 12, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 26, 27, 30, 33, 34, 35, 40,
            41, 42,
        ],
    ),
    (
        r#"[^]a]"#,
        &[
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27,
            28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44,
        ],
    ),
    (r#"\<a\>"#, &[23]),
    (r#"a\Z"#, &[18, 21, 22, 24, 33, 40, 41]),
    (r#"\Aa"#, &[0, 1, 2, 9, 10, 14, 15, 19, 20, 26, 27, 30, 34, 35, 42]),
    (r#"(?i)ABC"#, &[2, 3]),
    (r"a(?i)B", &[2, 3, 14]),
    (r"(a|b)(?i)\.", &[0, 1, 5, 9, 10, 35]),
    (r"(?u)(?i)\.B$", &[0]),
    (r"(?mi)^A", &[0, 1, 2, 3, 9, 10, 14, 15, 19, 20, 26, 27, 30, 34, 35, 42]),
    (r#"(?i:A)b"#, &[2, 14]),
    (r#"a(?#comment)b"#, &[2, 14]),
    (r#"\d+$"#, &[32, 34, 44]),
    (r#"\w+\.\w+$"#, &[0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, 35, 38, 39]),
    (
        r#".*"#,
        &[
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
            27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45,
        ],
    ),
    (
        r#""#,
        &[
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26,
            27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45,
        ],
    ),
    (r#"\/x"#, &[25]),
    (r#"a\-b"#, &[26]),
    (r#"a\:b"#, &[27]),
    (r#"\_x"#, &[28]),
    (
        r#"a|b$"#,
        &[
            0, 1, 2, 4, 5, 6, 9, 10, 12, 13, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 26, 27, 29, 30, 33, 34,
            35, 40, 41, 42,
        ],
    ),
    (r#"(?:a|b)c"#, &[2, 30]),
    (r#";dc=(eu|us)(;|$)"#, &[31, 32]),
    (r#"^[^;]*;.*host=web\d+"#, &[32]),
    (r#"(?x) a \. b "#, &[0, 1, 35]),
    (r#"a*?b"#, &[0, 1, 2, 4, 12, 13, 14, 20, 26, 27, 29, 32, 35, 42]),
    (r#"(a+)+$"#, &[18, 21, 22, 24, 33, 40, 41]),
    (r#"[\w.]+\.max$"#, &[35]),
    (r#"[\]a]b"#, &[2, 14]),
    (r#"\$x"#, &[36]),
    (r#"é"#, &[37]),
    (
        r#"\x61"#,
        &[
            0, 1, 2, 4, 5, 6, 9, 10, 12, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 26, 27, 30, 33, 34, 35, 40,
            41, 42,
        ],
    ),
    (r#"[a\-z]-"#, &[19, 26]),
    (r#"(?s)a.b"#, &[0, 1, 4, 14, 26, 27, 35, 42]),
    (r#"^\.?a"#, &[0, 1, 2, 9, 10, 14, 15, 19, 20, 26, 27, 30, 34, 35, 40, 42]),
    (r#"^(?:servers|hosts)\.[^.]+\.cpu\.(?:user|sys)$"#, &[38]),
    (r#"(?=.*cpu)(?=.*user)"#, &[38]),
    (r#"}a"#, &[41]),
    (r#"a\{b\}"#, &[42]),
    (r#"a+?\."#, &[0, 1, 5, 9, 10, 35]),
];

#[test]
fn searches_find_what_python_finds() {
    for (source, want) in FOUND_BY_PYTHON {
        let pattern = Pattern::new(source).unwrap_or_else(|error| panic!("{error}"));
        let found: Vec<usize> = (0..SUBJECTS.len()).filter(|idx| pattern.is_match(SUBJECTS[*idx])).collect();
        assert_eq!(&found, want, "{source}");
        assert_eq!(pattern.exceeded_count(), 0, "{source}");
    }
}

#[test]
fn patterns_that_are_not_valid_are_errors() {
    for source in ["(", "a)", "[a", "*", "a**", "(?P<n", "(?P=n)", "\\", "(?<=a"] {
        let error = Pattern::new(source).expect_err(source);
        assert!(error.contains("is not a valid regular expression"), "{error}");
    }
    let error = Pattern::new(&"a".repeat(PATTERN_BYTES_MAX + 1)).expect_err("too long");
    assert_eq!(error, "pattern is longer than 4096 bytes");
    Pattern::new("(a{1000}){1000}{1000}").expect_err("too large when compiled");
}

#[test]
fn a_search_of_too_many_steps_is_counted_and_finds_nothing() {
    let pattern = Pattern::new(r"^(a|aa|aaa)*\1b(?!c)$").expect("valid");
    let text = "a".repeat(60);
    assert!(!pattern.is_match(&text));
    assert!(pattern.captures(&text).is_none());
    assert_eq!(pattern.exceeded_count(), 2);
}
