//! What a file of weights is that is none of ours, and what to do about it: told by its first bytes, or by its name.

use super::line::excerpt;

const GGUF: &str = "a GGUF file; take the model as safetensors, of which GGUF files are made";
const TORCH_ARCHIVE: &str = "a zip archive, as torch.save and numpy.savez write; in Python, safetensors.torch.save_file writes tensors";
const TORCH_PICKLE: &str =
    "a pickle, as old versions of torch.save wrote; in Python, safetensors.torch.save_file writes tensors";

/// What files begin with, and what they are.
const BEGINNINGS: [(&[u8], &str); 6] = [
    (b"GGUF", GGUF),
    (b"PK\x03\x04", TORCH_ARCHIVE),
    (b"\x93NUMPY", "one NumPy array; in Python, safetensors.numpy.save_file writes arrays"),
    (b"\x89HDF\r\n", "an HDF5 file; in Python, safetensors.numpy.save_file writes arrays"),
    (b"\x1f\x8b", "gzip; decompress it first"),
    (b"version https://git-lfs.github.com", "a pointer of Git LFS; fetch the file itself with git lfs pull"),
];
/// What a pickle begins with, in front of its version.
const PICKLE: u8 = 0x80;
/// Versions of pickles that Python writes in binary.
const PICKLE_VERSIONS: std::ops::RangeInclusive<u8> = 2..=5;

/// How files end that hold models for others, or say where they are.
const ENDINGS: [(&str, &str); 6] = [
    (".gguf", GGUF),
    (".bin", "a file of torch.save by its name; in Python, safetensors.torch.save_file writes tensors"),
    (".pt", "a file of torch.save by its name; in Python, safetensors.torch.save_file writes tensors"),
    (".pth", "a file of torch.save by its name; in Python, safetensors.torch.save_file writes tensors"),
    (
        ".bin.index.json",
        "an index of files of torch.save; in Python, model.save_pretrained writes safetensors",
    ),
    (".h5", "an HDF5 file by its name; in Python, safetensors.numpy.save_file writes arrays"),
];

/// What content that begins so is, if it is known here.
pub(super) fn by_beginning(content: &[u8]) -> Option<&'static str> {
    if let [PICKLE, version, ..] = content
        && PICKLE_VERSIONS.contains(version)
    {
        return Some(TORCH_PICKLE);
    }
    BEGINNINGS.iter().find(|(magic, _)| content.starts_with(magic)).map(|(_, what)| *what)
}

/// What a file of this name is, if that is known here.
pub(super) fn by_name(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    ENDINGS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, what)| *what)
}

/// What content is that does not begin as a safetensors file does.
pub(super) fn described(content: &[u8]) -> String {
    if let Some(what) = by_beginning(content) {
        return what.to_owned();
    }
    if content.trim_ascii_start().starts_with(b"{") {
        return "JSON text; an index names the files of a model: open it by its name, which ends in .json"
            .to_owned();
    }
    let beginning = &content[..content.len().min(16)];
    format!("{} bytes that begin with {}", content.len(), excerpt(beginning))
}
