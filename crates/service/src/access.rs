//! Access control: who sends a call, which tenants it names, what it may do, and which series it sees.
//!
//! Invariants: a scope or a tenant that a principal was not given is refused; nothing is granted by another
//! scope. Each read for a client goes through [`Identity::view`], so no answer has a series outside of its
//! principal's matchers. The principal of a server without credentials has every scope for every tenant.
//! Not here: how a request carries credentials, statuses and texts of refusals (`server`).

pub mod control;
pub mod directory;
pub mod file;
mod identity;
pub mod jwt;
pub mod passwords;
mod principal;
pub(crate) mod right_passwords;
mod scope;
mod union;
mod view;

#[cfg(test)]
mod tests;

pub use identity::{Identity, SeveralTenants};
pub use principal::{Denied, Principal, Tenants};
pub use scope::{Scope, Scopes};
pub(crate) use union::labels_of;
pub use view::SeriesFilter;
