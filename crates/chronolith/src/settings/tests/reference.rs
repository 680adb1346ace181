//! docs/reference/settings.md is what the table of settings says.
#![expect(clippy::disallowed_methods, reason = "the page is in the repository, not below a data directory")]

use super::super::declaration::{Scope, Setting};
use super::super::table::{GROUPS, all_settings};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/settings.md");

const HEAD: &str = "\
# Settings

Each setting can be given in three ways; the first one that is given counts:

1. a flag of `chronolith serve`: `--query.timeout 1m`;
2. an environment variable, in capitals with underscores: `CHRONOLITH_QUERY_TIMEOUT=1m`;
3. a key of the YAML file that `--config` or `CHRONOLITH_CONFIG` names: `query.timeout: 1m`, or nested: `query: {timeout: 1m}`.

A dot may be written as a dash (`--query-timeout`). An unknown flag or key and a bad value end the start with file and line; an
unknown variable is a warning. `chronolith serve --check-config` checks without a start.

A DURATION is `15d`, `1h30m` or `100ms`; a SIZE is `64MiB`, `1GB` or `4096`.

This page is made from the table in `crates/chronolith/src/settings/table.rs`; a test compares them
(`UPDATE_REFERENCE=1 cargo test -p chronolith reference` writes it).
";

const TENANTS: &str = "
## Limits of tenants

The setting counts for each tenant. The file may have another value for one, below `tenants:`; a reload (SIGHUP, or
`POST /-/reload` with `--web.enable-lifecycle`) changes these settings in a running server, and no others.

```yaml
series-limit: 1000000
tenants:
  team-a:
    series-limit: 5000000
    retention: 90d
```

";

fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("\n## Server\n");
    for group in &GROUPS {
        let of_server = || group.settings.iter().filter(|setting| matches!(setting.scope, Scope::Server(_)));
        if of_server().next().is_some() {
            page.push_str(&format!("\n### {}\n\n", group.title));
            push_table(&mut page, of_server());
        }
    }
    page.push_str(TENANTS);
    push_table(&mut page, all_settings().filter(|setting| matches!(setting.scope, Scope::Tenant(_))));
    page
}

fn push_table(page: &mut String, settings: impl Iterator<Item = &'static Setting>) {
    page.push_str("| setting | value | default | meaning |\n| --- | --- | --- | --- |\n");
    for setting in settings {
        let default = Some(setting.default).filter(|text| !text.is_empty()).map(|text| format!("`{text}`"));
        let value = setting.form.name().replace('|', " or ");
        let default = default.unwrap_or_default();
        page.push_str(&format!("| `{}` | {value} | {default} | {} |\n", setting.name, setting.help));
    }
}

#[test]
fn the_reference_lists_every_setting() {
    let want = page();
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(PAGE, &want).expect("docs/reference is there");
    }
    let found = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(found == want, "docs/reference/settings.md is not what the table says: see its head");
}
