//! Entries of access files, good and bad.

use chronolith_ingest::added_labels::AddedLabels;
use chronolith_model::TenantId;

use super::*;

const TOKEN: &str = "clt_secret";

fn hash_text(token: &str) -> String {
    crate::access::directory::hash_of_token(token).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_entry_has_credentials_tenants_scopes_matchers_labels_and_an_end() {
    let text = format!(
        "principals:\n- name: grafana\n  token_sha256: {}\n  tenants: [a, b]\n  scopes: [read]\n  \
         matchers: '{{team=\"x\"}}'\n  expires: 2027-01-31T00:00:00Z\n- name: agent\n  user: prom\n  \
         password_bcrypt: $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG\n  tenants: '*'\n  scopes: [write, metrics]\n  \
         labels: {{cluster: eu}}\n",
        hash_text(TOKEN)
    );
    let directory = parse(&text, true).expect("valid");
    assert_eq!(directory.principal_count(), 2);
    let grafana = directory.find_token(TOKEN).expect("known");
    assert!(directory.find_token("clt_other").is_none());
    assert!(
        grafana.may(Scope::ReadMetrics) && grafana.may(Scope::Federate) && !grafana.may(Scope::WriteMetrics)
    );
    assert!(grafana.may_name(&TenantId::new("b").expect("valid")));
    assert!(!grafana.may_name(&TenantId::new("c").expect("valid")));
    assert_eq!(&**grafana.filter().expect("a filter").text(), "{team=\"x\"}");
    assert!(!grafana.is_expired(1_801_353_599_999) && grafana.is_expired(1_801_353_600_000));
    let agent = &directory.user("prom").expect("known").principal;
    assert!(agent.may(Scope::ReadStatus) && agent.may_name(&TenantId::anonymous()));
    assert_eq!(*agent.added_labels(), AddedLabels::new([("cluster", "eu")]));
}

#[track_caller]
fn check(entry: &str, want: &str) {
    let error = parse(&format!("principals:\n- name: a\n{entry}"), true).err().expect("refused");
    assert!(error.contains(want), "{error}");
    assert!(!error.contains(&hash_text(TOKEN)), "names a credential: {error}");
}

#[test]
fn a_wrong_entry_is_refused_by_name_and_line() {
    let token = format!("  token_sha256: {}\n", hash_text(TOKEN));
    check("  scopes: [read]\n  tenants: '*'\n", "line 2, column 3: principal \"a\": no way to log in");
    check(&format!("{token}  tenants: '*'\n"), "scopes");
    check(&format!("{token}  scopes: [read]\n"), "`tenants` is missing");
    check(&format!("{token}  scopes: [reed]\n  tenants: a\n"), "\"reed\" is none of read, write");
    check(&format!("{token}  scopes: [public]\n  tenants: a\n"), "\"public\" is none of");
    check(&format!("{token}  scopes: []\n  tenants: a\n"), "`scopes` has no scope");
    check(&format!("{token}  scopes: [read]\n  tenants: [a/b]\n"), "`tenants`: \"a/b\"");
    check(&format!("{token}  scopes: [read]\n  tenants: a\n  matchers: '{{a='\n"), "`matchers`");
    check(&format!("{token}  scopes: [read]\n  tenants: a\n  expires: tomorrow\n"), "`expires`");
    check(&format!("{token}  scopes: [read]\n  tenants: a\n  labels: {{__name__: x}}\n"), "`labels`");
    check(&format!("{token}  scopes: [read]\n  tenants: a\n  user: u\n"), "`user` without");
    check(&format!("{token}  scopes: [read]\n  tenants: a\n  role: x\n"), "role");
    check(&format!("{token}  role: x\n"), "role");
    let user = "  user: u\n  password_bcrypt: secret\n  scopes: [read]\n  tenants: a\n";
    check(user, "`password_bcrypt`: expected a bcrypt hash");
    let certificate = "  certificate: {sans: [agent]}\n  scopes: [read]\n  tenants: a\n";
    check(
        &format!("{certificate}- name: b\n{certificate}"),
        "certificate name \"agent\" of \"b\" is one of \"a\" as well",
    );
    check("  certificate: {sans: []}\n  scopes: [read]\n  tenants: a\n", "no way to log in");
    check("  certificate: {cn: agent}\n  scopes: [read]\n  tenants: a\n", "cn");
    check("  token_sha256: abc\n  scopes: [read]\n  tenants: a\n", "64 hexadecimal digits");
    let twice =
        format!("{token}  scopes: [read]\n  tenants: a\n- name: b\n{token}  scopes: [read]\n  tenants: a\n");
    check(&twice, "line 6, column 3: principal \"b\": a token of \"b\" is one of \"a\" as well");
}

#[test]
fn a_wrong_issuer_or_rule_of_claims_is_refused_by_name_and_line() {
    let check = |issuers: &str, jwt: &str, want: &str| {
        let text = format!("jwt:\n{issuers}principals:\n- name: a\n  scopes: [read]\n  jwt: {jwt}\n");
        let error = parse(&text, false).err().expect("refused");
        assert!(error.contains(want), "{error}");
    };
    let issuer = "- {issuer: i, audience: a, jwks_file: f}\n";
    let rule = "{issuer: i, claims: {sub: x}}";
    assert!(parse(&format!("jwt:\n{issuer}principals: []\n"), false).is_ok());
    check(&issuer.repeat(2), rule, "line 3, column 3: jwt: `issuer`: \"i\" is empty or listed twice");
    check("- {issuer: i, audience: [], jwks_file: f}\n", rule, "`audience` is empty");
    check("- {issuer: i, audience: a, jwks_file: ''}\n", rule, "`jwks_file` is empty");
    check(
        "- {issuer: i, audience: a}\n",
        rule,
        "`issuer`: \"i\": without `jwks_file` it is the https:// URL",
    );
    let discovered = "- {issuer: 'https://login.example.com', audience: a}\n";
    assert!(parse(&format!("jwt:\n{discovered}principals: []\n"), false).is_ok());
    check("- {issuer: i, audience: a, jwks_file: f, leeway: 11m}\n", rule, "`leeway`: \"11m\"");
    check("- {issuer: i, audience: a, jwks_file: f, leeway: soon}\n", rule, "`leeway`: \"soon\"");
    check(issuer, "{issuer: j, claims: {sub: x}}", "issuer \"j\" is not in the section `jwt`");
    check(issuer, "{issuer: i, claims: {}}", "`claims` names no claim");
    check(issuer, "{issuer: i, claims: {sub: []}}", "`claims` names no claim");
}

/// Covers a start that failed on a JWKS file after `--check-config` had called the configuration valid.
#[test]
fn a_check_reads_the_jwks_files_that_an_access_file_names() {
    let (env, _, _) = chronolith_base::Env::fake(0, 1);
    env.disk.create_dir_all(Path::new("conf")).expect("a folder");
    let write = |path: &str, text: &str| {
        env.disk.write_atomic(Path::new(path), text.as_bytes()).expect("written");
    };
    write("conf/access.yml", "jwt:\n- {issuer: i, audience: a, jwks_file: keys.json}\nprincipals: []\n");
    let check = || check_access_file(Path::new("conf/access.yml"), false, &*env.disk);
    let missing = check().expect_err("no file of keys");
    assert!(missing.starts_with("access file conf/access.yml: JWKS file conf/keys.json: "), "{missing}");
    write("conf/keys.json", "{}");
    let broken = check().expect_err("no key set");
    assert!(broken.contains("JWKS file conf/keys.json: no JWK set"), "{broken}");
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    write("conf/keys.json", &format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}]}}"#));
    assert_eq!(check(), Ok(()));
}

