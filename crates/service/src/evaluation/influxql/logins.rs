//! Users of InfluxDB as principals, next to users of the access file and of the web configuration file.
//!
//! Invariants: a user name of a file is looked up there alone; the time of a login by password does not
//! depend on which users exist.
//! Not here: headers (`server`), passwords and signatures (`influx`).

use std::sync::Arc;

use chronolith_model::TenantId;
use chronolith_model::databases::{TenantCatalog, User};

use super::databases::Databases;
use crate::access::control::LoginError;
use crate::access::{Principal, Scope, Scopes, Tenants};
use crate::influx::signed_token;
use crate::service::Service;

/// Returns the principal of a user with the right password: of the access file, of the web configuration
/// file, or of InfluxDB's users of `tenant` if these log in. Cost: one password hash, unless the password was
/// right before.
///
/// # Errors
/// [`LoginError::Busy`].
pub async fn find_user(
    service: &Service,
    user: &str,
    password: &str,
    tenant: Option<&TenantId>,
) -> Result<Option<Arc<Principal>>, LoginError> {
    if !service.options.influx.auth_enabled {
        return service.access.verify_password(user, password).await;
    }
    let tenant = tenant_of(service, tenant);
    let catalog = tenant.as_ref().and_then(|tenant| catalog_of(service, tenant));
    let found = catalog.as_deref().and_then(|own| user_of(service, own, user));
    let passwords = &service.influx.passwords;
    let stored = found.map(|user| user.password_hash.as_str());
    let is_known = stored.is_some_and(|stored| passwords.is_known(stored, password));
    let of_file = if is_known { None } else { service.access.verify_password(user, password).await? };
    if of_file.is_some() {
        return Ok(of_file);
    }
    let is_right = is_known || {
        let is_known = || stored.is_some_and(|stored| passwords.is_known(stored, password));
        let owned = (passwords.clone(), stored.map(str::to_owned), password.to_owned());
        let verify = move || {
            let (passwords, stored, password) = owned;
            passwords.verify_user(stored.as_deref(), &password)
        };
        service.access.verify_in_turn(is_known, verify).await?
    };
    Ok(found.zip(tenant).filter(|_| is_right).map(|(user, tenant)| Arc::new(principal_of(user, tenant))))
}

/// Returns the principal of the user of `tenant` whom a token signed with `influx.shared-secret` names;
/// `None` if `token` is of another kind, or tokens of this kind are no logins.
///
/// # Errors
/// [`LoginError::SignedToken`] for a token that is not valid, or whose user InfluxDB's users do not have.
pub fn find_signed_token(
    service: &Service,
    token: &str,
    tenant: Option<&TenantId>,
) -> Result<Option<Arc<Principal>>, LoginError> {
    let options = &service.options.influx;
    let are_logins = options.auth_enabled && !options.shared_secret.is_empty();
    if !are_logins || !signed_token::is_signed_by_secret(token) {
        return Ok(None);
    }
    let now_s = service.env.clock.now_ms() / 1000;
    let name =
        signed_token::user_of(token, &options.shared_secret, now_s).map_err(LoginError::SignedToken)?;
    let tenant = tenant_of(service, tenant).ok_or(LoginError::SignedToken("no tenant is named"))?;
    let catalog = catalog_of(service, &tenant);
    let found = catalog.as_deref().and_then(|own| user_of(service, own, &name));
    let user = found.ok_or(LoginError::SignedToken("the tenant has no user of this name"))?;
    Ok(Some(Arc::new(principal_of(user, tenant))))
}

/// Returns the tenant whose users a request means.
fn tenant_of(service: &Service, named: Option<&TenantId>) -> Option<TenantId> {
    match (named, service.options.multitenancy) {
        (Some(tenant), _) => Some(tenant.clone()),
        (None, false) => Some(TenantId::anonymous()),
        (None, true) => None,
    }
}

fn catalog_of(service: &Service, tenant: &TenantId) -> Option<Arc<TenantCatalog>> {
    Databases::of(service).ok()?.local_catalog(tenant)
}

/// Returns the user of this name, unless one of the files has the name.
fn user_of<'a>(service: &Service, own: &'a TenantCatalog, name: &str) -> Option<&'a User> {
    let is_in_file = service.access.directory().user(name).is_some();
    own.user(name).filter(|_| !is_in_file)
}

/// The principal of a user of InfluxDB: its own tenant, and what its privileges allow.
fn principal_of(user: &User, tenant: TenantId) -> Principal {
    let tenants = Tenants::Only([tenant].into());
    let scopes = [Scope::ReadMetrics, Scope::WriteMetrics, Scope::DeleteMetrics];
    if user.is_admin {
        let admin = [Scope::Federate, Scope::ReadRules, Scope::WriteRules, Scope::Admin, Scope::ReadStatus];
        return Principal::new(&user.name, tenants, Scopes::of(scopes.into_iter().chain(admin)));
    }
    Principal::new(&user.name, tenants, Scopes::of(scopes)).with_user(user.clone())
}
