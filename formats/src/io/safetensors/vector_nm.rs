//! Vector-wise N:M weights in safetensors files: reading.

use super::super::line::excerpt;
use super::super::model::{METADATA_PREFIX, named_weights};
use super::super::number::parse_unsigned;
use super::super::vector_nm::{FORMAT, IndexForm, Sizes, VERSION, unknown_version};
use super::super::{ReadError, ReadOptions};
use super::{Tensors, listed};
use crate::{Value, VectorNm};

/// Reads the weights in `content`.
pub(in super::super) fn read<V: Value>(
    content: &[u8],
    options: &ReadOptions<'_>,
) -> Result<VectorNm<V>, ReadError> {
    let tensors = Tensors::parse(content)?;
    if let Some(name) = options.tensor {
        return named_weights(&tensors, name, options);
    }
    let metadata =
        |expected: String, found: String| ReadError::archive("safetensors metadata", expected, found);
    let entry = |key: &str| {
        let missing = || metadata(format!("an entry {key:?}"), "none of that name".to_owned());
        tensors.entry(key).ok_or_else(missing)
    };
    match tensors.entry("format") {
        Some(FORMAT) => {}
        _ if !tensors.entries_with(METADATA_PREFIX).is_empty() => {
            return match &tensors.entries_with(METADATA_PREFIX)[..] {
                [name] => named_weights(&tensors, name, options),
                names => {
                    let found = format!("{}: {}; name the one to read", names.len(), listed(names));
                    Err(metadata("weights with N:M sparsity".to_owned(), found))
                }
            };
        }
        found => {
            let found = found.map_or("none".to_owned(), |found| excerpt(found.as_bytes()));
            let found = format!(
                "{found}, and {}; dense tensors are read by name and pruned",
                listed(&tensors.names())
            );
            return Err(metadata(format!("the format {FORMAT:?}"), found));
        }
    }
    let number = |key: &str| {
        let text = entry(key)?;
        let not_one = || metadata(format!("a number as {key:?}"), excerpt(text.as_bytes()));
        parse_unsigned(text.as_bytes()).ok_or_else(not_one)
    };
    let version = number("version")?;
    if version != VERSION {
        return Err(unknown_version("safetensors metadata", version));
    }
    let sizes = Sizes::checked(
        "safetensors metadata",
        [number("rows")?, number("cols")?],
        [number("N")?, number("M")?, number("L")?],
        &options.limits,
    )?;
    let form = match entry("indices")? {
        "bytes" => IndexForm::Bytes,
        "packed" => IndexForm::Packed,
        other => {
            let found = excerpt(other.as_bytes());
            return Err(metadata("\"bytes\" or \"packed\" as \"indices\"".to_owned(), found));
        }
    };
    let values = tensors.tensor("values")?;
    values.check_shape(&[sizes.kept_rows(), sizes.cols], "kept rows and columns")?;
    let indices = tensors.tensor("indices")?;
    indices.check_shape(&sizes.index_shape(form), "one index for each kept row and vector")?;
    sizes.assemble(values.values()?, indices.bytes()?, form)
}
