//! `\p{Greek}`, `\pL`, `\P{^Lu}`: the names of Go, from regex-syntax's tables.
//!
//! Invariants: categories by short or long name, scripts by long name, with case, `_`, `-` and spaces ignored
//! (as Go does since 1.25, but for scripts of several words, too); not the many further properties and
//! spellings that regex-syntax knows.

use std::sync::OnceLock;

use regex_syntax::hir::{Class, ClassUnicode, HirKind};

use super::class_set::ClassSet;
use super::error::{RegexError, RegexErrorKind, error};

/// `\p` or `\P` class at the start of `rest`, and what follows; `None` if it is something else.
pub(super) fn escape(rest: &str, fold: bool) -> Result<Option<(ClassSet, &str)>, RegexError> {
    let mut negate = match rest.as_bytes() {
        [b'\\', b'p', ..] => false,
        [b'\\', b'P', ..] => true,
        _ => return Ok(None),
    };
    let argument = rest.get(2..).unwrap_or("");
    let (name, after) = match argument.strip_prefix('{') {
        Some(braced) => match braced.split_once('}') {
            Some(parts) => parts,
            None => return Err(RegexError::new(RegexErrorKind::InvalidCharRange, rest)),
        },
        None => argument.split_at(argument.chars().next().map_or(0, char::len_utf8)),
    };
    let bare = name.strip_prefix('^').unwrap_or(name);
    negate ^= bare.len() != name.len();
    match class(bare) {
        Some(set) => Ok(Some((set.folded_if(fold).negated_if(negate), after))),
        None => Err(error(RegexErrorKind::InvalidCharRange, rest, after)),
    }
}

/// Returns true for a letter or a decimal digit of any script.
pub(super) fn is_letter_or_digit(c: char) -> bool {
    static LETTERS_AND_DIGITS: OnceLock<ClassUnicode> = OnceLock::new();
    if c.is_ascii() {
        return c.is_ascii_alphanumeric();
    }
    let class =
        LETTERS_AND_DIGITS.get_or_init(|| table(r"[\p{gc=L}\p{gc=Nd}]").unwrap_or(ClassUnicode::empty()));
    let range = class.ranges().partition_point(|range| range.end() < c);
    class.ranges().get(range).is_some_and(|range| range.start() <= c)
}

fn class(name: &str) -> Option<ClassSet> {
    let name = canonical(name);
    let is_listed = |names: &str| names.split(' ').any(|listed| listed == name);
    let pattern = match name.as_str() {
        "Any" => r"[\x{0}-\x{10FFFF}]".to_owned(),
        "Assigned" => r"\P{gc=Cn}".to_owned(),
        "Ascii" => r"[\x{0}-\x{7F}]".to_owned(),
        // Surrogates are code points, but no characters.
        "Cs" | "Surrogate" => return Some(ClassSet::empty()),
        name if is_listed(CATEGORIES) => format!(r"\p{{gc={name}}}"),
        name if is_listed(SCRIPTS) => format!(r"\p{{sc={name}}}"),
        _ => return None,
    };
    table(&pattern).map(ClassSet::new)
}

fn table(pattern: &str) -> Option<ClassUnicode> {
    match regex_syntax::parse(pattern).ok()?.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class),
        _ => None,
    }
}

/// First letter upper, others lower case, without ` `, `_` and `-`.
fn canonical(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars().filter(|c| !matches!(c, ' ' | '_' | '-')) {
        out.push(if out.is_empty() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() });
    }
    out
}

/// Names of general categories in canonical spelling.
const CATEGORIES: &str = "\
    C Cc Cf Cn Co L Lc Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs \
    Casedletter Closepunctuation Combiningmark Connectorpunctuation Control Currencysymbol Dashpunctuation \
    Decimalnumber Enclosingmark Finalpunctuation Format Initialpunctuation Letter Letternumber Lineseparator \
    Lowercaseletter Mark Mathsymbol Modifierletter Modifiersymbol Nonspacingmark Number Openpunctuation \
    Other Otherletter Othernumber Otherpunctuation Othersymbol Paragraphseparator Privateuse Punctuation \
    Separator Spaceseparator Spacingmark Symbol Titlecaseletter Unassigned Uppercaseletter Cntrl Digit Punct";

/// Names of scripts in canonical spelling.
const SCRIPTS: &str = "\
    Adlam Ahom Anatolianhieroglyphs Arabic Armenian Avestan Balinese Bamum Bassavah Batak Bengali Bhaiksuki \
    Bopomofo Brahmi Braille Buginese Buhid Canadianaboriginal Carian Caucasianalbanian Chakma Cham Cherokee \
    Chorasmian Common Coptic Cuneiform Cypriot Cyprominoan Cyrillic Deseret Devanagari Divesakuru Dogra \
    Duployan Egyptianhieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati \
    Gunjalagondi Gurmukhi Han Hangul Hanifirohingya Hanunoo Hatran Hebrew Hiragana Imperialaramaic Inherited \
    Inscriptionalpahlavi Inscriptionalparthian Javanese Kaithi Kannada Katakana Kawi Kayahli Kharoshthi \
    Khitansmallscript Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Lineara Linearb Lisu Lycian Lydian \
    Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaramgondi Medefaidrin Meeteimayek Mendekikakui \
    Meroiticcursive Meroitichieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nagmundari \
    Nandinagari Newtailue Newa Nko Nushu Nyiakengpuachuehmong Ogham Olchiki Oldhungarian Olditalic \
    Oldnortharabian Oldpermic Oldpersian Oldsogdian Oldsoutharabian Oldturkic Olduyghur Oriya Osage Osmanya \
    Pahawhhmong Palmyrene Paucinhau Phagspa Phoenician Psalterpahlavi Rejang Runic Samaritan Saurashtra \
    Sharada Shavian Siddham Signwriting Sinhala Sogdian Sorasompeng Soyombo Sundanese Sylotinagri Syriac \
    Tagalog Tagbanwa Taile Taitham Taiviet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh \
    Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Warangciti Yezidi Yi Zanabazarsquare";
