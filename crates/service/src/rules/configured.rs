//! Rule groups that clients configure: by tenant and namespace, each namespace a rule file on disk.
//!
//! Invariants: a change is durable before it returns and before its groups are scheduled; after a crash a
//! namespace is as before or after the change. A file that cannot be read is left as it is, and its namespace
//! refuses new groups until it is deleted.
//! Not here: schedule and rounds (`engine`), HTTP and YAML of answers (`server`).

mod error;
mod files;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use chronolith_base::Env;
use chronolith_model::{RuleLimits, TenantId};
use chronolith_promql::parser::ParserOptions;
use chronolith_rules::file::{
    FileLimits, FileOptions, GroupSource, SourcedGroup, UnknownFields, file_yaml, parse_group,
    parse_with_sources,
};
use chronolith_rules::group::{Group, GroupDefaults, Origin};
use chronolith_rules::prometheus_templates::PrometheusTemplates;
use chronolith_rules::schedule::NS_PER_MS;
use parking_lot::{Mutex, RwLock};

pub use self::error::ConfigureError;
use self::files::NamespaceFiles;
use super::engine::RuleEngine;
use crate::counter::Counter;

/// Bytes of one group as a client sends it.
pub const CONFIGURED_GROUP_BYTES_MAX: usize = 1 << 20;
/// Bytes of all files of one tenant.
pub const CONFIGURED_BYTES_MAX: usize = 16 << 20;

/// Settings of the server for groups that clients configure.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfiguredOptions {
    /// Experimental parts of PromQL that are enabled.
    pub parser: ParserOptions,
    /// Fields that a group does not set.
    pub defaults: GroupDefaults,
    /// Bytes of all files of one tenant.
    pub bytes_max: usize,
}

/// A group and its texts.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfiguredGroup {
    /// Texts of the group as its client sent them.
    pub source: GroupSource,
    /// The group that is evaluated; its file is the namespace.
    pub group: Group,
}

/// Content of a namespace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Namespace {
    /// In the order of their creation; empty only if the file is damaged.
    groups: Vec<ConfiguredGroup>,
    file_bytes: usize,
    /// Reason why the file cannot be read.
    damage: Option<String>,
}

impl Namespace {
    /// Groups in the order of their creation; none of a damaged file.
    #[must_use]
    pub fn groups(&self) -> &[ConfiguredGroup] {
        &self.groups
    }

    /// The group of this name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&ConfiguredGroup> {
        self.groups.iter().find(|one| one.source.name == name)
    }
}

/// Namespaces of a tenant by name.
pub type Namespaces = BTreeMap<String, Arc<Namespace>>;

/// Groups that clients configure.
pub struct ConfiguredRules {
    env: Env,
    files: NamespaceFiles,
    options: ConfiguredOptions,
    /// Schedule that gets the groups of a tenant whenever they change.
    engine: Arc<RuleEngine>,
    /// Tenants without a namespace are absent.
    tenants: RwLock<BTreeMap<TenantId, Arc<Namespaces>>>,
    /// Held over each change of files, memory and schedule.
    changing: Mutex<()>,
    write_failures: Counter,
}

impl ConfiguredRules {
    /// No groups; files go below `data_dir`.
    pub(super) fn new(
        env: &Env,
        data_dir: &Path,
        options: ConfiguredOptions,
        engine: Arc<RuleEngine>,
    ) -> ConfiguredRules {
        ConfiguredRules {
            env: env.clone(),
            files: NamespaceFiles::new(env.clone(), data_dir),
            options,
            engine,
            tenants: RwLock::default(),
            changing: Mutex::default(),
            write_failures: Counter::default(),
        }
    }

    /// Reads the files of all tenants, but removes the files of those for which `is_deleted` returns true: a
    /// crash has ended their deletion. Files that cannot be read are logged.
    pub fn load(&self, is_deleted: impl Fn(&TenantId) -> bool) {
        let _alone = self.changing.lock();
        for tenant in self.files.tenants() {
            if is_deleted(&tenant) {
                if let Err(error) = self.files.remove_tenant(&tenant) {
                    tracing::error!(%tenant, %error, "rules of a deleted tenant cannot be removed");
                }
                continue;
            }
            let read = |name: String| {
                let namespace = self.read(&tenant, &name);
                (name, Arc::new(namespace))
            };
            let namespaces: Namespaces = self.files.namespaces(&tenant).into_iter().map(read).collect();
            self.publish(&tenant, namespaces);
        }
    }

