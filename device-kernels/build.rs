//! Packs the committed PTX, so that a program carries it once and small.
//!
//! The texts of a module for two architectures differ in a dozen lines: the second is packed as what is to be done to
//! the first. `+` in front of a line adds it, `=n` takes the next `n` lines of the first, `-n` leaves them out.
//!
//! `OUT_DIR/modules.rs` is the table that `src/modules.rs` includes. It lists whatever lies in `ptx/`, not what the
//! table of entries asks for: `cargo xtask build-ptx`, which writes the files, is built with this crate.

use flate2::Compression;
use flate2::write::DeflateEncoder;
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The folders of `ptx/` and the architectures that they are for.
const FOLDERS: [(&str, &str); 3] = [("sm80", "Sm80"), ("sm90", "Sm90"), ("sm90a", "Sm90a")];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=ptx");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    if std::env::var("CARGO_CFG_TARGET_ARCH")? == "nvptx64" {
        return Ok(()); // what the files are made from
    }
    let left_out = left_out();
    let mut table = String::from("&[\n");
    for (folder, arch) in FOLDERS.into_iter().filter(|_| enabled("cuda")) {
        for path in texts(&Path::new("ptx").join(folder))? {
            let name =
                path.file_stem().and_then(|stem| stem.to_str()).ok_or("a file name that is not text")?;
            if left_out.iter().any(|family| name.split('_').next() == Some(family)) {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let first = Path::new("ptx").join(FOLDERS[0].0).join(format!("{name}.ptx"));
            let base = match folder == FOLDERS[0].0 {
                true => None,
                false => fs::read_to_string(first).ok(),
            };
            let packed = out.join(format!("{folder}_{name}.deflate"));
            let mut encoder = DeflateEncoder::new(fs::File::create(&packed)?, Compression::new(9));
            match &base {
                None => encoder.write_all(text.as_bytes())?,
                Some(base) => encoder.write_all(edits(base, &text)?.as_bytes())?,
            }
            encoder.finish()?;
            let (bytes, edits) = (text.len(), base.is_some());
            writeln!(
                table,
                "Module {{ name: {name:?}, arch: Arch::{arch}, bytes: {bytes}, edits: {edits}, \
                 packed: include_bytes!({packed:?}) }},"
            )?;
        }
    }
    table.push_str("]\n");
    fs::write(out.join("modules.rs"), table)?;
    Ok(())
}

/// What makes `text` of `base`.
fn edits(base: &str, text: &str) -> Result<String, std::fmt::Error> {
    let [old, new] = [base, text].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let mut edits = String::new();
    for op in capture_diff_slices(Algorithm::Myers, &old, &new) {
        match op {
            DiffOp::Equal { len, .. } => writeln!(edits, "={len}")?,
            DiffOp::Delete { old_len, .. } => writeln!(edits, "-{old_len}")?,
            DiffOp::Insert { .. } => {}
            DiffOp::Replace { old_len, .. } => writeln!(edits, "-{old_len}")?,
        }
        if let DiffOp::Insert { new_index, new_len, .. } | DiffOp::Replace { new_index, new_len, .. } = op {
            for line in &new[new_index..new_index + new_len] {
                write!(edits, "+{line}")?;
            }
        }
    }
    Ok(edits)
}

/// The families whose features are off; names of modules begin with that of their family.
fn left_out() -> Vec<&'static str> {
    ["nm", "tensor", "training"].into_iter().filter(|family| !enabled(family)).collect()
}

fn enabled(feature: &str) -> bool {
    std::env::var_os(format!("CARGO_FEATURE_{}", feature.to_uppercase())).is_some()
}

/// The PTX files of a folder in the order of their names; none if there is no such folder.
fn texts(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths =
        fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    paths.sort();
    Ok(paths)
}
