//! Vector-wise N:M weights: arrays `format`, `version`, `shape` (k, n), `pattern` (N, M, L), `values` (w × n), and
//! `indices` (w × q) or `packed_indices`.

use std::io::{Read, Seek};

use super::super::line::excerpt;
use super::super::vector_nm::{FORMAT, IndexForm, Sizes, VERSION, unknown_version};
use super::super::{ReadError, ReadOptions};
use super::archive::Archive;
use crate::{Value, VectorNm};

/// Reads the weights in `archive`.
pub(super) fn read<V: Value, R: Read + Seek>(
    archive: &mut Archive<R>,
    options: &ReadOptions<'_>,
) -> Result<VectorNm<V>, ReadError> {
    if archive.is_of_torch() {
        let found = "a file of torch.save; in Python, safetensors.torch.save_file writes tensors";
        return Err(ReadError::archive("content", "a safetensors file or an .npz archive", found));
    }
    let format = archive.array("format")?;
    let text = format.text()?;
    if text != FORMAT {
        return Err(format.error(FORMAT, excerpt(text.as_bytes())));
    }
    let [version] = archive.array("version")?.numbers("a version", "one number, the version")?;
    if version != VERSION {
        return Err(unknown_version("version.npy", version));
    }
    let shape = archive.array("shape")?.numbers("rows and columns", "two numbers, rows and columns")?;
    let pattern = archive.array("pattern")?.numbers("N, M and L", "three numbers, N, M and L")?;
    let sizes = Sizes::checked("shape.npy", shape, pattern, &options.limits)?;
    let values = archive.array("values")?;
    values.check_shape(&[sizes.kept_rows(), sizes.cols], "kept rows and columns")?;
    let (indices, form) = match archive.optional("indices")? {
        Some(indices) => (indices, IndexForm::Bytes),
        None => (archive.array("packed_indices")?, IndexForm::Packed),
    };
    indices.check_shape(&sizes.index_shape(form), "one index for each kept row and vector")?;
    sizes.assemble(values.values()?, indices.octets("indices")?, form)
}
