//! Mutated and cut-off files: whatever comes of them, it is a valid matrix or an error, never a panic.

use crate::io_support::gzip;
use proptest::prelude::*;
use windrow_formats::Csr;
use windrow_formats::io::{
    Format, Limits, ReadOptions, read_csr_from, sniff, write_edge_list, write_scipy_npz, write_smtx,
};

/// Small limits, so that a lie costs no time.
fn options(format: Option<Format>) -> ReadOptions<'static> {
    let limits = Limits { max_rows: 1 << 16, max_cols: 1 << 32, max_nnz: 1 << 16, max_bytes: 1 << 20 };
    ReadOptions { limits, format, ..ReadOptions::default() }
}

/// A valid file of each kind.
fn seeds() -> Vec<Vec<u8>> {
    let values = vec![1.5f64, -2.0, 1e-3, 0.1, 7.0, 0.0];
    let csr = Csr::try_from_parts(4, 4, vec![0, 2, 2, 4, 6], vec![1, 3, 0, 2, 1, 3], values).unwrap();
    let mut seeds: Vec<Vec<u8>> = [
        "%%MatrixMarket matrix coordinate real general\n% c\n3 4 3\n1 1 1.5\n2 3 -2e-5\n3 4 inf\n",
        "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n",
        "%%MatrixMarket matrix coordinate integer skew-symmetric\r\n3 3 2\r\n2 1 7\r\n3 1 -8\r\n",
        "%%MatrixMarket matrix array real general\n2 2\n1\n0\n3.25\n4\n",
        "%%MatrixMarket matrix array real symmetric\n2 2\n1\n2\n3\n",
        "# graph\n0\t1\n1\t2\n2\t0\n",
        "0 1 0.5\n1 2 1e3\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec();
    let [mut smtx, mut edges, mut archive] = [const { Vec::new() }; 3];
    write_smtx(&mut smtx, &csr).unwrap();
    write_edge_list(&mut edges, &csr).unwrap();
    write_scipy_npz(&mut archive, &csr).unwrap();
    seeds.extend([smtx, edges, archive]);
    for name in ["csc", "coo_compressed", "csr_bool", "csr_unicode_format", "coo_coords", "tc_gnn"] {
        let path = format!("{}/../formats/tests/data/{name}.npz", env!("CARGO_MANIFEST_DIR"));
        seeds.push(std::fs::read(path).unwrap());
    }
    let packed: Vec<_> = seeds.iter().map(|seed| gzip(seed)).collect();
    seeds.extend(packed);
    seeds
}

/// Reads in every way; what was read must be whole.
fn read_all_ways(content: &[u8]) -> bool {
    let _ = sniff(content);
    let formats = std::iter::once(None).chain(Format::ALL.map(Some));
    let read = formats.map(|format| match read_csr_from::<f32>(content, &options(format)) {
        Ok((csr, report)) => {
            let (rows, cols) = (csr.rows(), csr.cols());
            let nnz = csr.nnz() as u64;
            assert!(nnz <= report.entries_read + report.mirrored);
            let (offsets, col_indices, values) = csr.into_parts();
            let again = Csr::try_from_parts(rows, cols, offsets, col_indices, values).unwrap();
            assert_eq!(again.canonicalised().sorted_rows + again.canonicalised().summed_duplicates, 0);
            true
        }
        Err(error) => {
            let message = error.to_string();
            assert!(!message.is_empty() && message.len() < 2000, "{message}");
            false
        }
    });
    read.fold(false, |any, read| any | read)
}

#[test]
fn the_seeds_are_valid_and_cut_off_anywhere_they_do_no_harm() {
    for seed in seeds() {
        assert!(read_all_ways(&seed));
        for len in (0..seed.len()).step_by(if seed.len() > 300 { 7 } else { 1 }) {
            read_all_ways(&seed[..len]);
        }
    }
}

/// A change to a file.
#[derive(Debug, Clone)]
enum Mutation {
    Flip(usize, u8),
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Copy(usize, usize, usize),
    Cut(usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<usize>();
    // What hostile files are made of.
    let piece = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        proptest::sample::select(vec![
            "-1",
            "0",
            "99999999999999999999",
            "4294967295",
            "4294967296",
            "18446744073709551615",
            "1e999",
            "nan",
            ".",
            "-",
            "e",
            "\n",
            "\r",
            "\r\n",
            " ",
            "\t",
            "%",
            "#",
            ",",
            "\0",
            "1 1 1\n",
            "%%MatrixMarket",
            "symmetric",
            "PK\u{5}\u{6}",
            "((((",
            "2147483648",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    prop_oneof![
        (at, 0u8..8).prop_map(|(at, bit)| Mutation::Flip(at, 1 << bit)),
        (at, any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at, piece).prop_map(|(at, piece)| Mutation::Insert(at, piece)),
        (at, 0usize..40).prop_map(|(at, len)| Mutation::Remove(at, len)),
        (at, any::<usize>(), 0usize..60).prop_map(|(from, to, len)| Mutation::Copy(from, to, len)),
        at.prop_map(Mutation::Cut),
    ]
}

fn apply(content: &mut Vec<u8>, mutation: &Mutation) {
    let len = content.len();
    let place = |at: usize| at % (len + 1);
    match mutation {
        Mutation::Flip(at, bits) if len > 0 => content[at % len] ^= bits,
        Mutation::Set(at, byte) if len > 0 => content[at % len] = *byte,
        Mutation::Insert(at, piece) => drop(content.splice(place(*at)..place(*at), piece.iter().copied())),
        Mutation::Remove(at, count) => drop(content.drain(place(*at)..(place(*at) + count).min(len))),
        Mutation::Copy(from, to, count) => {
            let piece = content[place(*from)..(place(*from) + count).min(len)].to_vec();
            drop(content.splice(place(*to)..place(*to), piece));
        }
        Mutation::Cut(at) => content.truncate(place(*at)),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn mutated_files_do_no_harm(
        seed in proptest::sample::select(seeds()),
        mutations in proptest::collection::vec(mutation(), 1..6),
        pack in any::<bool>(),
    ) {
        let mut content = seed;
        mutations.iter().for_each(|mutation| apply(&mut content, mutation));
        read_all_ways(&content);
        if pack {
            // Mutated content behind sound gzip.
            read_all_ways(&gzip(&content));
        }
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(content in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_all_ways(&content);
    }

    #[test]
    fn arbitrary_text_does_no_harm(
        header in proptest::sample::select(vec![
            "", "%%MatrixMarket matrix coordinate real general\n", "%%MatrixMarket matrix array integer symmetric\n",
            "%%MatrixMarket matrix coordinate pattern symmetric\n",
        ]),
        body in "[-+0-9.e ,#%\\n\\r\\tx]{0,120}",
    ) {
        read_all_ways(format!("{header}{body}").as_bytes());
    }
}
