//! Tenants that a request names: `X-Scope-OrgID` with multi-tenancy, `anonymous` without.
//! Not here: which of them its principal may name (`access`).

use axum::http::HeaderMap;
use chronolith_model::TenantId;
use chronolith_model::tenant::TenantIdError;
use chronolith_service::access::SeveralTenants;

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
    /// The header names several tenants where one is needed.
    #[error("{0}")]
    Several(#[from] SeveralTenants),
}

/// Between the names of several tenants.
const SEPARATOR: char = '|';

/// Returns the tenants of a request with these headers, each of them valid; none if it names none.
///
/// # Errors
/// [`TenantError`], but not [`TenantError::Missing`].
pub(crate) fn named_tenants(multitenancy: bool, headers: &HeaderMap) -> Result<Vec<TenantId>, TenantError> {
    if !multitenancy {
        return Ok(vec![TenantId::anonymous()]);
    }
    let mut values = headers.get_all(TENANT_HEADER).iter();
    let Some(value) = values.next() else { return Ok(Vec::new()) };
    if values.next().is_some() {
        return Err(TenantError::Repeated);
    }
    let text = value.to_str().map_err(|_| TenantError::NotText)?;
    if text.is_empty() {
        return Ok(Vec::new());
    }
    text.split(SEPARATOR).map(|name| Ok(TenantId::new(name)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronolith_model::StoreId;

    /// The only tenant of a request with these headers.
    fn tenant_of(multitenancy: bool, headers: &HeaderMap) -> Result<TenantId, TenantError> {
        let mut tenants = named_tenants(multitenancy, headers)?;
        assert!(tenants.len() < 2, "{tenants:?}");
        tenants.pop().ok_or(TenantError::Missing)
    }

    #[test]
    fn several_tenants_are_separated_by_bars() {
        let mut headers = HeaderMap::new();
        headers.insert(TENANT_HEADER, "b|a".parse().unwrap());
        let names = named_tenants(true, &headers).unwrap();
        assert_eq!(names.iter().map(TenantId::as_str).collect::<Vec<_>>(), ["b", "a"]);
        for wrong in ["|", "a|", "|a", "a||b", "a|../b"] {
            headers.insert(TENANT_HEADER, wrong.parse().unwrap());
            assert!(matches!(named_tenants(true, &headers), Err(TenantError::Invalid(_))), "{wrong}");
        }
    }

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
