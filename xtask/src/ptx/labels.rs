//! Names that the compiler numbers through the file, numbered within their function instead.

use super::{Item, Ptx, in_identifier};
use std::collections::HashMap;

/// The names that a body declares for itself: how the compiler's begin, and how ours do. Whatever follows is digits,
/// of which those up to a `_` count functions.
const LOCAL: [(&str, &str); 3] =
    [("$L__BB", "$L"), ("$L_brx_", "$L_brx_"), ("__local_depot", "__local_depot")];

/// Renames labels, jump tables and stack frames so that a function's text does not depend on the functions before
/// it: an entry that comes or goes changes no line but its own. PTX looks such names up in the function first.
pub(crate) fn number_locally(ptx: &mut Ptx) {
    for item in &mut ptx.items {
        let Item::Definition(function) = item else { continue };
        let mut names = HashMap::new();
        let mut counts = [0; LOCAL.len()];
        for line in &mut function.body {
            *line = renamed(line, &mut names, &mut counts);
        }
    }
}

/// The line with its local names replaced: each by a number of its kind, in the order in which they are first seen.
fn renamed(line: &str, names: &mut HashMap<String, String>, counts: &mut [usize; LOCAL.len()]) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(in_identifier) {
        let end = rest[start..].find(|c| !in_identifier(c)).map_or(rest.len(), |len| start + len);
        let (before, word) = (&rest[..start], &rest[start..end]);
        text.push_str(before);
        match kind(word) {
            None => text.push_str(word),
            Some(kind) => {
                let name = names.entry(word.to_owned()).or_insert_with(|| {
                    let name = format!("{}{}", LOCAL[kind].1, counts[kind]);
                    counts[kind] += 1;
                    name
                });
                text.push_str(name);
            }
        }
        rest = &rest[end..];
    }
    text.push_str(rest);
    text
}

/// Which of [`LOCAL`] a name is.
fn kind(word: &str) -> Option<usize> {
    LOCAL.iter().position(|(theirs, _)| {
        word.strip_prefix(theirs).is_some_and(|number| {
            !number.is_empty() && number.chars().all(|c| c.is_ascii_digit() || c == '_')
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry as the compiler writes it when it is function number `at` of its file.
    fn entry(name: &str, at: usize) -> String {
        format!(
            "
.visible .entry {name}(
\t.param .align 8 .b8 {name}_param_0[24]
)
{{
\t.local .align 16 .b8 \t__local_depot{at}[64];
\t.reg .b32 \t%r<9>;
\tmov.b64 \t%rd1, __local_depot{at};
$L_brx_{at}: .branchtargets
\t$L__BB{at}_7,
\t$L__BB{at}_3;
\tbrx.idx \t%r1, $L_brx_{at};
$L__BB{at}_7:
\tld.global.nc.L1::no_allocate.b32 \t%r1, [{name}_param_0+8];
\t@%p1 bra \t$L__BB{at}_3;
$L__BB{at}_3:
\tret;
}}
"
        )
    }

    fn numbered(text: &str) -> Ptx {
        let mut ptx = Ptx::parse(text).expect("well formed");
        number_locally(&mut ptx);
        ptx
    }

    #[test]
    fn an_entry_before_another_changes_no_line_of_it() {
        let alone = numbered(&entry("scale", 0));
        let second = numbered(&(entry("axpy", 0) + &entry("scale", 1)));
        assert_eq!(alone.items[0], second.items[1]);
    }

    #[test]
    fn names_are_counted_by_kind_and_nothing_else_is_touched() {
        let text = numbered(&entry("f32_64x128_2", 31)).to_string();
        for line in [
            "\t.local .align 16 .b8 \t__local_depot0[64];",
            "\tmov.b64 \t%rd1, __local_depot0;",
            "$L_brx_0: .branchtargets",
            "\t$L0,",
            "\t$L1;",
            "\tbrx.idx \t%r1, $L_brx_0;",
            "$L0:",
            "\t@%p1 bra \t$L1;",
            "$L1:",
            "\tld.global.nc.L1::no_allocate.b32 \t%r1, [f32_64x128_2_param_0+8];",
            "\t.param .align 8 .b8 f32_64x128_2_param_0[24]",
        ] {
            assert!(text.lines().any(|found| found == line), "no line {line:?} in\n{text}");
        }
    }

    #[test]
    fn numbering_again_changes_nothing() {
        let once = numbered(&entry("scale", 5));
        assert_eq!(numbered(&once.to_string()), once);
    }

    #[test]
    fn only_whole_names_are_local() {
        for word in ["$L__BB", "$L__BBx", "my__local_depot0", "__local_depot0x", "$L__BB0_1a"] {
            assert_eq!(kind(word), None, "{word}");
        }
    }
}