#[test]
fn without_multitenancy_the_only_tenant_needs_no_name() {
    let text = format!("principals:\n- name: a\n  token_sha256: {}\n  scopes: [read]\n", hash_text(TOKEN));
    let directory = parse(&text, false).expect("valid");
    assert!(directory.find_token(TOKEN).expect("known").may_name(&TenantId::anonymous()));
}

/// A user of the web file with the same name does not get around the scopes of the access file.
#[test]
fn the_access_file_counts_for_a_name_that_the_web_file_has_too() {
    let hash =
        |password: &str| BcryptHash::parse(&bcrypt::hash(password, 4).expect("hashing")).expect("a hash");
    let file = "principals:\n- name: reader\n  user: alice\n  password_bcrypt: ";
    let text = format!("{file}{}\n  scopes: [read]\n", bcrypt::hash("own", 4).expect("hashing"));
    let mut directory = parse(&text, false).expect("valid");
    directory.add_unrestricted("alice", hash("other"));
    directory.add_unrestricted("bob", hash("other"));
    let alice = &directory.user("alice").expect("known").principal;
    assert!(alice.name() == "reader" && !alice.may(Scope::Admin));
    let bob = &directory.user("bob").expect("known").principal;
    assert!(Scope::ALL.iter().all(|scope| bob.may(*scope)));
    assert!(bob.may_name(&TenantId::new("any").expect("valid")));
    assert_eq!(directory.principal_count(), 2);
}
