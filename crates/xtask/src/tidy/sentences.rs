//! Long cells of tables are sentences: each has a verb of its own, outside of its subordinate clauses.
//!
//! A heuristic over words: `verbs.txt` lists verbs, and the first one after a word such as "which" or "if"
//! belongs to a subordinate clause. A word that may be a noun ("reads", "limits") is one after "the" or "of".
//! Not here: short cells, lists of names, prose outside of tables.

use super::finding::{Finding, Rule};
use super::rendering::cells;
use super::text_file::TextFile;

/// A cell of more characters consists of sentences.
const CELL_CHARS_MAX: usize = 120;
/// A part with fewer words outside of code is a list of names, or an addition to the sentence before it.
const WORDS_MIN: usize = 7;

/// Documents about the words themselves, generated reports, and documents of sources, whose tables list
/// fields of bytes.
const EXEMPT: [&str; 6] =
    ["crates/", "docs/DESIGN.md", "docs/GLOSSARY.md", "docs/STYLE.md", "docs/house/", "fuzz/"];

/// Words that open a clause with a verb of its own.
const SUBORDINATORS: [&str; 13] = [
    "although", "because", "if", "that", "unless", "when", "where", "whether", "which", "while", "who",
    "whom", "whose",
];

/// Words that a noun follows.
const BEFORE_NOUNS: [&str; 18] = [
    "a", "all", "an", "by", "every", "for", "from", "in", "its", "no", "of", "on", "per", "remote", "the",
    "their", "to", "with",
];

/// Words that follow a noun, not a verb, at the start of a sentence.
const AFTER_NOUNS: [&str; 14] =
    ["and", "are", "at", "by", "for", "from", "in", "is", "of", "on", "or", "per", "to", "with"];

/// Verbs in the forms that a main clause of these documents has.
const VERBS: &str = include_str!("verbs.txt");

/// Findings of the tables of one Markdown file.
pub(super) fn check(file: &TextFile) -> Vec<Finding> {
    if EXEMPT.iter().any(|path| file.path.starts_with(path)) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut is_code = false;
    for (idx, line) in file.text.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code || !line.trim_start().starts_with('|') {
            continue;
        }
        for cell in cells(line).filter(|cell| cell.trim().chars().count() > CELL_CHARS_MAX) {
            findings.extend(without_verb(cell).map(|sentence| {
                let what = format!("a sentence without a verb in a long cell: {:?}", shorten(&sentence));
                Finding::of(Rule::CellVerbs, &file.path, idx + 1, what)
            }));
        }
    }
    findings
}

fn shorten(sentence: &str) -> String {
    let start: String = sentence.trim().chars().take(60).collect();
    start.trim_end().to_owned()
}

/// The first sentence of a cell that has no verb.
fn without_verb(cell: &str) -> Option<String> {
    let prose = prose_of(cell);
    let sentences = prose.split_inclusive(['.', ';', '!', '?']).map(str::trim);
    sentences.map(str::to_owned).find(|sentence| !has_verb(sentence))
}

/// Text of a cell with code spans as the word `CODE`, and without the targets of links. A stop within a word
/// ("0.5", "e.g.") ends no sentence.
fn prose_of(cell: &str) -> String {
    let outside = cell.split('`').enumerate().map(|(idx, part)| if idx % 2 == 0 { part } else { "CODE" });
    let text: String = outside.collect();
    let mut prose = String::new();
    for word in text.split_whitespace() {
        let word = match word.split_once("](") {
            Some((name, target)) => format!("{name}{}", target.split_once(')').map_or("", |(_, rest)| rest)),
            None => word.to_owned(),
        };
        let end = word.trim_end_matches([')', '*', '"', '_']).len();
        let body = word.get(..end.saturating_sub(1)).unwrap_or_default();
        let last = word.get(end.saturating_sub(1)..).unwrap_or_default();
        prose += &body.replace(['.', ';', '!', '?'], "");
        prose += last;
        prose.push(' ');
    }
    prose
}

/// Returns true if a main clause has a verb, or the sentence is too short to need one.
fn has_verb(sentence: &str) -> bool {
    let words: Vec<Word> =
        sentence.split_whitespace().map(Word::of).filter(|word| !word.text.is_empty()).collect();
    let prose_count = words.iter().filter(|word| !word.is_code).count();
    if prose_count < WORDS_MIN {
        return true;
    }
    // The next verb belongs to a subordinate clause, which ends with the clause at the latest.
    let mut is_subordinate = false;
    for (idx, word) in words.iter().enumerate() {
        let text_at =
            |idx: Option<usize>| idx.and_then(|idx| words.get(idx)).map_or("", |word| word.text.as_str());
        let before = text_at(idx.checked_sub(1));
        let after = text_at(idx.checked_add(1));
        // Before "of", the word "that" is a pronoun and opens no clause.
        if SUBORDINATORS.contains(&word.text.as_str()) && !(word.text == "that" && after == "of") {
            is_subordinate = true;
        } else if is_verb(&word.text, before, after) {
            if !is_subordinate {
                return true;
            }
            is_subordinate = false;
        }
        is_subordinate &= !word.ends_clause;
    }
    false
}

/// A word of a sentence, in lower case and without punctuation.
struct Word {
    text: String,
    is_code: bool,
    ends_clause: bool,
}

impl Word {
    fn of(text: &str) -> Word {
        let bare = text.trim_matches(|c: char| !c.is_alphanumeric());
        let is_code = bare == "CODE";
        let ends_clause = text.ends_with([',', ':', ')']);
        Word { text: bare.to_lowercase(), is_code, ends_clause }
    }
}

/// Returns true if `word` is a verb between its neighbours. The list marks imperatives, which begin a
/// sentence, and words that are often nouns.
fn is_verb(word: &str, before: &str, after: &str) -> bool {
    let is_after_noun_word = BEFORE_NOUNS.contains(&before);
    VERBS.lines().any(|line| match (line.get(..1), line.get(1..)) {
        (Some("!"), Some(imperative)) => imperative == word && before.is_empty(),
        (Some("?"), Some(verb)) => {
            let is_noun = is_after_noun_word
                || ["and", "or"].contains(&before)
                || before.is_empty() && AFTER_NOUNS.contains(&after);
            verb == word && !is_noun
        }
        _ => line == word && !is_after_noun_word,
    })
}
