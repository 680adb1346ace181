//! A broken rule: position, text and, if exceptions may be recorded for the rule, which one it is.

use std::fmt;

/// Rules with recorded exceptions ([`super::exceptions`]): the sources broke them before there was a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    TypeFiles,
    StructFields,
    TupleParameters,
    TupleLets,
    ImportCycles,
    CommentColumns,
    PublicDocs,
    ShortDocs,
    Words,
    CellVerbs,
    CommentOpeners,
    CommentPhrases,
    FunctionDocs,
}

impl Rule {
    pub(super) const ALL: [Rule; 13] = [
        Rule::TypeFiles,
        Rule::StructFields,
        Rule::TupleParameters,
        Rule::TupleLets,
        Rule::ImportCycles,
        Rule::CommentColumns,
        Rule::PublicDocs,
        Rule::ShortDocs,
        Rule::Words,
        Rule::CellVerbs,
        Rule::CommentOpeners,
        Rule::CommentPhrases,
        Rule::FunctionDocs,
    ];

    /// Name in the list of exceptions and on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Rule::TypeFiles => "type-files",
            Rule::StructFields => "struct-fields",
            Rule::TupleParameters => "tuple-parameters",
            Rule::TupleLets => "tuple-lets",
            Rule::ImportCycles => "import-cycles",
            Rule::CommentColumns => "comment-columns",
            Rule::PublicDocs => "public-docs",
            Rule::ShortDocs => "short-docs",
            Rule::Words => "words",
            Rule::CellVerbs => "cell-verbs",
            Rule::CommentOpeners => "comment-openers",
            Rule::CommentPhrases => "comment-phrases",
            Rule::FunctionDocs => "function-docs",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Rule> {
        Rule::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    path: String,
    /// Counted from 1; 0 if the finding is about the whole file.
    line: usize,
    what: String,
    rule: Option<Rule>,
}

impl Finding {
    /// A finding that nothing excuses.
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into(), rule: None }
    }

    /// A finding of a rule with recorded exceptions.
    pub(super) fn of(rule: Rule, path: &str, line: usize, what: impl Into<String>) -> Finding {
        Finding { rule: Some(rule), ..Finding::new(path, line, what) }
    }

    pub(super) fn rule(&self) -> Option<Rule> {
        self.rule
    }

    /// Folder whose findings are counted together: a crate, a folder of the root, or a file of the root.
    pub(super) fn folder(&self) -> &str {
        let crate_name = self.path.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
        let length = match crate_name {
            Some(name) => "crates/".len() + name.len(),
            None => self.path.find('/').unwrap_or(self.path.len()),
        };
        &self.path[..length]
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.what),
            line => write!(f, "{}:{line}: {}", self.path, self.what),
        }
    }
}
