//! Makes text from outside quorlock, such as from a server, safe for terminals and logs. Error texts, the doctor and
//! the command-line tool use this module.

use std::borrow::Cow;

/// Whether a terminal or a log shows this character as text: it is not a control character, a line separator or an
/// invisible tag, and does not change the direction of the text after it.
pub(crate) fn is_printable(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Returns the text on one line, without characters that control a terminal or change the direction of text. A sequence
/// of line breaks and tabs becomes one space. Every other character that is not printable becomes U+FFFD. Use this
/// function for all text from outside quorlock that people read: texts of servers, names of resources and holders,
/// arguments.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_printable) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        let is_break = matches!(letter, '\t'..='\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
        match letter {
            _ if is_break && shown.ends_with(' ') => {}
            _ if is_break => shown.push(' '),
            letter if is_printable(letter) => shown.push(letter),
            _ => shown.push('\u{fffd}'),
        }
    }
    shown.into()
}

/// Returns a JSON text with escape sequences in place of the characters that [`printable`] would replace. Parsing the
/// result yields the same value as parsing `json`.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if json.chars().all(is_printable) {
        return json.into();
    }
    let mut shown = String::with_capacity(json.len());
    for letter in json.chars() {
        if is_printable(letter) {
            shown.push(letter);
            continue;
        }
        // The letter is inside a JSON string, where an escape is allowed: outside strings, the JSON of `serde_json` has
        // only printable characters.
        for unit in letter.encode_utf16(&mut [0; 2]) {
            shown += &format!("\\u{unit:04x}");
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::{printable, printable_json};

    /// One of each kind of character that must not reach a terminal.
    const HOSTILE: &str = "\u{0}\u{7}\u{1b}\u{7f}\u{80}\u{9b}\u{61c}\u{200b}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0001}\u{e007f}";

    #[test]
    fn hostile_characters_are_replaced() {
        let replaced = "\u{fffd}".repeat(HOSTILE.chars().count());
        assert_eq!(printable(HOSTILE), replaced);
        assert_eq!(printable("a\r\n\tb\u{2028}c\u{2029}d\u{85}e"), "a b c d e");
        for text in ["orders:42", "naïve 🔒 👨\u{200d}👩", " two  spaces "] {
            assert_eq!(printable(text), text);
        }
    }

    #[test]
    fn json_keeps_its_value() {
        let text = format!("a{HOSTILE}\n\u{2028}\"\\ü🔒");
        let json = serde_json::to_string(&text).expect("a string");
        let shown = printable_json(&json);
        assert_eq!(printable(&shown), shown, "nothing is left to be replaced");
        assert_eq!(serde_json::from_str::<String>(&shown).expect("valid JSON"), text);
    }
}
