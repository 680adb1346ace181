//! The two tenants of the world, by the header `X-Scope-OrgID`.

/// Tenant of a part of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tenant {
    Shop,
    Billing,
}

impl Tenant {
    pub(crate) const ALL: [Tenant; 2] = [Tenant::Shop, Tenant::Billing];

    /// Value of `X-Scope-OrgID`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Tenant::Shop => "shop",
            Tenant::Billing => "billing",
        }
    }
}
