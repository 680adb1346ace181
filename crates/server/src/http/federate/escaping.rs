//! Escaping of names that the classic text format does not have, as the scraper asks for it by the parameter
//! `escaping` of `Accept`: the four schemes of Prometheus's client libraries.
//!
//! Invariants: names of the classic format stay as they are in each scheme; an escaped name is one of them.
//! Two names may become equal, as in Prometheus.

use std::borrow::Cow;
use std::fmt::Write as _;

use chronolith_model::labels::{is_legacy_label_name, is_legacy_metric_name};

/// Scheme by which names become names of the classic format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Escaping {
    /// Names stay UTF-8, and are quoted.
    AllowUtf8,
    /// Each character that the classic format does not have becomes `_`.
    #[default]
    Underscores,
    /// `.` becomes `_dot_`, `_` and all others become `__`.
    Dots,
    /// `U__`, then `_HEX_` for each such character and `__` for `_`, so different names stay different.
    Values,
}

impl Escaping {
    /// The scheme of this name; `None` for an unknown one.
    pub(super) fn of_name(name: &str) -> Option<Escaping> {
        let all = [Escaping::AllowUtf8, Escaping::Underscores, Escaping::Dots, Escaping::Values];
        all.into_iter().find(|scheme| scheme.name() == name)
    }

    /// Value of the parameter `escaping`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Escaping::AllowUtf8 => "allow-utf-8",
            Escaping::Underscores => "underscores",
            Escaping::Dots => "dots",
            Escaping::Values => "values",
        }
    }

    pub(super) fn metric_name(self, name: &str) -> Cow<'_, str> {
        if is_legacy_metric_name(name) { Cow::Borrowed(name) } else { self.escape(name, true) }
    }

    pub(super) fn label_name(self, name: &str) -> Cow<'_, str> {
        if is_legacy_label_name(name) { Cow::Borrowed(name) } else { self.escape(name, false) }
    }

    /// Escapes a name that is not one of the classic format. Label names have no colons there.
    fn escape(self, name: &str, allows_colon: bool) -> Cow<'_, str> {
        let mut out = String::with_capacity(name.len() + 16);
        if self == Escaping::Values {
            out.push_str("U__");
        }
        for (at, c) in name.char_indices() {
            let is_classic = c.is_ascii_alphabetic()
                || c == '_'
                || c == ':' && allows_colon
                || c.is_ascii_digit() && at > 0;
            match (self, c) {
                (Escaping::AllowUtf8, _) => return Cow::Borrowed(name),
                (Escaping::Dots | Escaping::Values, '_') => out.push_str("__"),
                (Escaping::Dots, '.') => out.push_str("_dot_"),
                _ if is_classic => out.push(c),
                (Escaping::Underscores, _) => out.push('_'),
                (Escaping::Dots, _) => out.push_str("__"),
                (Escaping::Values, _) => {
                    let written = write!(out, "_{:x}_", u32::from(c));
                    debug_assert!(written.is_ok(), "a String takes all");
                }
            }
        }
        Cow::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, underscores: &str, dots: &str, values: &str) {
        assert_eq!(Escaping::AllowUtf8.metric_name(name), name);
        assert_eq!(Escaping::Underscores.metric_name(name), underscores);
        assert_eq!(Escaping::Dots.metric_name(name), dots);
        assert_eq!(Escaping::Values.metric_name(name), values);
    }

    #[test]
    fn names_of_the_classic_format_stay() {
        check("http_requests:sum5", "http_requests:sum5", "http_requests:sum5", "http_requests:sum5");
        assert_eq!(Escaping::Dots.label_name("my_id"), "my_id");
    }

    /// Right values: `model.EscapeName` of prometheus/common 0.72.1.
    #[test]
    fn other_names_are_escaped_by_each_scheme() {
        check("vat.temp", "vat_temp", "vat_dot_temp", "U__vat_2e_temp");
        check(
            "mysystem.prod.west_cpu",
            "mysystem_prod_west_cpu",
            "mysystem_dot_prod_dot_west__cpu",
            "U__mysystem_2e_prod_2e_west__cpu",
        );
        check("größe", "gr__e", "gr____e", "U__gr_f6__df_e");
        check("1up", "_up", "__up", "U___31_up");
        check("a b-c", "a_b_c", "a__b__c", "U__a_20_b_2d_c");
        check("温度", "__", "____", "U___6e29__5ea6_");
        check("a.b:c", "a_b:c", "a_dot_b:c", "U__a_2e_b:c");
        check(".", "_", "_dot_", "U___2e_");
    }

    /// A colon in the name of a label would make a classic scraper refuse the whole answer.
    #[test]
    fn label_names_have_no_colons() {
        assert_eq!(Escaping::Underscores.label_name("a:b"), "a_b");
        assert_eq!(Escaping::Values.label_name("my.id"), "U__my_2e_id");
        assert_eq!(Escaping::AllowUtf8.label_name("my.id"), "my.id");
    }

    #[test]
    fn schemes_have_names() {
        for name in ["allow-utf-8", "underscores", "dots", "values"] {
            assert_eq!(Escaping::of_name(name).map(Escaping::name), Some(name));
        }
        for name in ["", "ALLOW-UTF-8", "underscore", "none"] {
            assert_eq!(Escaping::of_name(name), None, "{name}");
        }
    }
}
