//! Tenant of a request: `X-Scope-OrgID` with multi-tenancy, `anonymous` without.
//! Not here: authentication; the proxy in front of the server sets the header.

use axum::http::HeaderMap;
use chronolith_model::TenantId;
use chronolith_model::tenant::TenantIdError;

/// Header that names the tenant, as Mimir, Loki and Cortex have it.
pub(crate) const TENANT_HEADER: &str = "x-scope-orgid";

/// Reason why a request has no tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TenantError {
    /// The header is not there.
    #[error("no org id")]
    Missing,
    /// The header is there more than once: proxies and clients may disagree about which one counts.
    #[error("more than one X-Scope-OrgID header")]
    Repeated,
    /// The header cannot be a tenant.
    #[error("invalid X-Scope-OrgID: {0}")]
    Invalid(#[from] TenantIdError),
    /// The header is not text.
    #[error("invalid X-Scope-OrgID: not visible ASCII")]
    NotText,
}

/// The tenant of a request with these headers.
pub(crate) fn tenant_of(multitenancy: bool, headers: &HeaderMap) -> Result<TenantId, TenantError> {
    if !multitenancy {
        return Ok(TenantId::anonymous());
    }
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let value = values.next().ok_or(TenantError::Missing)?;
    if values.next().is_some() {
        return Err(TenantError::Repeated);
    }
    let text = value.to_str().map_err(|_| TenantError::NotText)?;
    if text.is_empty() {
        return Err(TenantError::Missing);
    }
    Ok(TenantId::new(text)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_model::StoreId;

    #[test]
    fn the_header_counts_only_with_multitenancy() {
        let mut headers = HeaderMap::new();
        assert_eq!(tenant_of(false, &headers).unwrap().as_str(), "anonymous");
        assert_eq!(tenant_of(true, &headers), Err(TenantError::Missing));
        headers.insert(TENANT_HEADER, "team-a".parse().unwrap());
        assert_eq!(tenant_of(true, &headers).unwrap().as_str(), "team-a");
        assert_eq!(tenant_of(false, &headers).unwrap().as_str(), "anonymous");
        headers.insert(TENANT_HEADER, "a/b".parse().unwrap());
        assert!(matches!(tenant_of(true, &headers), Err(TenantError::Invalid(_))));
    }

    /// Names of stores of databases and of Graphite clients are names of directories, not of tenants.
    #[test]
    fn no_header_names_a_store() {
        let numbers =
            ["0000000000000000", "0000000000000001", "000000000000012b", "ffffffffffffffff", "", "x"];
        let names = numbers.iter().flat_map(|number| [format!("__ns-{number}"), format!("__ms-{number}")]);
        for name in names.chain(["__".to_owned(), "__anonymous".to_owned()]) {
            let mut headers = HeaderMap::new();
            headers.insert(TENANT_HEADER, name.parse().unwrap());
            let error = tenant_of(true, &headers).unwrap_err();
            let text = "invalid X-Scope-OrgID: tenant id must not be \".\" or \"..\" or start with \"__\"";
            assert_eq!(error.to_string(), text, "{name}");
        }
        for name in ["_ns-0000000000000000", "ns-0000000000000000", "a__ns-0000000000000000"] {
            let mut headers = HeaderMap::new();
            headers.insert(TENANT_HEADER, name.parse().unwrap());
            let store = StoreId::from(tenant_of(true, &headers).unwrap());
            assert!(store.is_default(), "{name}");
        }
    }

    /// The first of two headers won: a client that could add one chose the tenant.
    #[test]
    fn two_headers_are_refused() {
        let mut headers = HeaderMap::new();
        for tenant in ["team-a", "team-a"] {
            headers.append(TENANT_HEADER, tenant.parse().unwrap());
        }
        assert_eq!(tenant_of(true, &headers), Err(TenantError::Repeated));
        assert!(tenant_of(false, &headers).is_ok());
    }
}
