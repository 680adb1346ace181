//! Splits Rust source into code and comments, line by line, with the content of strings left out.
//! Invariants: a word inside a string or comment is never taken for code. Not here: grammar; macros are not
//! expanded.

/// Code and comments of one line.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// Code, with literals emptied.
    pub(super) code: String,
    /// Text of comments, without their marks.
    pub(super) comment: String,
}

enum State {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text,
    RawText { hash_count: usize },
}

/// One [`Line`] for each line of `text`.
pub(super) fn split(text: &str) -> Vec<Line> {
    let chars: Vec<char> = text.chars().collect();
    let mut lines = vec![Line::default()];
    let mut state = State::Code;
    let mut at = 0;
    while at < chars.len() {
        if chars[at] == '\n' {
            lines.push(Line::default());
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            at += 1;
            continue;
        }
        let line = lines.last_mut().expect("starts with one line");
        at += match &mut state {
            State::Code => step_code(&chars[at..], previous(&chars, at), line, &mut state),
            State::LineComment => {
                line.comment.push(chars[at]);
                1
            }
            State::BlockComment { depth } => match chars[at..] {
                ['/', '*', ..] => {
                    *depth += 1;
                    2
                }
                ['*', '/', ..] => {
                    *depth -= 1;
                    if *depth == 0 {
                        state = State::Code;
                    }
                    2
                }
                _ => {
                    line.comment.push(chars[at]);
                    1
                }
            },
            State::Text => match chars[at] {
                // The end of a line that is continued by a backslash is still counted as a line.
                '\\' if chars.get(at + 1) != Some(&'\n') => 2,
                '"' => {
                    line.code.push('"');
                    state = State::Code;
                    1
                }
                _ => 1,
            },
            State::RawText { hash_count } => {
                let ends = chars[at] == '"' && hashes(&chars[at + 1..]) >= *hash_count;
                let width = if ends { 1 + *hash_count } else { 1 };
                if ends {
                    line.code.push('"');
                    state = State::Code;
                }
                width
            }
        };
    }
    lines
}

fn previous(chars: &[char], at: usize) -> char {
    at.checked_sub(1).map_or(' ', |i| chars[i])
}

/// Consumes one element of code; returns how many characters it took.
fn step_code(rest: &[char], before: char, line: &mut Line, state: &mut State) -> usize {
    let in_word = before.is_alphanumeric() || before == '_';
    match rest {
        ['/', '/', ..] => {
            *state = State::LineComment;
            2
        }
        ['/', '*', ..] => {
            *state = State::BlockComment { depth: 1 };
            2
        }
        ['"', ..] => {
            line.code.push('"');
            *state = State::Text;
            1
        }
        ['r', '"' | '#', ..] if !in_word || before == 'b' => {
            let hash_count = hashes(&rest[1..]);
            if rest.get(1 + hash_count) != Some(&'"') {
                line.code.push('r');
                return 1;
            }
            line.code.push('"');
            *state = State::RawText { hash_count };
            2 + hash_count
        }
        ['\'', '\\', _, tail @ ..] => {
            line.code.push('\'');
            4 + tail.iter().take_while(|c| **c != '\'').count()
        }
        ['\'', _, '\'', ..] => {
            line.code.push('\'');
            3
        }
        [c, ..] => {
            line.code.push(*c);
            1
        }
        [] => 1,
    }
}

fn hashes(chars: &[char]) -> usize {
    chars.iter().take_while(|c| **c == '#').count()
}

/// Words of a line of code: runs of letters, digits and `_`.
pub(super) fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
