//! The ways to order rows, by name.

use std::fmt;

use windrow_formats::names;

/// How rows are ordered.
///
/// # Examples
/// ```
/// use windrow_preprocess::reorder::Method;
///
/// assert_eq!("rcm".parse(), Ok(Method::ReverseCuthillMckee));
/// assert!(Method::ALL.iter().all(|method| method.name().parse() == Ok(*method)));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Method {
    /// Rows as they are.
    Identity,
    /// The longest rows first.
    Degree,
    /// Reverse Cuthill–McKee: by distance in the graph, for a small bandwidth.
    #[serde(rename = "rcm")]
    ReverseCuthillMckee,
    /// By communities, as the Rabbit order does.
    Community,
    /// By shared columns, found by min-wise hashing: what kernels make on a GPU. On the CPU it takes longer than
    /// [`Similarity`](Self::Similarity), and is no better.
    #[serde(rename = "minhash")]
    MinHash,
    /// By shared columns, after RSH-SpMM; the best of them.
    #[default]
    Similarity,
}

impl Method {
    /// Every method, none the first.
    pub const ALL: [Self; 6] = [
        Self::Identity,
        Self::Degree,
        Self::ReverseCuthillMckee,
        Self::Community,
        Self::MinHash,
        Self::Similarity,
    ];
}

names!(pub name; Method, UnknownMethod, |text, _| UnknownMethod { found: text.to_owned() };
    Identity => "identity", Degree => "degree", ReverseCuthillMckee => "rcm", Community => "community",
    MinHash => "minhash", Similarity => "similarity");

/// No method has this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMethod {
    /// The name that was given.
    pub found: String,
}

impl fmt::Display for UnknownMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Method::ALL.map(Method::name).join(", ");
        write!(f, "there is no reordering called {:?}; there are {known}", self.found)
    }
}

impl std::error::Error for UnknownMethod {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        assert_eq!(
            "metis".parse::<Method>().unwrap_err().to_string(),
            "there is no reordering called \"metis\"; there are identity, degree, rcm, community, minhash, similarity"
        );
    }
}
