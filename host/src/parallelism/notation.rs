//! The paper's notation, written and read: `{<1/4 row, 2 col>, 4}`.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{AtomicParallelism, DaSpmm, Family, IllegalPoint, MinimalData, Share};

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(threads) => f.pad(&format!("1/{threads}")),
            Self::Whole(data) => f.pad(&data.to_string()),
        }
    }
}

impl fmt::Display for MinimalData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.share(), self.unit()))
    }
}

impl fmt::Display for AtomicParallelism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{{<{}, {} col>, {}}}", self.data, self.cols, self.reduction))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::NnzSerial => "{<g nnz, c col>, 1}",
            Self::RowSerial => "{<x row, c col>, 1}",
            Self::RowGroup => "{<1/g row, c col>, r} or {<x row, 1/c col>, r}",
            Self::NnzGroup => "{<g nnz, c col>, r}",
        })
    }
}

impl Serialize for AtomicParallelism {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AtomicParallelism {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Family {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for DaSpmm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for AtomicParallelism {
    type Err = IllegalPoint;

    fn from_str(text: &str) -> Result<Self, IllegalPoint> {
        let (data, cols, reduction) =
            parts(text).ok_or_else(|| IllegalPoint::Syntax { text: text.to_owned() })?;
        Self::new(data, cols, reduction)
    }
}

/// The three numbers of `{<x nnz|row, y col>, r}`.
fn parts(text: &str) -> Option<(MinimalData, Share, u32)> {
    let braced = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let (pair, reduction) = braced.trim_start().strip_prefix('<')?.split_once('>')?;
    let (data, cols) = pair.split_once(',')?;
    let data = data.trim_end();
    let data = match data.strip_suffix("nnz") {
        Some(nonzeros) => MinimalData::Nnz(share(nonzeros)?),
        None => MinimalData::Row(share(data.strip_suffix("row")?)?),
    };
    let cols = share(cols.trim_end().strip_suffix("col")?)?;
    Some((data, cols, number(reduction.trim_start().strip_prefix(',')?)?))
}

fn share(text: &str) -> Option<Share> {
    match text.split_once('/') {
        Some((one, threads)) => (number(one)? == 1).then_some(Share::Part(number(threads)?)),
        None => number(text).map(Share::Whole),
    }
}

/// Digits alone: `u32::from_str` also takes a sign.
fn number(text: &str) -> Option<u32> {
    let digits = text.trim();
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}
