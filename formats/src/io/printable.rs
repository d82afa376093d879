//! What comes from outside, as it can be shown.

use std::path::Path;

/// Longest text of a file in a message, in bytes.
const MOST_BYTES: usize = 400;

/// The name of a file for people: control characters, and those that turn the direction of a text, are escaped, so that
/// a name cannot move the cursor of a terminal, colour it or begin a line.
///
/// ```
/// use windrow_formats::io::printable;
///
/// assert_eq!(printable("Zürich\u{1b}[31m.mtx"), "Zürich\\u{1b}[31m.mtx");
/// ```
pub fn printable(path: impl AsRef<Path>) -> String {
    let mut text = String::new();
    for c in path.as_ref().to_string_lossy().chars() {
        if c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            text.extend(c.escape_default());
        } else {
            text.push(c);
        }
    }
    text
}

/// `text`, cut if it is longer than any message needs: files choose the names and words that messages quote.
pub(super) fn bounded(mut text: String) -> String {
    if text.len() > MOST_BYTES {
        text.truncate(text.floor_char_boundary(MOST_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_command_a_terminal() {
        let name = "a b\n\r\t\u{7f}\u{9b}31m\u{202e}\"é'";
        assert_eq!(printable(name), "a b\\n\\r\\t\\u{7f}\\u{9b}31m\\u{202e}\"é'");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(bounded("é".repeat(200)), "é".repeat(200));
        assert_eq!(bounded(format!("x{}", "é".repeat(200))), format!("x{}…", "é".repeat(199)));
    }
}
