//! One word for one thing: identifiers that the glossary replaces.

use super::Findings;
use super::allow::Exceptions;
use super::glossary::Glossary;
use super::source::identifiers;

/// Words that praise or number instead of naming a technique.
const EMPTY: &[&str] = &["v2", "v3", "fast", "faster", "optimized", "optimised", "improved"];

/// Reports every identifier of the file that has a better word.
pub(super) fn check(
    path: &str,
    code: &str,
    glossary: &Glossary,
    allowed: &mut Exceptions,
    findings: &mut Findings,
) {
    for (line, word) in identifiers(code) {
        let replaced = glossary.identifiers.iter().find(|replaced| replaced.word == word);
        let remedy = match (replaced, empty_part(word)) {
            (Some(replaced), _) => format!("the word here is {}", replaced.better),
            (None, Some(part)) => format!("`{part}` says nothing: name the technique"),
            (None, None) => continue,
        };
        if !allowed.word(path, word) {
            findings.problem(format!("{path}:{line}: `{word}`: {remedy}"));
        }
    }
}

/// Names that NVIDIA's libraries chose, such as `cublasCreate_v2`.
fn foreign(word: &str) -> bool {
    let after_cu = word.strip_prefix("cu").or_else(|| word.strip_prefix("CU"));
    after_cu.is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_uppercase() || c == '_')
            || rest.starts_with("blas")
            || rest.starts_with("sparse")
    })
}

/// The part of a compound name that is one of [`EMPTY`]. A name that is such a word alone may stand: it is
/// what an option is called, such as `Determinism::Fast`.
fn empty_part(word: &str) -> Option<&str> {
    if foreign(word) {
        return None;
    }
    let found = parts(word).into_iter().find(|part| EMPTY.contains(&part.to_ascii_lowercase().as_str()))?;
    let alone = found.len() == word.len() && !found.starts_with(|c: char| c.is_ascii_lowercase());
    (!alone).then_some(found)
}

/// `row_split_v2` as `row`, `split`, `v2`; `RowSplitV2` as `Row`, `Split`, `V2`.
fn parts(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    for piece in word.split('_').filter(|piece| !piece.is_empty()) {
        let mut start = 0;
        let bytes = piece.as_bytes();
        for at in 1..bytes.len() {
            if bytes[at].is_ascii_uppercase() && bytes[at - 1].is_ascii_lowercase() {
                parts.push(&piece[start..at]);
                start = at;
            }
        }
        parts.push(&piece[start..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glossary() -> Glossary {
        let mut findings = Findings::default();
        let text = "| `row_offsets` | where rows begin | `nodePointer`, `node_pointer`, `indptr` |\n\
             | `col_indices` | columns of entries | `edgeList` |\n";
        Glossary::parse(text, &mut findings)
    }

    fn found(code: &str) -> Vec<String> {
        let mut findings = Findings::default();
        check("a.rs", code, &glossary(), &mut Exceptions::default(), &mut findings);
        findings.problems
    }

    #[test]
    fn replaced_words_name_their_successor() {
        assert_eq!(
            found("let a = 1;\nlet nodePointer = a;"),
            ["a.rs:2: `nodePointer`: the word here is row_offsets"]
        );
        assert!(found("node_pointers").is_empty(), "only whole identifiers");
    }

    #[test]
    fn empty_words_are_found_in_any_case() {
        for word in ["spmm_v2", "spmm_fast", "fast_spmm", "SpmmV2", "FastSpmm", "improved_order", "fast"] {
            assert_eq!(found(word).len(), 1, "{word}");
        }
        for word in ["cublasCreate_v2", "CUBLAS_COMPUTE_32F_FAST_TF32", "cuCtxCreate_v2"] {
            assert!(found(word).is_empty(), "{word} is not ours");
        }
        assert_eq!(found("cursor_v2").len(), 1);
        for word in ["Fast", "breakfast", "steadfast_order", "FASTEN", "m8n8", "spmm_row_split_f16_l4w8"] {
            assert!(found(word).is_empty(), "{word}");
        }
    }

    #[test]
    fn an_exception_needs_file_and_word() {
        let mut findings = Findings::default();
        let mut allowed = Exceptions::parse("word a.rs indptr the archive's own key\n", &mut findings);
        check("a.rs", "indptr edgeList", &glossary(), &mut allowed, &mut findings);
        check("b.rs", "indptr", &glossary(), &mut allowed, &mut findings);
        assert_eq!(findings.problems.len(), 2, "{:?}", findings.problems);
    }
}
