//! Privileges on databases.
//!
//! Not here: those that a statement needs (`required`).

/// Privilege on a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Privilege {
    /// No privilege.
    None,
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// ALL PRIVILEGES.
    All,
}

impl Privilege {
    /// Text in statements and results.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Privilege::None => "NO PRIVILEGES",
            Privilege::Read => "READ",
            Privilege::Write => "WRITE",
            Privilege::All => "ALL PRIVILEGES",
        }
    }
}
