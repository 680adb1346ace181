//! `chronolith licences`: licence texts that have to accompany files embedded in the binary.
//! Not here: licences of the web interface's packages, which are among its files.

/// Embedded in `crates/graphite` for pictures in PNG.
const UBUNTU_LIGHT: &str = include_str!("../../../docs/licences/ubuntu-font-licence-1.0.txt");

/// All texts, each below the name of the file that it is about.
pub(crate) fn text() -> String {
    format!("Ubuntu Light, the font of /render?format=png\n\n{UBUNTU_LIGHT}")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_licence_of_the_font_is_printed() {
        assert!(super::text().contains("UBUNTU FONT LICENCE Version 1.0"));
    }
}
