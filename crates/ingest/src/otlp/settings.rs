//! Settings of the translation: Prometheus's `otlp:` block, and additions.
//!
//! Invariant: a value of [`OtlpSettings`] that passed [`OtlpSettings::normalize`] has trimmed, unique names.
//! Not here: files of settings, tenants.

use serde::Deserialize;

/// Translation of names: escaping and suffixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum TranslationStrategy {
    /// Characters that need quotes in PromQL become underscores; unit and type become suffixes.
    #[default]
    UnderscoreEscapingWithSuffixes,
    /// Characters that need quotes in PromQL become underscores.
    UnderscoreEscapingWithoutSuffixes,
    /// Unit and type become suffixes.
    #[serde(rename = "NoUTF8EscapingWithSuffixes")]
    NoUtf8EscapingWithSuffixes,
    /// Names are stored as sent.
    NoTranslation,
}

impl TranslationStrategy {
    /// Returns true if characters that need quotes in PromQL become underscores.
    #[must_use]
    pub fn is_escaping(self) -> bool {
        matches!(
            self,
            TranslationStrategy::UnderscoreEscapingWithSuffixes
                | TranslationStrategy::UnderscoreEscapingWithoutSuffixes
        )
    }

    /// Returns true if metric names get suffixes for unit and type.
    #[must_use]
    pub fn has_suffixes(self) -> bool {
        matches!(
            self,
            TranslationStrategy::UnderscoreEscapingWithSuffixes
                | TranslationStrategy::NoUtf8EscapingWithSuffixes
        )
    }
}

/// Settings of a tenant, with the keys of Prometheus's `otlp:` block.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtlpSettings {
    /// Translation of metric and label names.
    pub translation_strategy: TranslationStrategy,
    /// Attributes of resources that become labels of all series of the resource.
    pub promote_resource_attributes: Vec<String>,
    /// Makes all attributes of resources labels, except for `ignore_resource_attributes`.
    pub promote_all_resource_attributes: bool,
    /// Exceptions from `promote_all_resource_attributes`.
    pub ignore_resource_attributes: Vec<String>,
    /// Keeps `service.name`, `service.namespace` and `service.instance.id` as labels of `target_info`.
    pub keep_identifying_resource_attributes: bool,
    /// Makes name, version, schema and attributes of scopes labels.
    pub promote_scope_metadata: bool,
    /// Stores histograms with explicit bounds as native histograms with custom buckets.
    pub convert_histograms_to_nhcb: bool,
    /// Puts `key` before label names that start with one underscore.
    pub label_name_underscore_sanitization: bool,
    /// Keeps consecutive underscores in label names.
    pub label_name_preserve_multiple_underscores: bool,
    /// Attributes of resources without job and instance, the first one present becomes the label `instance`.
    /// Not in Prometheus.
    pub instance_from: Vec<String>,
}

/// Settings that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Both ways of promotion.
    #[error("promote_all_resource_attributes and promote_resource_attributes cannot be set at the same time")]
    BothPromotions,
    /// Exceptions without a rule.
    #[error("ignore_resource_attributes needs promote_all_resource_attributes")]
    IgnoreWithoutAll,
    /// An empty name in a list.
    #[error("{key}: entry {number} is empty, expected the name of a resource attribute")]
    Empty {
        /// Key of the list.
        key: &'static str,
        /// Number of the entry, from 1.
        number: usize,
    },
    /// A name that is twice in a list.
    #[error("{key}: resource attribute {name:?} occurs twice")]
    Repeated {
        /// Key of the list.
        key: &'static str,
        /// The name.
        name: String,
    },
}

impl OtlpSettings {
    /// Trims names of attributes, and checks the settings as Prometheus does.
    ///
    /// # Errors
    /// [`SettingsError`], the first one found.
    pub fn normalize(&mut self) -> Result<(), SettingsError> {
        if self.promote_all_resource_attributes {
            if !self.promote_resource_attributes.is_empty() {
                return Err(SettingsError::BothPromotions);
            }
        } else if !self.ignore_resource_attributes.is_empty() {
            return Err(SettingsError::IgnoreWithoutAll);
        }
        normalize_names("promote_resource_attributes", &mut self.promote_resource_attributes)?;
        normalize_names("ignore_resource_attributes", &mut self.ignore_resource_attributes)?;
        normalize_names("instance_from", &mut self.instance_from)
    }

    /// Returns true if the attribute of a resource becomes a label of its series.
    pub(super) fn is_promoted(&self, attribute: &str) -> bool {
        let is_in = |names: &[String]| names.iter().any(|name| name == attribute);
        if self.promote_all_resource_attributes {
            return !is_in(&self.ignore_resource_attributes);
        }
        is_in(&self.promote_resource_attributes)
    }
}

fn normalize_names(key: &'static str, names: &mut [String]) -> Result<(), SettingsError> {
    let mut seen = std::collections::BTreeSet::new();
    for (idx, name) in names.iter_mut().enumerate() {
        *name = name.trim().to_owned();
        if name.is_empty() {
            return Err(SettingsError::Empty { key, number: idx + 1 });
        }
        if !seen.insert(name.clone()) {
            return Err(SettingsError::Repeated { key, name: name.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: Result<(), &str>) {
        let mut settings: OtlpSettings = serde_json::from_str(text).expect("settings");
        assert_eq!(settings.normalize().map_err(|error| error.to_string()), want.map_err(str::to_owned));
    }

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        check("{}", Ok(()));
        check(r#"{"promote_resource_attributes": ["a", "b"]}"#, Ok(()));
        check(r#"{"promote_all_resource_attributes": true, "ignore_resource_attributes": ["a"]}"#, Ok(()));
        check(
            r#"{"promote_all_resource_attributes": true, "promote_resource_attributes": ["a"]}"#,
            Err(
                "promote_all_resource_attributes and promote_resource_attributes cannot be set at the same time",
            ),
        );
        check(
            r#"{"ignore_resource_attributes": ["a"]}"#,
            Err("ignore_resource_attributes needs promote_all_resource_attributes"),
        );
        check(
            r#"{"promote_resource_attributes": ["a", " "]}"#,
            Err("promote_resource_attributes: entry 2 is empty, expected the name of a resource attribute"),
        );
        check(
            r#"{"instance_from": ["a", " a "]}"#,
            Err("instance_from: resource attribute \"a\" occurs twice"),
        );
    }

    #[test]
    fn keys_and_strategies_are_those_of_prometheus() {
        let text =
            r#"{"translation_strategy": "NoUTF8EscapingWithSuffixes", "promote_scope_metadata": true}"#;
        let settings: OtlpSettings = serde_json::from_str(text).expect("settings");
        assert_eq!(settings.translation_strategy, TranslationStrategy::NoUtf8EscapingWithSuffixes);
        assert!(settings.promote_scope_metadata && !settings.convert_histograms_to_nhcb);
        assert!(serde_json::from_str::<OtlpSettings>(r#"{"translation": 1}"#).is_err());
        assert!(serde_json::from_str::<TranslationStrategy>(r#""Escaping""#).is_err());
    }
}
