//! The committed PTX, as a program carries it.

use std::io::{self, Read as _};

use flate2::read::DeflateDecoder;

use crate::arch::Arch;
use crate::kernel::Entry;

/// PTX that a driver compiles as a whole: the entries of one [module](Entry::module), for one architecture.
#[derive(Debug)]
pub struct Module {
    name: &'static str,
    arch: Arch,
    bytes: usize,
    /// Whether what is packed are edits of the module of the first architecture.
    edits: bool,
    packed: &'static [u8],
}

/// The files below `ptx/` whose families are [carried](crate::Family::is_carried), by architecture and name.
///
/// A static and not a constant, so that a program has the texts once, whichever crates name it.
pub static MODULES: &[Module] = include!(concat!(env!("OUT_DIR"), "/modules.rs"));

impl Module {
    /// Name of the file without its extension, as entries have it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What it is compiled for.
    #[must_use]
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// Length of the text in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that it takes in a program.
    #[must_use]
    pub fn packed_bytes(&self) -> usize {
        self.packed.len()
    }

    /// The text, unpacked.
    ///
    /// # Errors
    /// If the packed text is broken, which is this library's fault.
    pub fn text(&self) -> io::Result<String> {
        let mut text = String::with_capacity(self.bytes);
        DeflateDecoder::new(self.packed).read_to_string(&mut text)?;
        if self.edits {
            let is_base = |module: &&Self| module.name == self.name && !module.edits;
            let base = MODULES.iter().find(is_base).ok_or_else(|| self.broken("the text that it edits"))?;
            text = edited(&base.text()?, &text, self.bytes).ok_or_else(|| self.broken("whole edits"))?;
        }
        if text.len() == self.bytes {
            return Ok(text);
        }
        Err(self.broken(&format!("{} bytes, but {} instead", self.bytes, text.len())))
    }

    fn broken(&self, what: &str) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("the packed PTX {} has not {what}", self.name))
    }

    /// The module from which a GPU of compute capability `sm`, as `10·major + minor`, takes an entry; none if it cannot
    /// run the entry, or this build does not carry its family.
    #[must_use]
    pub fn of(entry: &Entry, sm: u32) -> Option<&'static Self> {
        let arch = Arch::for_gpu(sm, entry.arch)?;
        MODULES.iter().find(|module| module.arch == arch && module.name == entry.module)
    }
}

/// The text that `edits` make of `base`: a line with `+` is added, `=n` takes the next `n` lines, `-n` leaves them out.
fn edited(base: &str, edits: &str, bytes: usize) -> Option<String> {
    let mut text = String::with_capacity(bytes);
    let mut base = base.split_inclusive('\n');
    for edit in edits.split_inclusive('\n') {
        let (kind, rest) = edit.split_at_checked(1)?;
        if kind == "+" {
            text.push_str(rest);
            continue;
        }
        for _ in 0..rest.trim_end().parse::<usize>().ok()? {
            let line = base.next()?;
            match kind {
                "=" => text.push_str(line),
                "-" => {}
                _ => return None,
            }
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ENTRIES;
    use crate::kernel::Family;
    use std::collections::BTreeSet;

    /// The entries that a text holds.
    fn found(text: &str) -> BTreeSet<&str> {
        let names = text.lines().filter_map(|line| line.strip_prefix(".visible .entry "));
        names.map(|name| name.trim_end_matches('(')).collect()
    }

    #[test]
    fn texts_hold_the_entries_that_the_table_says() {
        for module in MODULES {
            let text = module.text().unwrap();
            let listed: BTreeSet<&str> = ENTRIES
                .iter()
                .filter(|entry| entry.module == module.name && module.arch.holds(entry.arch))
                .map(|entry| entry.name)
                .collect();
            assert_eq!(found(&text), listed, "{}/{}", module.arch, module.name);
            let target = format!(".target {}\n", module.arch.name().replace("sm", "sm_"));
            assert!(text.contains(&target), "{}/{}: no {target:?}", module.arch, module.name);
        }
    }

    #[test]
    fn texts_are_the_committed_ones() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ptx");
        for module in MODULES {
            let file = folder.join(module.arch.name().replace('_', "")).join(format!("{}.ptx", module.name));
            let committed = std::fs::read_to_string(&file).unwrap();
            assert!(module.text().unwrap() == committed, "{}", file.display());
        }
    }

    #[test]
    fn every_gpu_finds_the_entries_that_it_runs() {
        for sm in [80, 86, 89, 90, 100, 120] {
            for entry in ENTRIES {
                let module = Module::of(entry, sm);
                let expected = entry.family.is_carried() && entry.arch.runs_on(sm);
                assert_eq!(module.is_some(), expected, "{} on {sm}", entry.name);
            }
        }
        assert!(ENTRIES.iter().all(|entry| Module::of(entry, 75).is_none()));
    }

    #[test]
    fn edits_add_take_and_leave_out() {
        let base = "a\nb\nc\nd";
        assert_eq!(edited(base, "=1\n-1\n+x\n+=2\n=2\n", 9).unwrap(), "a\nx\n=2\nc\nd");
        for broken in ["=5\n", "b\n", "=x\n", "\n"] {
            assert_eq!(edited(base, broken, 0), None, "{broken:?}");
        }
    }

    /// The texts themselves are compared with the committed ones by what they hold, in the tests above.
    #[test]
    fn packed_texts_are_small() {
        let (bytes, packed) = MODULES
            .iter()
            .fold((0, 0), |(bytes, packed), module| (bytes + module.bytes, packed + module.packed_bytes()));
        assert!(MODULES.is_empty() || 5 * packed < bytes, "{packed} bytes of {bytes}");
    }

    #[test]
    fn a_module_belongs_to_one_family_and_says_which() {
        for entry in ENTRIES {
            let family = entry.family.name();
            let rest = entry.module.strip_prefix(family);
            assert!(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_')), "{}", entry.module);
        }
        assert!(Family::ALL.iter().all(|&family| ENTRIES.iter().any(|entry| entry.family == family)));
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn a_broken_text_is_an_error() {
        let whole = Module::of(crate::entry(crate::Variant::Combine { sum_bytes: 4 }).unwrap(), 80).unwrap();
        let cut = Module { packed: &whole.packed[..whole.packed.len() / 2], ..*whole };
        assert!(cut.text().is_err());
        let longer = Module { bytes: whole.bytes + 1, ..*whole };
        assert!(longer.text().unwrap_err().to_string().contains("instead"));
    }
}