    fn read(&self, tenant: &TenantId, name: &str) -> Namespace {
        let bytes = self.files.read(tenant, name);
        let file_bytes = bytes.as_ref().map_or(0, Vec::len);
        let parsed = bytes.map_err(|error| error.to_string()).and_then(|bytes| {
            let parsed = parse_with_sources(name, &bytes, &self.file_options(self.options.bytes_max));
            parsed.map_err(|errors| error::joined(&errors))
        });
        match parsed {
            Ok(groups) => {
                let groups = groups.into_iter().map(|one| self.configured(name, one)).collect();
                Namespace { groups, file_bytes, damage: None }
            }
            Err(why) => {
                let path = self.files.path(tenant, name);
                tracing::error!(%tenant, path = %path.display(), why, "file of configured rules cannot be used");
                let damage = Some(format!("{}: {why}", path.display()));
                Namespace { groups: Vec::new(), file_bytes, damage }
            }
        }
    }

    fn file_options(&self, bytes_max: usize) -> FileOptions<'static> {
        static TEMPLATES: std::sync::LazyLock<PrometheusTemplates> =
            std::sync::LazyLock::new(PrometheusTemplates::default);
        FileOptions {
            parser: self.options.parser,
            unknown_fields: UnknownFields::Refuse,
            templates: &*TEMPLATES,
            limits: FileLimits { bytes_max, ..FileLimits::default() },
        }
    }

    /// Namespaces of a tenant.
    #[must_use]
    pub fn namespaces(&self, tenant: &TenantId) -> Arc<Namespaces> {
        self.tenants.read().get(tenant).cloned().unwrap_or_default()
    }

    /// Adds a group in YAML to a namespace, or replaces the one of its name, within `limits` of the tenant.
    /// Returns its name.
    ///
    /// # Errors
    /// [`ConfigureError`]; nothing has changed then, except that the new state may be there after a restart
    /// if the disk failed. `is_deleted` is called once no deletion of the tenant's rules can begin.
    pub fn set_group(
        &self,
        tenant: &TenantId,
        namespace: &str,
        yaml: &[u8],
        limits: &RuleLimits,
        is_deleted: impl Fn(&TenantId) -> bool,
    ) -> Result<String, ConfigureError> {
        files::check_name(namespace)?;
        let parsed = parse_group(namespace, yaml, &self.file_options(CONFIGURED_GROUP_BYTES_MAX))?;
        let name = parsed.source.name.clone();
        check_group(&parsed, limits)?;
        let changed = self.configured(namespace, parsed);
        let _alone = self.changing.lock();
        if is_deleted(tenant) {
            return Err(ConfigureError::TenantDeleted);
        }
        let namespaces = self.namespaces(tenant);
        let found = namespaces.get(namespace);
        if let Some(why) = found.and_then(|found| found.damage.as_ref()) {
            return Err(ConfigureError::Damaged(why.clone()));
        }
        let mut groups = found.map(|found| found.groups.clone()).unwrap_or_default();
        match groups.iter_mut().find(|one| one.source.name == name) {
            Some(found) => *found = changed,
            None => {
                let of_files = self.engine.loaded_count(tenant, Origin::Files);
                let configured: usize = namespaces.values().map(|one| one.groups.len()).sum();
                let group_count = 1 + configured + of_files;
                ConfigureError::check_limit(
                    "rule groups of the tenant",
                    group_count,
                    "rules.groups-max",
                    limits.groups_max,
                )?;
                groups.push(changed);
            }
        }
        self.replace(tenant, namespace, groups)?;
        Ok(name)
    }

    /// Removes a group, and with the last one its namespace.
    ///
    /// # Errors
    /// As [`ConfiguredRules::set_group`].
    pub fn delete_group(&self, tenant: &TenantId, namespace: &str, name: &str) -> Result<(), ConfigureError> {
        let _alone = self.changing.lock();
        let namespaces = self.namespaces(tenant);
        let found = namespaces.get(namespace).filter(|found| found.group(name).is_some());
        let Some(found) = found else { return Err(ConfigureError::GroupNotFound) };
        let rest: Vec<ConfiguredGroup> =
            found.groups.iter().filter(|one| one.source.name != name).cloned().collect();
        if rest.is_empty() { self.remove(tenant, namespace) } else { self.replace(tenant, namespace, rest) }
    }

    /// Removes a namespace with all of its groups, also if its file is damaged.
    ///
    /// # Errors
    /// As [`ConfiguredRules::set_group`].
    pub fn delete_namespace(&self, tenant: &TenantId, namespace: &str) -> Result<(), ConfigureError> {
        let _alone = self.changing.lock();
        match self.namespaces(tenant).contains_key(namespace) {
            true => self.remove(tenant, namespace),
            false => Err(ConfigureError::NamespaceNotFound),
        }
    }

    /// Removes all groups of a tenant. To be called once the tenant is marked as deleted; may be repeated.
    ///
    /// # Errors
    /// [`ConfigureError::Io`].
    pub fn delete_tenant(&self, tenant: &TenantId) -> Result<(), ConfigureError> {
        let _alone = self.changing.lock();
        self.count_failure(self.files.remove_tenant(tenant))?;
        self.publish(tenant, Namespaces::new());
        Ok(())
    }

    /// Groups of all tenants.
    #[must_use]
    pub fn group_count(&self) -> usize {
        self.count(|namespace| namespace.groups.len())
    }

    /// Namespaces whose files cannot be read.
    #[must_use]
    pub fn damaged_count(&self) -> usize {
        self.count(|namespace| usize::from(namespace.damage.is_some()))
    }

    fn count(&self, of_one: impl Fn(&Namespace) -> usize) -> usize {
        let tenants = self.tenants.read();
        tenants.values().flat_map(|namespaces| namespaces.values()).map(|one| of_one(one)).sum()
    }

    /// Changes that failed, as files could not be written or removed.
    #[must_use]
    pub fn write_failures(&self) -> &Counter {
        &self.write_failures
    }

    /// Writes the file of a namespace, and shows its groups.
    fn replace(
        &self,
        tenant: &TenantId,
        namespace: &str,
        groups: Vec<ConfiguredGroup>,
    ) -> Result<(), ConfigureError> {
        let mut namespaces = Namespaces::clone(&self.namespaces(tenant));
        namespaces.remove(namespace);
        let yaml = file_yaml(groups.iter().map(|one| &one.source));
        let tenant_bytes = yaml.len() + namespaces.values().map(|one| one.file_bytes).sum::<usize>();
        let bytes_max = self.options.bytes_max;
        ConfigureError::check_limit("bytes of the rules of the tenant", tenant_bytes, "", bytes_max)?;
        self.check_reads_back(namespace, &yaml, &groups)?;
        self.count_failure(self.files.write(tenant, namespace, yaml.as_bytes()))?;
        let changed = Namespace { groups, file_bytes: yaml.len(), damage: None };
        namespaces.insert(namespace.to_owned(), Arc::new(changed));
        self.publish(tenant, namespaces);
        Ok(())
    }

    /// Removes the file of a namespace, and its groups.
    fn remove(&self, tenant: &TenantId, namespace: &str) -> Result<(), ConfigureError> {
        self.count_failure(self.files.remove(tenant, namespace))?;
        let mut namespaces = Namespaces::clone(&self.namespaces(tenant));
        namespaces.remove(namespace);
        self.publish(tenant, namespaces);
        Ok(())
    }

    /// Checks that a file has the groups that it was made of: a wrong one would only show at the next start.
    fn check_reads_back(
        &self,
        namespace: &str,
        yaml: &str,
        groups: &[ConfiguredGroup],
    ) -> Result<(), ConfigureError> {
        let read =
            parse_with_sources(namespace, yaml.as_bytes(), &self.file_options(self.options.bytes_max))?;
        let is_same = read.iter().map(|one| &one.source).eq(groups.iter().map(|one| &one.source));
        if is_same { Ok(()) } else { Err(ConfigureError::NotPrintable) }
    }

    fn count_failure(&self, result: std::io::Result<()>) -> Result<(), ConfigureError> {
        if result.is_err() {
            self.write_failures.add(1);
        }
        result.map_err(ConfigureError::Io)
    }

    fn configured(&self, namespace: &str, parsed: SourcedGroup) -> ConfiguredGroup {
        let group = Group::new(namespace, parsed.entry, self.options.defaults);
        ConfiguredGroup { source: parsed.source, group }
    }

    /// Shows the namespaces of a tenant to readers, and schedules their groups.
    fn publish(&self, tenant: &TenantId, namespaces: Namespaces) {
        let groups = groups_of(&namespaces);
        if namespaces.is_empty() {
            self.tenants.write().remove(tenant);
        } else {
            self.tenants.write().insert(tenant.clone(), Arc::new(namespaces));
        }
        let now_ns = self.env.clock.now_ms().saturating_mul(NS_PER_MS);
        self.engine.set_groups(tenant, Origin::Configured, groups, now_ns);
    }
}

fn check_group(parsed: &SourcedGroup, limits: &RuleLimits) -> Result<(), ConfigureError> {
    let name = &parsed.source.name;
    let rule_count = parsed.source.rules.len();
    if rule_count == 0 {
        let why = format!("invalid rules configuration: rule group '{name}' has no rules");
        return Err(ConfigureError::Invalid(why));
    }
    let what = format!("rules of the group {name:?}");
    ConfigureError::check_limit(&what, rule_count, "rules.per-group-max", limits.group_rules_max)
}

fn groups_of(namespaces: &Namespaces) -> Vec<Group> {
    namespaces.values().flat_map(|namespace| &namespace.groups).map(|one| one.group.clone()).collect()
}
