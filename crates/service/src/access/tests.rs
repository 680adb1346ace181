//! Decisions of access control, for every scope.

use std::collections::BTreeSet;

use chronolith_model::TenantId;

use super::*;

fn tenant(id: &str) -> TenantId {
    TenantId::new(id).expect("a tenant id")
}

#[track_caller]
fn check(principal: &Principal, scope: Scope, of: Option<&str>, want: Result<(), &str>) {
    let of = of.map(tenant);
    let got = principal.check(scope, of.as_ref()).map_err(|denied| denied.to_string());
    assert_eq!(got.as_ref().copied().map_err(String::as_str), want, "{} {of:?}", scope.name());
}

#[test]
fn the_principal_without_credentials_may_do_everything() {
    let anyone = Principal::unrestricted();
    for scope in Scope::ALL {
        check(&anyone, scope, None, Ok(()));
        check(&anyone, scope, Some("a"), Ok(()));
    }
}

#[test]
fn a_scope_grants_itself_and_public_alone() {
    for given in Scope::ALL {
        let one = Principal::new("one", Tenants::All, Scopes::of([given]));
        for asked in Scope::ALL {
            let want = asked == given || asked == Scope::Public;
            assert_eq!(one.may(asked), want, "{} with {}", asked.name(), given.name());
        }
    }
    let none = Principal::new("none", Tenants::All, Scopes::of([]));
    let granted: Vec<Scope> = Scope::ALL.into_iter().filter(|scope| none.may(*scope)).collect();
    assert_eq!(granted, [Scope::Public]);
}

#[test]
fn only_named_tenants_are_granted() {
    let tenants = Tenants::Only([tenant("a"), tenant("b")].into());
    let reader = Principal::new("reader", tenants, Scopes::of([Scope::ReadMetrics]));
    check(&reader, Scope::ReadMetrics, Some("a"), Ok(()));
    check(&reader, Scope::ReadMetrics, Some("b"), Ok(()));
    check(&reader, Scope::ReadMetrics, None, Ok(()));
    for other in ["c", "A", "ab", "anonymous"] {
        let want = format!("\"reader\" may not name tenant {other:?}");
        check(&reader, Scope::ReadMetrics, Some(other), Err(&want));
    }
    let want = "\"reader\" may not do this: scope metrics:write is missing";
    for of in [None, Some("a"), Some("c")] {
        check(&reader, Scope::WriteMetrics, of, Err(want));
    }
    let nobody = Principal::new("nobody", Tenants::Only(BTreeSet::new()), Scopes::all());
    check(&nobody, Scope::Admin, None, Ok(()));
    check(&nobody, Scope::Admin, Some("a"), Err("\"nobody\" may not name tenant \"a\""));
}

#[test]
fn names_of_scopes_differ() {
    let names: BTreeSet<&str> = Scope::ALL.map(Scope::name).into();
    assert_eq!(names.len(), Scope::ALL.len());
}
