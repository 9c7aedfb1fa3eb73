//! Characters that a person does not see.

/// Returns whether a character is invisible: control characters, changes of the text direction, blanks without ink, and the
/// characters that Unicode lets programs ignore (`Default_Ignorable_Code_Point` of DerivedCoreProperties.txt). Two ids that differ
/// in such a character look the same. The Python client has the same list, in `errors.py`.
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns whether a text has no visible character.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || is_hidden(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_blank_without_a_visible_character() {
        for blank in ["", " ", "\t\n", "\u{a0}", "\u{200b}", "\u{feff} \u{2800}"] {
            assert!(is_blank(blank), "{blank:?}");
        }
        for visible in ["k", " k ", "決", "\u{200b}-"] {
            assert!(!is_blank(visible), "{visible:?}");
        }
    }
}
