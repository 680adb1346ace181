//! Limits of an expansion, so that no template takes a server's time or memory.

use std::fmt;

/// Bytes of text per step of a function that reads or makes it.
const BYTES_PER_STEP: usize = 64;

/// Limits of one expansion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the output, and of each text that a function makes.
    pub output_bytes: usize,
    /// Steps: one per action, per call of a function, per iteration of a loop, and per 64 bytes of text that
    /// a function reads or makes.
    pub steps: u64,
    /// Levels of templates that call templates, control structures and parentheses.
    pub depth: usize,
    /// Calls of `query`.
    pub queries: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { output_bytes: 1 << 20, steps: 200_000, depth: 100, queries: 100 }
    }
}

/// Limits by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKind {
    /// [`Limits::output_bytes`]
    OutputBytes,
    /// [`Limits::steps`]
    Steps,
    /// [`Limits::depth`], or the fixed limit of the parser.
    Depth,
    /// [`Limits::queries`]
    Queries,
}

/// A limit that was exceeded, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exceeded {
    pub(super) kind: LimitKind,
    pub(super) limit: u64,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = self.limit;
        match self.kind {
            LimitKind::OutputBytes => write!(f, "text exceeds the limit of {limit} bytes"),
            LimitKind::Steps => write!(f, "expansion exceeds the limit of {limit} steps"),
            LimitKind::Depth => write!(f, "nesting exceeds the limit of {limit} levels"),
            LimitKind::Queries => write!(f, "expansion exceeds the limit of {limit} queries"),
        }
    }
}

/// Use of the limits by one expansion.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    steps: u64,
    queries: usize,
}

impl Meter {
    pub(super) fn new(limits: Limits) -> Meter {
        Meter { limits, steps: 0, queries: 0 }
    }

    pub(super) fn output_bytes_max(&self) -> usize {
        self.limits.output_bytes
    }

    pub(super) fn add_steps(&mut self, steps: u64) -> Result<(), Exceeded> {
        self.steps = self.steps.saturating_add(steps);
        let limit = self.limits.steps;
        if self.steps > limit { Err(Exceeded { kind: LimitKind::Steps, limit }) } else { Ok(()) }
    }

    /// Counts text that is read or made.
    pub(super) fn add_text(&mut self, len: usize) -> Result<(), Exceeded> {
        self.add_steps((len / BYTES_PER_STEP) as u64)
    }

    pub(super) fn add_query(&mut self) -> Result<(), Exceeded> {
        self.queries += 1;
        let limit = self.limits.queries;
        let exceeded = Exceeded { kind: LimitKind::Queries, limit: limit as u64 };
        if self.queries > limit { Err(exceeded) } else { Ok(()) }
    }

    pub(super) fn check_depth(&self, depth: usize) -> Result<(), Exceeded> {
        let limit = self.limits.depth;
        if depth > limit { Err(Exceeded { kind: LimitKind::Depth, limit: limit as u64 }) } else { Ok(()) }
    }

    pub(super) fn check_text(&self, len: usize) -> Result<(), Exceeded> {
        if len > self.limits.output_bytes { Err(self.too_long()) } else { Ok(()) }
    }

    pub(super) fn too_long(&self) -> Exceeded {
        Exceeded { kind: LimitKind::OutputBytes, limit: self.limits.output_bytes as u64 }
    }
}
