//! Patterns of paths, as Go's `filepath.Glob` expands them: `*`, `?`, classes and escapes.
//!
//! Invariants: a pattern that no file matches has no results, and neither has a directory that cannot be
//! read; names are in order within each directory.
//! Not here: reading of the files (the caller).

use std::path::{Path, PathBuf};

use chronolith_base::Disk;

/// A pattern with a class that is not closed, or with a backslash at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadPattern;

/// Cleans a path lexically, as Go's `filepath.Join` does: no `.`, no `..` after a name.
#[must_use]
pub fn clean(path: &Path) -> PathBuf {
    use std::path::Component;
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            Component::ParentDir if out.has_root() => {}
            other => out.push(other),
        }
    }
    out
}

/// Paths that a pattern matches; each part of the path may be a pattern. Cost: a listing of each directory.
///
/// # Errors
/// [`BadPattern`].
pub fn expand(disk: &dyn Disk, pattern: &str) -> Result<Vec<String>, BadPattern> {
    matches(pattern, "")?;
    if !is_pattern(pattern) {
        let is_there = !pattern.is_empty() && disk.exists(Path::new(pattern));
        return Ok(if is_there { vec![pattern.to_owned()] } else { Vec::new() });
    }
    let (dir, name) = match pattern.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((dir, name)) => (dir, name),
        None => (".", pattern),
    };
    let dirs = if is_pattern(dir) { expand(disk, dir)? } else { vec![dir.to_owned()] };
    let mut found = Vec::new();
    for dir in dirs {
        let Ok(entries) = disk.list(Path::new(&dir)) else { continue };
        let mut names = Vec::new();
        for entry in entries {
            if matches(name, &entry.name)? {
                names.push(entry.name);
            }
        }
        names.sort_unstable();
        let prefix = match (dir.as_str(), pattern.contains('/')) {
            (".", false) => String::new(),
            ("/", _) => "/".to_owned(),
            _ => format!("{dir}/"),
        };
        found.extend(names.iter().map(|name| format!("{prefix}{name}")));
    }
    Ok(found)
}

/// Returns true if a text has a character with a meaning in patterns.
#[must_use]
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

/// Returns true if `name`, which has no slash, matches. Cost: the product of both lengths.
///
/// # Errors
/// [`BadPattern`], whatever the name.
pub fn matches(pattern: &str, name: &str) -> Result<bool, BadPattern> {
    let tokens = parse(pattern)?;
    let name: Vec<char> = name.chars().collect();
    // `reached[i]`: the tokens so far match the first `i` characters.
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for token in &tokens {
        let mut next = vec![false; name.len() + 1];
        match token {
            Token::Any => {
                let mut is_reached = false;
                for (next, reached) in next.iter_mut().zip(&reached) {
                    is_reached |= *reached;
                    *next = is_reached;
                }
            }
            Token::One(class) => {
                for (idx, c) in name.iter().enumerate() {
                    next[idx + 1] = reached[idx] && class.contains(*c);
                }
            }
        }
        reached = next;
    }
    Ok(reached.last().copied().unwrap_or(false))
}

/// Part of a pattern.
enum Token {
    /// Any number of characters (`*`).
    Any,
    /// One character of a class.
    One(Class),
}

/// Set of characters.
struct Class {
    is_negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    fn of(c: char) -> Class {
        Class { is_negated: false, ranges: vec![(c, c)] }
    }

    fn contains(&self, c: char) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != self.is_negated
    }
}

fn parse(pattern: &str) -> Result<Vec<Token>, BadPattern> {
    let mut tokens = Vec::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' => Token::Any,
            '?' => Token::One(Class { is_negated: true, ranges: Vec::new() }),
            '[' => Token::One(parse_class(&mut chars)?),
            '\\' => Token::One(Class::of(chars.next().ok_or(BadPattern)?)),
            c => Token::One(Class::of(c)),
        });
    }
    Ok(tokens)
}

/// The rest of a class after `[`.
fn parse_class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Class, BadPattern> {
    let is_negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    while ranges.is_empty() || chars.next_if_eq(&']').is_none() {
        let low = class_char(chars)?;
        let high = if chars.next_if_eq(&'-').is_some() { class_char(chars)? } else { low };
        ranges.push((low, high));
    }
    Ok(Class { is_negated, ranges })
}

fn class_char(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<char, BadPattern> {
    match chars.next() {
        None | Some('-' | ']') => Err(BadPattern),
        Some('\\') => chars.next().ok_or(BadPattern),
        Some(c) => Ok(c),
    }
}

#[cfg(test)]
mod tests {
    use chronolith_base::Env;

    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, name, want) in [
            ("*.yml", "a.yml", Ok(true)),
            ("*.yml", "a.yaml", Ok(false)),
            ("a.yml", "a.yml", Ok(true)),
            ("a.yml", "ab.yml", Ok(false)),
            ("*.yml", ".yml", Ok(true)),
            ("a*c*.yml", "abcd.yml", Ok(true)),
            ("[^a-c]x.yml", "dx.yml", Ok(true)),
            ("[a.yml", "a.yml", Err(BadPattern)),
            ("*", "", Ok(true)),
            ("a?c", "abc", Ok(true)),
            ("a?c", "ac", Ok(false)),
            ("[a-c]x", "bx", Ok(true)),
            ("[^a-c]x", "bx", Ok(false)),
            ("[ab][^c]*d", "bxyd", Ok(true)),
            ("a\\*", "a*", Ok(true)),
            ("a\\*", "ab", Ok(false)),
            ("[\\]]", "]", Ok(true)),
            ("*a*b*c", "xaybzc", Ok(true)),
            ("[", "a", Err(BadPattern)),
            ("[]a]", "]", Err(BadPattern)),
            ("[a-", "a", Err(BadPattern)),
            ("a\\", "a", Err(BadPattern)),
            ("", "", Ok(true)),
            ("é?", "éü", Ok(true)),
        ] {
            assert_eq!(matches(pattern, name), want, "{pattern} {name}");
        }
        // No backtracking: this ends at once.
        assert_eq!(matches(&"*a".repeat(100), &"a".repeat(99)), Ok(false));
    }

    #[test]
    fn directories_may_be_patterns_too() {
        let (env, ..) = Env::fake(0, 1);
        for path in ["/r/a/2.yml", "/r/a/1.yml", "/r/b/1.yml", "/r/b/1.json"] {
            env.disk.create_dir_all(Path::new(path).parent().expect("a directory")).expect("in memory");
            env.disk.write_atomic(Path::new(path), b"x").expect("in memory");
        }
        let expanded = |pattern: &str| expand(&*env.disk, pattern);
        assert_eq!(
            expanded("/r/*/*.yml"),
            Ok(["/r/a/1.yml", "/r/a/2.yml", "/r/b/1.yml"].map(str::to_owned).to_vec())
        );
        assert_eq!(expanded("/r/b/1.yml"), Ok(vec!["/r/b/1.yml".to_owned()]));
        assert_eq!(expanded("/r/c/*"), Ok(Vec::new()));
        assert_eq!(expanded(""), Ok(Vec::new()));
        assert_eq!(expanded("/r/[/x"), Err(BadPattern));
    }

    #[test]
    fn paths_are_cleaned_without_the_disk() {
        for (path, want) in [
            ("tests/../rules.yml", "rules.yml"),
            ("./a/./b", "a/b"),
            ("../a", "../a"),
            ("a/../../b", "../b"),
            ("/../a", "/a"),
        ] {
            assert_eq!(clean(Path::new(path)), Path::new(want), "{path}");
        }
    }
}
