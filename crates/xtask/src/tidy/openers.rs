//! Grammar of comments (STYLE §1): sentences open with a noun or a verb, and name their subject again.
//!
//! Invariants: a comment is the run of comment lines of one kind, or the end of a line of code; a phrase is
//! found across the ends of its lines.
//! Not here: single words ([`super::language`]), documents, whatever stands between backticks or in a code
//! block.

use super::finding::{Finding, Rule};
use super::lexer::{self, Line};
use super::text_file::TextFile;

/// First words that make a comment a relative clause or a fragment of a sentence.
const OPENERS: [&str; 30] = [
    "all of",
    "as far",
    "as long",
    "as many",
    "as much",
    "by what",
    "by which",
    "from which",
    "how",
    "in which",
    "it",
    "its",
    "none of",
    "of",
    "so",
    "such",
    "that",
    "their",
    "these",
    "they",
    "those",
    "what",
    "when",
    "where",
    "whether",
    "which",
    "who",
    "whom",
    "whose",
    "why",
];

/// Openers of later sentences, too. "So", "where" and "that" have a good use after another sentence.
const SENTENCE_OPENERS: [&str; 8] = ["how", "of the", "of those", "those", "what", "whether", "who", "whose"];

/// Pronouns in the position of a noun.
const PHRASES: [&str; 13] = [
    "as far as",
    "so many",
    "such a",
    "such an",
    "that of",
    "the one that",
    "the ones that",
    "those of",
    "what are",
    "what has been",
    "what is",
    "what was",
    "what were",
];

/// One word of a comment, in lower case.
struct Word {
    text: String,
    line_idx: usize,
    /// First word of a sentence, a list item or a paragraph, except of the comment.
    opens_sentence: bool,
    /// Punctuation or the end of a paragraph follows.
    ends_phrase: bool,
}

/// Findings of the comments of one Rust source.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    comments(&lexer::split(&file.text)).iter().flat_map(|words| check_comment(&file.path, words)).collect()
}

fn check_comment(path: &str, words: &[Word]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (idx, word) in words.iter().enumerate() {
        let rest = words.get(idx..).unwrap_or_default();
        let mut report = |rule, what| findings.push(Finding::of(rule, path, word.line_idx + 1, what));
        if idx == 0 {
            if let Some(opener) = OPENERS.iter().find(|opener| starts_with(rest, opener)) {
                let what = format!("a comment opens with {opener:?}; open with the noun or the verb");
                report(Rule::CommentOpeners, what);
            }
        } else if word.opens_sentence
            && let Some(opener) = SENTENCE_OPENERS.iter().find(|opener| starts_with(rest, opener))
        {
            let what = format!("a sentence opens with {opener:?}; open with the noun or the verb");
            report(Rule::CommentOpeners, what);
        }
        if let Some(phrase) = PHRASES.iter().find(|phrase| starts_with(rest, phrase)) {
            report(Rule::CommentPhrases, format!("{phrase:?} in a comment; repeat the noun"));
        }
    }
    findings
}

/// Returns true if `words` begin with the words of `phrase`, without punctuation in between.
fn starts_with(words: &[Word], phrase: &str) -> bool {
    let mut is_open = true;
    let mut found = words.iter();
    phrase.split(' ').all(|expected| {
        found.next().is_some_and(|word| {
            let follows = is_open && word.text == expected;
            is_open = !word.ends_phrase;
            follows
        })
    })
}

/// Words of each comment.
fn comments(lines: &[Line]) -> Vec<Vec<Word>> {
    let mut comments: Vec<Vec<Word>> = Vec::new();
    let mut kind_before = None;
    let mut is_fenced = false;
    let mut opens_sentence = false;
    for (line_idx, line) in lines.iter().enumerate() {
        let kind = comment_kind(line);
        if kind.is_none() || kind != kind_before || !line.code.trim().is_empty() {
            comments.push(Vec::new());
            is_fenced = false;
        }
        // The next line cannot continue the comment after a line of code.
        kind_before = kind.filter(|_| line.code.trim().is_empty());
        let Some(words) = comments.last_mut() else { continue };
        let text = line.comment.trim_start_matches(['/', '!']).trim();
        is_fenced ^= text.starts_with("```");
        if is_fenced || text.is_empty() || text.starts_with("```") {
            opens_sentence = true;
            if let Some(last) = words.last_mut() {
                last.ends_phrase = true;
            }
            continue;
        }
        push_words(text, line_idx, &mut opens_sentence, words);
    }
    comments.retain(|words| !words.is_empty());
    comments
}

/// `/` and `!` for documentation, another character for a plain comment; `None` without a comment.
fn comment_kind(line: &Line) -> Option<char> {
    let first = line.comment.chars().next()?;
    Some(if ['/', '!'].contains(&first) { first } else { ' ' })
}

fn push_words(text: &str, line_idx: usize, opens_sentence: &mut bool, words: &mut Vec<Word>) {
    let (is_item, text) = match text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")) {
        Some(rest) => (true, rest),
        None => (text.starts_with(['#', '|']), text),
    };
    *opens_sentence |= is_item;
    let code = |(idx, part)| if idx % 2 == 0 { part } else { "CODE" };
    let outside: String = text.split('`').enumerate().map(code).collect();
    for part in outside.split_whitespace() {
        let letters = part.trim_matches(|c: char| !c.is_alphanumeric());
        if letters.is_empty() {
            continue;
        }
        let end = part.trim_end_matches(['"', ')', '*', '_', ']']);
        let is_short_form = letters.contains('.') || letters == "etc";
        words.push(Word {
            text: letters.to_ascii_lowercase(),
            line_idx,
            opens_sentence: *opens_sentence && letters.starts_with(char::is_uppercase) || is_item,
            ends_phrase: end.ends_with(['.', ',', ';', ':', '!', '?']) || end.len() < part.len(),
        });
        *opens_sentence = end.ends_with(['.', '!', '?']) && !is_short_form;
    }
}
