//! Changes to content, such as hostile files are made of: the fuzzer's and the tests' are the same.

use windrow_testkit::SplitMix64;

/// What numbers and formats have edges at.
const PIECES: &[&[u8]] = &[
    b"-1",
    b"0",
    b"99999999999999999999",
    b"4294967295",
    b"4294967296",
    b"18446744073709551615",
    b"1e999",
    b"nan",
    b".",
    b"-",
    b"e",
    b"\n",
    b"\r",
    b"\r\n",
    b" ",
    b"\t",
    b"%",
    b"#",
    b",",
    b"\0",
    b"1 1 1\n",
    b"%%MatrixMarket",
    b"symmetric",
    b"PK\x05\x06",
    b"((((",
    b"2147483648",
    b"\xff\xff\xff\xff",
    b"\x93NUMPY",
    b"{\"",
    b"null",
];

/// Changes `content` in a few places.
pub(crate) fn mutate(content: &mut Vec<u8>, rng: &mut SplitMix64) {
    for _ in 0..rng.between(1, 6) {
        let len = content.len();
        let at = rng.below(len + 1);
        match rng.below(7) {
            0 if len > 0 => content[at % len] ^= 1 << rng.below(8),
            1 if len > 0 => content[at % len] = rng.next_u64() as u8,
            2 => drop(content.splice(at..at, PIECES[rng.below(PIECES.len())].iter().copied())),
            3 => drop(content.drain(at..(at + rng.below(40)).min(len))),
            4 => {
                let piece = content[at..(at + rng.below(60)).min(len)].to_vec();
                let to = rng.below(len + 1);
                drop(content.splice(to..to, piece));
            }
            5 => content.truncate(at),
            _ => {
                let bytes: Vec<u8> = (0..rng.below(12)).map(|_| rng.next_u64() as u8).collect();
                drop(content.splice(at..at, bytes));
            }
        }
    }
}
