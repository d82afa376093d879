//! Packs the committed PTX, so that a program carries it once and small.
//!
//! `OUT_DIR/modules.rs` is the table that `src/modules.rs` includes. It lists whatever lies in `ptx/`, not what the table
//! of entries asks for: `cargo xtask build-ptx`, which writes the files, is built with this crate.

use flate2::Compression;
use flate2::write::DeflateEncoder;
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
            let text = fs::read(&path)?;
            let packed = out.join(format!("{folder}_{name}.deflate"));
            let mut encoder = DeflateEncoder::new(fs::File::create(&packed)?, Compression::new(9));
            encoder.write_all(&text)?;
            encoder.finish()?;
            writeln!(
                table,
                "Module {{ name: {name:?}, arch: Arch::{arch}, bytes: {}, packed: include_bytes!({packed:?}) }},",
                text.len()
            )?;
        }
    }
    table.push_str("]\n");
    fs::write(out.join("modules.rs"), table)?;
    Ok(())
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
