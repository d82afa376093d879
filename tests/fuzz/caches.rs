//! Files of the user's cache folder: whatever one holds, it is refused with an error of a bounded length, or what it
//! says can be kept, is found again as it was, and products with it are right.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use windrow::{Csr, Device, EmulatorSchedule, Profile, Spmm, Tuned};

use super::bytes::Bytes;

/// The first byte of a profile, and of tuned choices; two more of each have what is broken moved aside.
pub(crate) const PROFILE: u8 = 0;
pub(crate) const TUNED: u8 = 1;

/// What stands for the CPU in inputs: its name is another on each machine.
pub(crate) const CPU: &str = "@cpu";

/// Puts what is behind the first byte into the file that this names. Returns whether it was accepted.
pub(crate) fn check(data: &[u8]) -> bool {
    let mut bytes = Bytes(data);
    let kind = bytes.byte();
    let path = folder().join(["profile.json", "tuned.json"][usize::from(kind % 2)]);
    match std::str::from_utf8(bytes.0) {
        Ok(text) => fs::write(&path, text.replace(CPU, Device::cpu().name())).unwrap(),
        Err(_) => fs::write(&path, bytes.0).unwrap(),
    }
    let refusal = if kind % 2 == PROFILE { profile(&path) } else { tuned(&path) };
    let Some(message) = &refusal else { return true };
    assert!(!message.is_empty() && message.len() < 4000, "{} bytes of error", message.len());
    assert!(!message.contains(char::is_control), "{message:?}");
    if kind & 2 != 0 {
        mended(&path, kind % 2);
    }
    false
}

/// A folder of this process, in memory where the system has such: every file that is kept is brought to the disk.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = parent.join(format!("windrow-fuzz-caches-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    })
}

/// Removes what the checks of this process left.
pub(crate) fn clean_up() {
    fs::remove_dir_all(folder()).unwrap();
}

/// Columns of `B` in products that the committed files have tuned choices for, and their matrix.
pub(crate) const WIDTH: usize = 4;

pub(crate) fn matrix() -> Csr<f32> {
    let offsets = vec![0, 0, 1, 3, 12, 14];
    let col_indices = [&[5, 1, 7][..], &[0, 1, 2, 3, 4, 5, 6, 7, 9], &[2, 19]].concat();
    Csr::try_from_parts(5, 20, offsets, col_indices, vec![1.0; 14]).unwrap()
}

pub(crate) fn devices() -> [Device; 2] {
    [Device::cpu(), Device::emulator(EmulatorSchedule::STANDARD[0])]
}

fn profile(path: &Path) -> Option<String> {
    let profile = match Profile::read(path) {
        Ok(profile) => profile.expect("the file is there"),
        Err(error) => return Some(error.to_string()),
    };
    profile.save(path).unwrap();
    assert_eq!(Profile::read(path).unwrap().as_ref(), Some(&profile));
    for device in devices() {
        let plan = Spmm::builder(&matrix()).width(WIDTH).profile(&profile).build(&device).unwrap();
        assert_product(&plan.run(&[1.0; 20 * WIDTH]).unwrap());
    }
    None
}

fn tuned(path: &Path) -> Option<String> {
    let tuned = match Tuned::read(path) {
        Ok(tuned) => tuned.expect("the file is there"),
        Err(error) => return Some(error.to_string()),
    };
    tuned.save(path).unwrap();
    assert_eq!(Tuned::read(path).unwrap().as_ref(), Some(&tuned));
    for device in devices().into_iter().filter(|device| device.name() == tuned.device()) {
        // A choice of which no plan can be made is left out.
        let plan = Spmm::builder(&matrix()).width(WIDTH).tuned(&tuned).build(&device).unwrap();
        assert_product(&plan.run(&[1.0; 20 * WIDTH]).unwrap());
    }
    None
}

/// The sum of each row, which has that many entries of 1.
fn assert_product(c: &[f32]) {
    assert!(c.iter().zip(0..).all(|(&c, at)| c == [0.0, 1.0, 2.0, 9.0, 2.0][at / WIDTH]), "{c:?}");
}

/// What is broken does not stop what is new from being kept.
fn mended(path: &Path, kind: u8) {
    let device = Device::cpu();
    if kind == PROFILE {
        let profile = Profile::of(&device);
        profile.save(path).unwrap();
        assert_eq!(Profile::read(path).unwrap(), Some(profile));
    } else {
        let tuned = Tuned::of(&device);
        Tuned::update(path, &device, |_| Ok(())).unwrap();
        assert_eq!(Tuned::read(path).unwrap(), Some(tuned));
    }
}
