//! Rust source without its comments and strings, for rules about code.

/// `text` with comments and the insides of strings and characters blanked; line numbers stay.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = token_end(&chars, at);
        match end {
            Some(end) => {
                code.extend(chars[at..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
                at = end;
            }
            None => {
                code.push(chars[at]);
                at += 1;
            }
        }
    }
    code
}

/// Where the comment, string or character that starts at `at` ends; `None` if none starts there.
fn token_end(chars: &[char], at: usize) -> Option<usize> {
    let next = chars.get(at + 1).copied();
    match chars[at] {
        '/' if next == Some('/') => Some(find(chars, at, |c| c == '\n')),
        '/' if next == Some('*') => Some(block_comment_end(chars, at)),
        '"' => Some(quoted_end(chars, at + 1, '"')),
        'r' if !continues_identifier(chars, at) => raw_string_end(chars, at + 1),
        '\'' if next == Some('\\') => Some(quoted_end(chars, at + 1, '\'')),
        // Anything else after a quote is a lifetime, unless the quote closes after one character.
        '\'' if chars.get(at + 2) == Some(&'\'') => Some(at + 3),
        _ => None,
    }
}

/// Whether the character at `at` belongs to an identifier that began before it; `b"` and `c"` prefixes do not
/// count, since what follows them is a string.
fn continues_identifier(chars: &[char], at: usize) -> bool {
    let word = |at: usize| chars[at].is_alphanumeric() || chars[at] == '_';
    match at.checked_sub(1) {
        None => false,
        Some(before) if matches!(chars[before], 'b' | 'c') => before.checked_sub(1).is_some_and(word),
        Some(before) => word(before),
    }
}

fn find(chars: &[char], from: usize, wanted: impl Fn(char) -> bool) -> usize {
    chars[from..].iter().position(|c| wanted(*c)).map_or(chars.len(), |offset| from + offset)
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut at = at;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (depth, at) = (depth + 1, at + 2),
            ('*', '/') => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], from: usize, quote: char) -> usize {
    let mut at = from;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// After the `r` of a raw string: its hashes, its quote, and all up to the same hashes.
fn raw_string_end(chars: &[char], from: usize) -> Option<usize> {
    let quote = find(chars, from, |c| c != '#');
    if chars.get(quote) != Some(&'"') {
        return None;
    }
    let hashes = quote - from;
    let mut at = quote + 1;
    while at < chars.len() {
        let closes =
            chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes;
        if closes {
            return Some(at + 1 + hashes);
        }
        at += 1;
    }
    Some(chars.len())
}

/// The identifiers of code, each with its line (from 1).
pub(super) fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(index, line)| {
        line.split(|c: char| !(c.is_alphanumeric() || c == '_'))
            .filter(|word| word.starts_with(|c: char| c.is_alphabetic() || c == '_'))
            .map(move |word| (index + 1, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        identifiers(&code_only(text)).map(|(_, word)| word.to_owned()).collect()
    }

    #[test]
    fn comments_and_strings_go() {
        assert_eq!(words("let a = \"b \\\" c\"; // d\ne"), ["let", "a", "e"]);
        assert_eq!(words("a /* b /* c */ d */ e"), ["a", "e"]);
        assert_eq!(words("a(r#\"b \" c\"#, br\"d\", r\"e\\\") f"), ["a", "b", "f"]);
    }

    #[test]
    fn characters_are_not_lifetimes() {
        assert_eq!(words("x('\"', '\\'', 'y') z<'life>"), ["x", "z", "life"]);
    }

    #[test]
    fn raw_identifiers_stay() {
        assert_eq!(words("r#type for r"), ["r", "type", "for", "r"]);
    }

    #[test]
    fn lines_are_kept() {
        let code = code_only("/* a\nb */ c\n\"d\ne\" f\n");
        assert_eq!(identifiers(&code).collect::<Vec<_>>(), [(2, "c"), (4, "f")]);
    }
}
