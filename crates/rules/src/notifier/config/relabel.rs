//! Lists of relabelling rules.

use chronolith_model::relabel::{RelabelFields, RelabelRule};

use super::fields::{Fault, Fields, items};
use crate::yaml::NodeKind;

/// Rules of one list.
const RULES_MAX: usize = 1000;

/// Takes the field `name`, a list of rules.
pub(super) fn rules(fields: &mut Fields, name: &str) -> Result<Vec<RelabelRule>, Fault> {
    let Some(field) = fields.take(name) else { return Ok(Vec::new()) };
    let mut rules = Vec::new();
    for item in items(&field.value, name)? {
        if item.is_null() {
            return Err(Fault::new(item.position, format!("`{name}` has an empty rule")));
        }
        if rules.len() == RULES_MAX {
            return Err(Fault::new(item.position, format!("`{name}` has more than {RULES_MAX} rules")));
        }
        let mut entry = Fields::of(item, name)?;
        let rule = rule(&mut entry)?;
        entry.end()?;
        rules.push(RelabelRule::new(rule).map_err(|why| Fault::new(item.position, why.to_string()))?);
    }
    Ok(rules)
}

fn rule(fields: &mut Fields) -> Result<RelabelFields, Fault> {
    let source_labels = fields.texts("source_labels")?;
    let modulus = modulus(fields)?;
    let mut optional = |name| Ok::<_, Fault>(fields.text(name)?.map(|text| text.text));
    Ok(RelabelFields {
        source_labels: source_labels.map(|names| names.into_iter().map(|name| name.text).collect()),
        separator: optional("separator")?,
        regex: optional("regex")?,
        modulus,
        target_label: optional("target_label")?.unwrap_or_default(),
        replacement: optional("replacement")?,
        action: optional("action")?,
    })
}

fn modulus(fields: &mut Fields) -> Result<u64, Fault> {
    let Some(field) = fields.take("modulus") else { return Ok(0) };
    let parsed = match &field.value.kind {
        NodeKind::Scalar(scalar) => {
            let integer = || u64::try_from(scalar.integer()?).ok();
            // Go cuts the fraction off.
            let float = || scalar.float().filter(|float| *float >= 0.0).map(|float| float as u64);
            scalar.text.parse().ok().or_else(integer).or_else(float)
        }
        _ => None,
    };
    parsed.ok_or_else(|| Fault::new(field.value.position, "`modulus` is no whole number"))
}
