//! The ways to order rows, by name.

use std::fmt;
use std::str::FromStr;

/// How rows are ordered.
///
/// # Examples
/// ```
/// use windrow_preprocess::reorder::Method;
///
/// assert_eq!("rcm".parse(), Ok(Method::ReverseCuthillMckee));
/// assert!(Method::ALL.iter().all(|method| method.name().parse() == Ok(*method)));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// Rows as they are.
    Identity,
    /// The longest rows first.
    Degree,
    /// Reverse Cuthill–McKee: by distance in the graph, for a small bandwidth.
    ReverseCuthillMckee,
    /// By communities, as the Rabbit order does.
    Community,
    /// By shared columns, after RSH-SpMM; what to use.
    #[default]
    Similarity,
}

impl Method {
    /// Every method, from none to the slowest.
    pub const ALL: [Self; 5] =
        [Self::Identity, Self::Degree, Self::ReverseCuthillMckee, Self::Community, Self::Similarity];

    /// The name by which [`FromStr`] knows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Degree => "degree",
            Self::ReverseCuthillMckee => "rcm",
            Self::Community => "community",
            Self::Similarity => "similarity",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

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

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(name: &str) -> Result<Self, UnknownMethod> {
        let found = Self::ALL.into_iter().find(|method| method.name() == name);
        found.ok_or_else(|| UnknownMethod { found: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        assert_eq!(
            "metis".parse::<Method>().unwrap_err().to_string(),
            "there is no reordering called \"metis\"; there are identity, degree, rcm, community, similarity"
        );
    }
}
